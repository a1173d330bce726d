"""Pre-training methods at equal hardware FLOPs: the paper's table 5 on the chosen profile's data.

    python -m experiments.objectives                       # the chosen profile, all methods of the table
    python -m experiments.objectives --methods electra bert --seeds 1 2 3 4 5

Needs the profile's data (``dvc repro validate_shards validate_tasks``). Every method gets a separate workspace under
``--folder`` with the same data, and as many steps as cost the FLOPs of the profile's method; schedule and warm-up
scale with them. Existing results are not computed again, so an interrupted call can be repeated.
"""

import argparse
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from electra.common.artifacts import read_json, write_json, write_text
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import load_settings
from experiments.equal_flops import (
    fine_tuned,
    pretrained,
    steps_that_cost,
    training_flops,
    vocab_size_of,
    write_workspace,
)

METHODS = ("electra", "electra_15", "replace_mlm", "all_tokens_mlm", "bert", "two_stage", "adversarial")
PUBLISHED = {  # mean on GLUE's development sets at BERT-Base size (paper, table 5)
    "electra": "85.0",
    "all_tokens_mlm": "84.3",
    "electra_15": "82.4",
    "replace_mlm": "82.4",
    "bert": "82.2",
    "two_stage": "below joint (figure 3)",
    "adversarial": "below joint (figure 3)",
}
NO_METHOD = "no pre-training"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="seeds of fine-tuning")
    parser.add_argument("--parallel", type=int, default=2, help="methods side by side, one thread each")
    parser.add_argument(
        "--budget", type=float, default=1.0, help="multiple of the training FLOPs of the profile's method"
    )
    parser.add_argument("--folder", type=Path, default=Path("logs/objectives"))
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    settings = load_settings()

    def measure(method: str) -> dict[str, Any]:
        return measure_method(settings, method, options.seeds, options.budget, options.folder / method)

    names = [*options.methods, NO_METHOD]
    with ThreadPoolExecutor(options.parallel) as pool:
        found = dict(zip(names, pool.map(measure, names), strict=True))
    result = {
        "profile": settings.profile,
        "data": read_json(Paths().tasks / "manifest.json")["source"]["kind"],
        "training_flops": training_flops(settings, vocab_size_of(Paths())) * options.budget,
        "finetuning_seeds": options.seeds,
        "methods": found,
    }
    write_json(options.folder / "objectives.json", result)
    text = as_table(found, list(settings.cells.tasks), settings.model_dump()["pretrain"]["num_steps"])
    print(text)
    if options.write:
        write_text(options.write, text)


def measure_method(settings: Settings, method: str, seeds: list[int], budget: float, folder: Path) -> dict[str, Any]:
    """Pre-train by one method, fine-tune all tasks with all seeds, and score them."""
    scratch, vocab_size = method == NO_METHOD, vocab_size_of(Paths())
    recipe = settings.pretrain.model_copy(update={"objective": "electra" if scratch else method})
    changed = settings.model_copy(update={"pretrain": recipe})
    steps = steps_that_cost(budget * training_flops(settings, vocab_size), changed, vocab_size)
    write_workspace(folder, changed, Path("data"), steps, seeds)
    heldout = {} if scratch else pretrained(folder)
    found = fine_tuned(folder, settings.cells.tasks, seeds, scratch)
    return {"steps": 0 if scratch else steps, **found, "heldout": heldout}


def as_table(found: dict[str, dict[str, Any]], tasks: list[str], own_steps: int) -> str:
    """Return the methods as a table, best mean first, with its standard deviation over fine-tuning seeds."""
    lines = [
        "| method | steps | mean | ± | " + " | ".join(tasks) + " | paper |",
        "|---" * (len(tasks) + 5) + "|",
    ]
    for name, entry in sorted(found.items(), key=lambda item: -item[1]["mean"]):
        by_seed = entry["mean_by_seed"]
        spread = f"{statistics.stdev(by_seed):.1f}" if len(by_seed) > 1 else ""
        medians = " | ".join(f"{statistics.median(entry['tasks'][task]):.1f}" for task in tasks)
        lines.append(
            f"| {name} | {entry['steps']:,} | **{entry['mean']:.1f}** | {spread} | {medians} "
            f"| {PUBLISHED.get(name, '')} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
