"""Compare the hours of `electra estimate` with those of real runs, for three small profiles on this machine.

    python -m benchmarks.estimate_hours --steps 60

Runs `electra pretrain` on bundled books with the given number of steps, and compares its rate with the mean of the
rates that the estimate measures before and after it. Since they alternate, a busy machine affects both; cores used by
others are printed with the figures.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import table
from benchmarks.workspace import bundled_text, run_stage
from electra.cluster.estimate.cost import measure_speed
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import load_settings
from electra.text.corpus.build import build_corpus
from electra.text.shards.build import build_shards
from electra.text.tokenizer.build import build_tokenizer

SHAPES = {  # layers, hidden, heads, intermediate, length, batch
    "narrow": (2, 128, 4, 512, 32, 32),
    "wide": (4, 256, 4, 1024, 64, 32),
    "long": (4, 192, 4, 768, 128, 32),
}
TOLERANCE = 0.25


def workspace(root: Path, shape: str, steps: int) -> Settings:
    """Create a workspace with another shape of profile `books`, without tasks, and run the stages up to the shards."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe")
    here = Path(__file__).resolve().parents[1]
    common, profile = yaml.load((here / "params.yaml").read_text()), yaml.load((here / "params/books.yaml").read_text())
    layers, hidden, heads, inner, length, batch = SHAPES[shape]
    common["cells"]["tasks"] = []
    profile["corpus"] |= {**bundled_text(1500), "decontamination": None}
    profile["model"] |= {"num_layers": layers, "hidden_size": hidden, "num_heads": heads, "intermediate_size": inner}
    profile["shards"]["max_length"] = length
    profile["pretrain"] |= {"num_steps": steps, "batch_size": batch, "eval_every": steps, "eval_examples": 32}
    profile["pretrain"]["warmup_steps"] = steps // 4
    (root / "params").mkdir(parents=True)
    for path, values in ((root / "params.yaml", common), (root / "params/books.yaml", profile)):
        with open(path, "w", encoding="utf-8") as file:
            yaml.dump(values, file)
    settings = load_settings(root)
    for stage in (build_corpus, build_tokenizer, build_shards):
        stage(settings, Paths(root))
    return settings


def rate_of_run(root: Path, steps: int) -> float:
    """Return the tokens per second of a real run from its progress file, without start-up."""
    output = run_stage(root, "pretrain")
    rate = re.findall(rf"^step {steps}/{steps}  .*?([\d,]+) tokens/s", output, re.MULTILINE)
    if not rate:
        raise SystemExit(f"no rate in the output of the run: {output}")
    return float(rate[-1].replace(",", ""))


def main() -> int:
    """Print a row per shape; return 1 if an estimate is off by more than a quarter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    options = parser.parse_args()
    rows, worst = [], 0.0
    for shape in options.shapes:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "run"
            settings = workspace(root, shape, options.steps)
            before = measure_speed(settings, settings.tokenizer.vocab_size)
            real = rate_of_run(root, options.steps)
            after = measure_speed(settings, settings.tokenizer.vocab_size)
        expected = (before.tokens_per_second + after.tokens_per_second) / 2
        ratio = real / expected  # hours are inversely proportional to the rate
        worst = max(worst, abs(ratio - 1))
        others = max(before.used_by_others, after.used_by_others)
        rows.append([shape, f"{expected:,.0f}", f"{real:,.0f}", f"{ratio:.2f}", f"{others:.1f}"])
    heads = [
        "shape",
        "tokens/s by the estimate",
        "tokens/s of the run",
        "predicted / measured hours",
        "cores of others",
    ]
    print(table(heads, rows))
    print(f"load average {os.getloadavg()[0]:.1f}; largest deviation {worst:.0%} (at most {TOLERANCE:.0%})")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
