"""Comparison of several options' discriminators on the same generators' samples.

    python -m experiments.same_samples --folder logs/options --budget 16 --options baseline modern@2 --others rotary@1.5

A run's figures depend on its generator: samples of a better generator are harder to detect. Here the generator of every
run corrupts the same held-out examples, at the same positions, and the discriminator of every run is evaluated on them.
The table shows each discriminator's mean without the samples of its own run. ``--others`` are options of which only the
generators are used. The runs are those that ``experiments.options`` has written to ``--folder``. With ``--write`` the
figures of this budget and these options go to ``experiments/results/same_samples.json`` and ``.md``.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

from benchmarks import measure
from electra.common.artifacts import read_json, write_json, write_text
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.model.pretrained import special_token_ids
from electra.objectives.saved import load_electra
from electra.pretrain.data.batches import DataParallel, ExampleDrawer, heldout_batches
from electra.pretrain.metrics import HeldoutSums
from electra.text.shards.layout import Shards
from experiments.equal_flops import ROOT

Runs = dict[str, dict[int, Path]]  # option to seed to workspace
Row = dict[str, Any]
RESULTS = ROOT / "experiments/results"
FIGURES = {"share": "of plateau", "auc": "AUC"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("logs/options"), help="folder of experiments.options' runs")
    parser.add_argument("--budget", type=int, default=1)
    parser.add_argument(
        "--options", nargs="+", default=["baseline", "modern@2"], help="options whose discriminators are compared"
    )
    parser.add_argument(
        "--others", nargs="*", default=["rotary@1.5"], help="options of which only the generators are used"
    )
    parser.add_argument("--write", action="store_true", help="write experiments/results/same_samples.json and .md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = found_runs(arguments.folder, arguments.budget, [*arguments.options, *arguments.others])
    about = {"budget": arguments.budget, "options": arguments.options}
    rows = [{**about, **row} for row in compare(runs, arguments.options)]
    print(as_table(rows))
    if arguments.write:
        file = RESULTS / "same_samples.json"
        before = read_json(file) if file.exists() else []
        rows += [row for row in before if any(row[key] != about[key] for key in about)]
        rows.sort(key=lambda row: (row["options"], row["budget"]))
        write_json(file, rows)
        write_text(RESULTS / "same_samples.md", "\n".join(as_table(own) for own in _by_options(rows)))


def _by_options(rows: list[Row]) -> list[list[Row]]:
    """Group the rows by comparison: a table has one comparison's discriminators as columns."""
    comparisons: dict[str, list[Row]] = {}
    for row in rows:
        comparisons.setdefault(str(row["options"]), []).append(row)
    return list(comparisons.values())


def found_runs(folder: Path, budget: int, options: list[str]) -> Runs:
    """Return the finished runs of a budget.

    Raises:
        ConfigError: an option has no finished run.
    """
    runs: Runs = {}
    for option in options:
        for workspace in sorted(folder.glob(f"{option}-x{budget}-*")):
            if (Paths(workspace).pretrained / "manifest.json").exists():
                runs.setdefault(option, {})[int(workspace.name.rsplit("-", 1)[1])] = workspace
        if option not in runs:
            raise ConfigError(
                f"there is no finished run of {option!r} at budget {budget}",
                where=str(folder),
                next_step=f"python -m experiments.options --options {option} --budget {budget} --only-pretrain",
            )
    return runs


def compare(runs: Runs, judges: list[str]) -> list[Row]:
    """Evaluate the discriminators of the options ``judges`` on every generator's samples.

    Returns:
        A row for each pair of generator and discriminator: their options and seeds, the generator's MLM loss, and the
        discriminator's loss as a share of its plateau and AUC.
    """
    workspaces = [(option, seed, workspace) for option, seeds in runs.items() for seed, workspace in seeds.items()]
    settings, paths = load_settings(workspaces[0][2]), Paths(workspaces[0][2])
    special_ids, shards = special_token_ids(paths.tokenizer), Shards(paths.shards, "heldout")
    drawer = ExampleDrawer(shards, special_ids, settings.pretrain, settings.fidelity)
    batches = [batch for batch, _ in heldout_batches(drawer, DataParallel(0, 1, 64), settings.pretrain.eval_examples)]
    models = {workspace: load_electra(Paths(workspace).pretrained) for _, _, workspace in workspaces}
    rows = []
    for by_option, with_seed, generator in workspaces:
        sums = {judge: HeldoutSums(["mlm", "disc"], special_ids, shards.vocab_size) for judge in models}
        with torch.inference_mode():
            for batch in batches:
                generated = models[generator].generate(batch)
                for judge, model in models.items():
                    outputs, _ = model.discriminate(batch, generated)
                    outputs.loss_sums["mlm"] = generated.losses_BK.sum()
                    sums[judge].add(batch, outputs, model.counts(batch))
        for option, seed, judge in workspaces:
            if option in judges:
                figures = sums[judge].results()
                rows.append(
                    {
                        "generator": by_option,
                        "generator_seed": with_seed,
                        "mlm_loss": round(figures["mlm_loss"], 4),
                        "discriminator": option,
                        "seed": seed,
                        "share": round(figures["disc_loss"] / figures["fake_rate_entropy"], 5),
                        "auc": round(figures["disc_auc"], 5),
                    }
                )
        print(f"samples of {generator.name} are judged", flush=True)
    return rows


def by_seed(rows: list[Row], generator: str, discriminator: str, figure: str) -> list[float]:
    """Return a figure per discriminator of an option: its mean over an option's generators except its own run's."""
    values: dict[int, list[float]] = {}
    for row in rows:
        is_own = generator == discriminator and row["generator_seed"] == row["seed"]
        if (row["generator"], row["discriminator"]) == (generator, discriminator) and not is_own:
            values.setdefault(row["seed"], []).append(row[figure])
    return [statistics.fmean(values[seed]) for seed in sorted(values)]


def as_table(rows: list[Row]) -> str:
    """Return a table with a row per budget and generators' option: mean ± standard deviation over discriminators."""
    judges = list(dict.fromkeys(row["discriminator"] for row in rows))
    heading = ["budget", "samples of", "MLM loss"]
    heading += [f"`{judge}`, {name}" for name in FIGURES.values() for judge in judges]
    lines = []
    for budget in dict.fromkeys(row["budget"] for row in rows):
        own = [row for row in rows if row["budget"] == budget]
        for generator in dict.fromkeys(row["generator"] for row in own):
            losses = {row["generator_seed"]: row["mlm_loss"] for row in own if row["generator"] == generator}
            cells = [str(budget), f"`{generator}`, {len(losses)}", measure.mean_and_spread(list(losses.values()), 3)]
            for figure in FIGURES:
                cells += [measure.mean_and_spread(by_seed(own, generator, judge, figure), 3) for judge in judges]
            lines.append(cells)
    return measure.table(heading, lines) + "\n"


if __name__ == "__main__":
    measure.run(main)
