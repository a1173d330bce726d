"""The noise record of a profile: standard deviations of figures over A/A runs, which differ only in seeds.

The record (``results/noise/<profile>.json``) is committed; `electra compare` uses it for runs with a single seed.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from electra.common.artifacts import write_json
from electra.common.errors import ConfigError, InfrastructureError
from electra.common.locks import exclusive
from electra.common.paths import Paths
from electra.results.review.compare import PRETRAIN_FIGURES, changes_between, means_by_seed, noise_file, pretrain_figure
from electra.results.review.sides import WORK_TREE, Side, open_side
from electra.results.review.statistics import components

Runner = Callable[[list[str], Path], int]
OF_THE_RECIPE = ("parameters", "data", "code")  # kinds of changes that must not occur within a record


def record_noise(sides: Sequence[Side], paths: Paths) -> Path:
    """Write a profile's noise record from runs that differ only in seeds, processor and machine settings.

    Raises:
        ConfigError: there are fewer than two runs, something else differs or may differ, or two have the same
            pre-trained weights.
    """
    if len(sides) < 2:
        raise ConfigError(
            "measuring noise takes at least two runs",
            next_step="make them: electra noise; or name runs that differ in seeds alone: "
            "electra compare --record-noise A B C",
        )
    for side in sides[1:]:
        changes = changes_between(sides[0], side)
        if changes.unknown:
            raise ConfigError(
                f"{'; '.join(changes.unknown)}; the difference may not be noise alone",
                where=f"{sides[0].name} and {side.name}",
                next_step="name commits or experiments, or folders with their dvc.lock beside results/",
            )
        if kinds := [kind for kind in changes.kinds if kind in OF_THE_RECIPE]:
            raise ConfigError(
                f"{sides[0].name} and {side.name} differ in {', '.join(kinds)}: their difference is not noise alone",
                next_step=f"see what differs: electra compare {sides[0].name} {side.name}",
            )
    encoders: dict[str, str] = {}
    for side in sides:
        weights = side.hash_of("models/pretrained") or f"pretrain.seed {side.settings.get('pretrain.seed')}"
        if weights in encoders:
            raise ConfigError(
                f"{encoders[weights]} and {side.name} have the same pre-trained weights: "
                "their differences have no noise of pre-training",
                next_step="name runs that were pre-trained with different seeds: electra runs lists them",
            )
        encoders[weights] = side.name
    shared = [task for task in sides[0].tasks if all(task in side.tasks for side in sides)]
    figures = {task: components([list(side.values(task).values()) for side in sides]) for task in shared}
    if shared:
        figures["mean"] = components([means_by_seed(side, shared) for side in sides])
    for key in PRETRAIN_FIGURES:
        values = [pretrain_figure(side, key) for side in sides]
        if len(known := [value for value in values if value is not None]) == len(sides):
            figures[key] = components([[value] for value in known])
    file = paths.root / noise_file(sides[0].profile)
    file.parent.mkdir(parents=True, exist_ok=True)
    rounded = {name: {k: round(v, 4) for k, v in asdict(parts).items()} for name, parts in figures.items()}
    write_json(file, {"runs": [side.revision or side.name for side in sides], "figures": rounded})
    return file


def _dvc(command: list[str], root: Path) -> int:
    folder = str(Path(sys.executable).parent)  # folder of the `electra` command, which the stages call
    environment = {**os.environ, "PATH": os.pathsep.join([folder, os.environ.get("PATH", "")])}
    return subprocess.run([sys.executable, "-m", "dvc", *command], cwd=root, env=environment, check=False).returncode


def measure_noise(paths: Paths, runs: int, seeds: int, run: Runner = _dvc) -> Path:
    """Run the settings of the work tree with ``runs`` pre-training seeds, each with ``seeds`` fine-tuning seeds.

    Each run is a DVC experiment, ``noise-<profile>-<seed>``, in a temporary folder: the work tree is not changed,
    shared stages come from DVC's cache, and experiments that already exist are not repeated.

    Raises:
        ConfigError: fewer than two runs, or there are no settings here.
        InfrastructureError: a run failed, or another process is measuring the same profile.
    """
    here = Side(WORK_TREE, paths.root)
    if runs < 2 or not here.profile:
        raise ConfigError(
            "measuring noise takes at least two runs, in the folder of params.yaml", where=str(paths.root)
        )
    chosen = list(range(1, seeds + 1))
    names = []
    with exclusive(paths.root / noise_file(here.profile)):
        for seed in range(1, runs + 1):
            name = f"noise-{here.profile}-{seed}"
            names.append(name)
            print(f"[{seed}/{runs}] {name}: pretrain.seed {seed}, cells.seeds {chosen}", flush=True)
            if _is_made(name, here, seed, chosen):
                print("  exists already: skipped", flush=True)
                continue
            settings = [f"params/{here.profile}.yaml:pretrain.seed={seed}", f"params.yaml:cells.seeds={chosen}"]
            arguments = [part for setting in settings for part in ("-S", setting.replace(" ", ""))]
            if _made(name, here.folder):
                run(["exp", "remove", name], here.folder)
            if code := run(["exp", "run", "--temp", "--name", name, *arguments, "evaluate"], here.folder):
                raise InfrastructureError(
                    f"the run {name} ended with exit code {code}",
                    next_step="fix the cause given above and run the command again: finished stages are not repeated",
                )
        return record_noise([open_side(name, paths.root) for name in names], paths)


def _made(name: str, root: Path) -> Side | None:
    try:
        return open_side(name, root)
    except ConfigError:
        return None


def _is_made(name: str, here: Side, seed: int, seeds: list[int]) -> bool:
    """Return True if the experiment exists with these settings and with the data and code of the work tree's lock."""
    side = _made(name, here.folder)
    if side is None or any(kind in OF_THE_RECIPE for kind in changes_between(here, side).kinds):
        return False
    found = side.settings.get("pretrain.seed"), side.settings.get("cells.seeds")
    return found == (seed, seeds) and not any(stage.startswith(("pretrain", "finetune@")) for stage in side.stale())
