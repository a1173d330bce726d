"""Record book: FLOPs and time that pre-training takes to reach fixed targets on fixed data.

    python -m experiments.speedrun books --record modern --seeds 1 2 3 --data FOLDER --write
    python -m experiments.speedrun books --record modern --compare-wall --data FOLDER --write
    python -m experiments.speedrun --write

The first command pre-trains a record once per seed, each run in a separate workspace under ``--folder``, and tests its
figures against the track's targets; an interrupted call can be repeated. The second compares the time of its steps with
the baseline's. With ``--write`` the figures go to ``experiments/results/records.json`` and the tables to
``docs/records.md``, which has the rules; the third writes the tables again. ``books`` needs ``--data``, a folder with
``prose/*.txt.xz``, ``glue/STS-B/`` and ``conll2000/``. Settings of the tracks: ``experiments/tracks/``.
"""

import argparse
import hashlib
import json
import shutil
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.training_run import watched_run
from electra.common.artifacts import read_json, read_manifest, write_json, write_text
from electra.common.errors import ConfigError, DataError
from electra.common.parsing import read_yaml
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import load_settings, parse_settings
from electra.pretrain.checkpoint import fingerprint
from experiments.equal_flops import (
    ROOT,
    electra,
    fine_tuned,
    pretrained,
    processor_seconds,
    scaled,
    training_flops,
    vocab_size_of,
    write_workspace,
)
from experiments.record_book import (
    AUC,
    BASELINE,
    DIGITS,
    TRACKS,
    Row,
    p_values,
    page_with,
    summary,
    wall_summary,
    with_row,
    with_wall,
)

Changes = dict[str, dict[str, Any]]  # section to keys to values
SETTINGS = ROOT / "experiments/tracks"
RESULTS, PAGE = ROOT / "experiments/results/records.json", ROOT / "docs/records.md"
MODERN: dict[str, Any] = {
    "architecture": "modern",
    "positions": "rotary",
    "norm": "pre",
    "feed_forward": "geglu",
    "intermediate_size": 344,
}
SLOW: dict[str, Any] = {"batch_size": 16, "learning_rate": 1.0e-3, "generator_rate": 0.1}
# A record is a set of changes to experiments/tracks/<track>.yaml, including the number of steps.
RECORDS: dict[str, dict[str, Changes]] = {
    "books": {
        BASELINE: {},
        "modern": {
            "model": MODERN,
            "pretrain": {"num_steps": 11_956, "batch_size": 16, "warmup_steps": 797, "learning_rate": 1.4e-3},
        },
        "rotary": {
            "model": {"positions": "rotary"},
            "pretrain": {"num_steps": 11_990, "batch_size": 16, "warmup_steps": 800, "learning_rate": 1.0e-3},
        },
        "slow-generator": {
            "model": {"positions": "rotary"},
            "pretrain": {**SLOW, "num_steps": 11_990, "warmup_steps": 800},
        },
        "slow-generator-9000": {
            "model": {"positions": "rotary"},
            "pretrain": {**SLOW, "num_steps": 9_000, "warmup_steps": 600},
        },
        "small-batches": {
            "model": MODERN,
            "pretrain": {"num_steps": 23_912, "batch_size": 8, "warmup_steps": 1_600, "learning_rate": 1.0e-3},
        },
    },
}
FREE = ("model", "pretrain", "cluster")  # sections that a record may change
# ... except these: the initial weights, and settings on which the difficulty of the held-out task depends
FROZEN = {
    "pretrain": (
        *("objective", "generator", "mask_probability", "mask_token_probability", "temperature"),
        *("disallow_correct", "correct_samples_are_fake", "eval_examples", "initialize_from", "seed"),
    ),
    "model": ("generator_width", "generator_depth"),
    "cluster": ("num_threads", "num_processes"),
}
WARM_UP = 20  # untimed steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("track", nargs="?", choices=TRACKS)
    parser.add_argument("--record", help="a name of RECORDS in experiments/speedrun.py")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[1, 2, 3], help="seeds of pre-training: 1 to n for a record"
    )
    parser.add_argument("--data", type=Path, help="folder with prose/, glue/ and conll2000/ (books)")
    parser.add_argument("--folder", type=Path, default=Path("logs/speedrun"), help="for data and runs, by track")
    parser.add_argument("--parallel", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument(
        "--compare-wall", action="store_true", help="compare the time of steps with the baseline's instead"
    )
    parser.add_argument("--baseline-steps", type=int, default=300, help="steps per side and repeat of --compare-wall")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of --compare-wall")
    parser.add_argument("--write", action="store_true", help="add the row to records.json and the page")
    arguments = parser.parse_args()
    if arguments.track:
        rows = measured(arguments)
    elif arguments.write:
        rows = book()
    else:
        parser.error("name a track, or give --write to write the tables anew")
    if arguments.write:
        write_json(RESULTS, rows)
        write_text(PAGE, page_with(rows, PAGE.read_text(encoding="utf-8")))


def book() -> list[Row]:
    return read_json(RESULTS) if RESULTS.exists() else []


def measured(arguments: argparse.Namespace) -> list[Row]:
    """Run the measurement of the command line; return the book's rows with the result."""
    track, name, folder = arguments.track, arguments.record or BASELINE, arguments.folder / arguments.track
    settings_of(track, name)  # fail early on an unknown name
    data = prepare(track, folder / "data", arguments.data)
    if not arguments.compare_wall:
        row = measure_record(track, name, sorted(set(arguments.seeds)), data, folder, arguments.parallel)
        rows = with_row(book(), row)
        print(summary(rows, row))
        return rows
    with_wall(book(), track, name, {}, needed=arguments.write)  # fail early on a missing row
    wall = compare_wall(track, name, data, folder, arguments.baseline_steps, arguments.repeats)
    print(wall_summary(name, wall))
    return with_wall(book(), track, name, wall, needed=arguments.write)


# ---- settings and data


def settings_of(track: str, record: str) -> Settings:
    """Return the settings of a record.

    Raises:
        ConfigError: the record does not exist, or changes a setting that the track fixes.
    """
    if record not in RECORDS[track]:
        known = ", ".join(RECORDS[track])
        raise ConfigError(
            f"there is no record {record!r} of {track}", next_step=f"choose of: {known}; or add it to RECORDS"
        )
    values = read_yaml(SETTINGS / f"{track}.yaml")
    for section, keys in RECORDS[track][record].items():
        if forbidden := sorted(set(keys) & set(FROZEN.get(section, ())) if section in FREE else keys):
            raise ConfigError(
                f"a record must not change {', '.join(f'{section}.{key}' for key in forbidden)}",
                where=f"RECORDS[{track!r}][{record!r}]",
                next_step="docs/records.md says what a track fixes",
            )
        values[section] = {**values.get(section, {}), **keys}
    return parse_settings(values, where=f"experiments/tracks/{track}.yaml and {record}")


def prepare(track: str, folder: Path, given: Path | None) -> Path:
    """Build the data of all runs of a track, unless they exist, and return their folder.

    Raises:
        ConfigError: there is no folder to build them from.
        DataError: they differ from the track's data.
    """
    settings, made = settings_of(track, BASELINE), folder / "made"
    missing = [
        stage for stage in TRACKS[track].stages if not (made / stage.removesuffix("-texts") / "manifest.json").exists()
    ]
    if missing:
        made.mkdir(parents=True, exist_ok=True)
        write_workspace(folder, settings, made, settings.pretrain.num_steps, settings.cells.seeds)
        if TRACKS[track].tasks:
            if given is None or not given.is_dir():
                raise ConfigError(f"there is no folder {given}", next_step="give --data, the folder with prose/")
            (folder / "given").unlink(missing_ok=True)
            (folder / "given").symlink_to(given.resolve())
    for stage in missing:
        electra(folder, stage)
    if not (folder / "data").exists():  # data built elsewhere
        (folder / "data").symlink_to(made.resolve())
    if (found := data_digest(made)) != TRACKS[track].data:
        raise DataError(
            f"the data are not those of the track {track}: {found} instead of {TRACKS[track].data}",
            where=str(made / "shards"),
            next_step="compare the input files; if the text stages have changed, the track and its baseline begin anew",
        )
    return made


def data_digest(made: Path) -> str:
    manifest = json.dumps(read_manifest(made / "shards"), sort_keys=True)
    return hashlib.sha256(manifest.encode()).hexdigest()[:12]


# ---- a record's runs


def measure_record(track: str, name: str, seeds: list[int], data: Path, folder: Path, parallel: int) -> Row:
    """Pre-train with every seed, fine-tune the track's tasks, and return the record's row."""
    settings, vocab_size = settings_of(track, name), vocab_size_of(Paths(data.parent))
    flops = training_flops(settings, vocab_size)
    commit = revision()
    with ThreadPoolExecutor(parallel) as pool:
        runs = list(pool.map(partial(measure_seed, track, name, data, folder, commit), seeds))
    needs_data = " --data FOLDER" if TRACKS[track].tasks else ""
    return {
        "track": track,
        "record": name,
        "revision": ", ".join(dict.fromkeys(run.pop("revision") for run in runs)),
        "command": f"python -m experiments.speedrun {track} --record {name} --seeds {' '.join(map(str, seeds))}"
        + needs_data,
        "changes": RECORDS[track][name],
        "steps": settings.pretrain.num_steps,
        "tokens": settings.pretrain.num_steps * settings.pretrain.batch_size * settings.shards.max_length,
        "flops": flops,
        "share_of_baseline": round(flops / training_flops(settings_of(track, BASELINE), vocab_size), 5),
        "machine": measure.machine(),
        "runs": runs,
        "p": p_values(track, runs),
    }


def measure_seed(track: str, name: str, data: Path, folder: Path, commit: str, seed: int) -> Row:
    """Run one seed; return its held-out figures, its tasks' scores, and the time of its training."""
    settings, tasks = settings_of(track, name), TRACKS[track].tasks
    settings = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update={"seed": seed})})
    workspace, steps, seeds = folder / f"{name}-{seed}", settings.pretrain.num_steps, settings.cells.seeds
    paths, note = Paths(workspace), workspace / "revision.txt"
    refuse_another_run(workspace, scaled(settings, steps, seeds), data)
    write_workspace(workspace, settings, data, steps, seeds)
    if not (paths.results / "pretrain.json").exists():
        write_text(note, commit)
    heldout = pretrained(workspace)
    figures: dict[str, Any] = {AUC: round(heldout["disc_auc"], DIGITS[AUC])}
    if tasks:
        figures |= fine_tuned(workspace, tasks, seeds, scratch=False)["tasks"]
    progress = read_json(paths.logs / "pretrain/progress.json")
    tokens = steps * settings.pretrain.batch_size * settings.shards.max_length
    row = {
        "seed": seed,
        **figures,
        "mlm_loss": round(heldout["mlm_loss"], 3),
        "wall_seconds": round(tokens / progress["tokens_per_second"]),
        "processor_seconds": processor_seconds(workspace),
    }
    print(json.dumps({"record": name, **row}), flush=True)
    return {**row, "revision": note.read_text() if note.exists() else commit}


def refuse_another_run(workspace: Path, wanted: Settings, data: Path) -> None:
    """Check that a workspace's model was trained with these settings and data.

    Raises:
        ConfigError: it was trained with others.
    """
    paths = Paths(workspace)
    if not (paths.results / "pretrain.json").exists():
        return
    there = load_settings(workspace)
    is_other = fingerprint(there, paths) != fingerprint(wanted, Paths(data.parent))
    if is_other or (there.finetune != wanted.finetune and any((workspace / "models/finetuned").glob("*"))):
        raise ConfigError(
            f"a run with other {'settings or data' if is_other else 'settings of fine-tuning'} lies there",
            where=str(workspace),
            next_step="remove it, or name another --folder",
        )


def revision() -> str:
    """Return the commit of the code for training and evaluation, marked if the code has changed since."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    code = ("electra", "experiments/*.py", "experiments/tracks")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *code)
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("-dirty" if changed else "")


# ---- wall time


def compare_wall(track: str, name: str, data: Path, folder: Path, steps: int, repeats: int) -> dict[str, Any]:
    """Return the ratio of a record's seconds for all steps to the baseline's, from interleaved steps of both.

    Validations and the first steps are not counted.

    Raises:
        ConfigError: there is nothing to compare, or too few steps.
    """
    if steps < 4 * WARM_UP:
        raise ConfigError(f"{steps} steps are too few to time", next_step=f"give at least {4 * WARM_UP}")
    processor: dict[str, list[float]] = {BASELINE: [], name: []}
    sides = {side: partial(_timed_steps, track, side, data, folder, steps, processor) for side in processor}
    if len(sides) < 2:
        raise ConfigError(f"{name} is the baseline", next_step="name another --record")
    seconds = measure.interleave(sides, repeats, warmups=0)
    return {
        "steps": steps,
        "seconds_over_baseline": measure.ratios(seconds, over=BASELINE)[name],
        "processor_seconds_over_baseline": measure.ratios(processor, over=BASELINE)[name],
        "machine": measure.machine(),
    }


def _timed_steps(
    track: str, name: str, data: Path, folder: Path, steps: int, processor: dict[str, list[float]]
) -> float:
    """Time some steps; return the seconds extrapolated to all steps of a record, and append processor seconds."""
    settings, workspace = settings_of(track, name), folder / f"{name}-wall"
    shutil.rmtree(workspace, ignore_errors=True)  # otherwise the run would resume from an interrupted call's checkpoint
    write_workspace(workspace, settings, data, steps, settings.cells.seeds)
    (seen,) = watched_run(workspace.resolve(), num_processes=1)
    every = load_settings(workspace).pretrain.eval_every
    timed = [step for step in range(WARM_UP, steps - 1) if (step + 1) % every]
    seconds, used = (statistics.fmean(seen[clock][step] for step in timed) for clock in ("steps", "processor"))
    processor[name].append(used * settings.pretrain.num_steps)
    return seconds * settings.pretrain.num_steps


if __name__ == "__main__":
    measure.run(main)
