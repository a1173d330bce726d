"""Time of the pipeline without training, and memory of its text stages as the corpus grows.

    python -m benchmarks.pipeline --text path/to/text.txt

- `electra --help`, compared with starting Python alone;
- `dvc repro` with nothing to do: on a copy of the project with placeholders as outputs, committed to DVC (graph, code
  dependencies and settings are those of the project), or, with --project, on a workspace;
- peak memory of the text stages (sampled over the process tree; shared pages count for each process) on a corpus of 1,
  4 and 16 times --bytes. A shorter text is repeated, with a change in each document;
- with --input-files 10000: `dvc repro` with nothing to do on a project whose corpus has this number of files, compared
  with the project itself; the stage `inputs` with unchanged files; and the output of `dvc status` when one file is
  touched, changed, added or removed;
- with --smoke: `dvc repro` from scratch on a copy of the project, seconds by stage (takes minutes and both cores).
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks import measure
from benchmarks.workspace import ROOT, copy_text, files_source, stage, write_workspace
from electra.common.errors import InfrastructureError

STAGES = ("corpus", "validate-corpus", "tokenizer", "shards", "validate-shards")
PROJECT = ("dvc.yaml", "params.yaml", "params", "electra", "flows", ".dvcignore")
SAMPLE_SECONDS = 0.02
RUNNING = re.compile(r"Running stage '([^']+)'")


def main() -> None:
    parser = measure.argument_parser(__doc__, "pipeline")
    parser.add_argument(
        "--text", type=Path, help="documents separated by blank lines; by default no memory is measured"
    )
    parser.add_argument("--bytes", type=int, default=8_000_000, help="size of the smallest corpus")
    parser.add_argument("--factors", type=int, nargs="+", default=[1, 4, 16], help="sizes of the corpus")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--project", type=Path, help="a workspace with nothing to do")
    parser.add_argument("--input-files", type=int, help="number of files in the corpus of a project with nothing to do")
    parser.add_argument("--smoke", action="store_true", help="run the whole smoke profile once")
    options = parser.parse_args()
    measure.device_of(options)
    result: dict[str, Any] = {"machine": measure.machine(), "seconds": measure_commands(options)}
    if options.text:
        result["memory"] = measure_memory(options)
    if options.input_files:
        result["input_files"] = measure_inputs(options.input_files, options.repeats)
    if options.smoke:
        result["smoke_seconds_by_stage"] = time_smoke()
    measure.finish(options, result, as_table(result))


def measure_commands(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # DVC's daemon may still write there
        project = options.project or finished_project(Path(name))
        sides = {
            "python alone": partial(_call, ROOT, "-c", "pass"),
            "electra --help": partial(_call, ROOT, "-m", "electra", "--help"),
            "dvc repro, nothing to do": partial(_repro, project),
        }
        return {name: measure.summary(taken) for name, taken in measure.interleave(sides, options.repeats).items()}


def _call(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)


def _repro(project: Path) -> None:
    done = _dvc(project, "repro")
    if "Data and pipelines are up to date" not in done:
        raise InfrastructureError("dvc repro had something to do", where=str(project), next_step="run: dvc repro")


def _dvc(project: Path, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "dvc", *arguments], cwd=project, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def copy_project(folder: Path) -> Path:
    """Copy the project's code and settings, without git and without outputs."""
    for name in PROJECT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, folder / name)
    _dvc(folder, "init", "--quiet", "--no-scm")
    shutil.copyfile(ROOT / ".dvc/config", folder / ".dvc/config")
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    return folder


def measure_inputs(num_files: int, repeats: int) -> dict[str, Any]:
    """Return wall-clock and processor seconds with nothing to do, and the changes that `dvc status` reports.

    Raises:
        InfrastructureError: DVC misses a change, or reports one where there is none.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        own = finished_project(Path(name, "own"))
        project = finished_project(Path(name, "files"), num_files)
        texts = project / "texts"
        first, last = texts / "0.txt", texts / f"{num_files - 1}.txt"
        content = first.read_text()
        repro: dict[str, Callable[[], None]] = {
            "dvc repro, nothing to do, no input files": partial(_repro, own),
            f"dvc repro, nothing to do, {num_files:,} input files": partial(_repro, project),
        }
        look: dict[str, Callable[[], None]] = {
            f"electra inputs, {num_files:,} files as they were": partial(_call, project, "-m", "electra", "inputs")
        }
        commands = _with_processor_time(repro, repeats) | _with_processor_time(look, repeats)
        _repro(project)  # the bytes are the same as before
        noticed = {"unchanged": _changed_inputs(project)}
        os.utime(first)
        noticed["touched"] = _changed_inputs(project)
        first.write_text(f"{content}!")
        noticed["changed"] = _changed_inputs(project)
        first.write_text(content)
        (texts / "new.txt").write_text("new")
        noticed["added"] = _changed_inputs(project)
        (texts / "new.txt").unlink()
        last.unlink()
        noticed["removed"] = _changed_inputs(project)
        if noticed != {"unchanged": "", "touched": "", **dict.fromkeys(("changed", "added", "removed"), "texts")}:
            raise InfrastructureError(f"`dvc status` noticed {noticed}", where=str(project))
        load = round(os.getloadavg()[1], 1)  # of the last five minutes: other programs, and about 1 for this benchmark
        return {"files": num_files, "noticed": noticed, "commands": commands, "load": load}


def _with_processor_time(sides: dict[str, Callable[[], None]], repeats: int) -> dict[str, Any]:
    used: dict[str, list[float]] = {name: [] for name in sides}

    def counted(name: str) -> None:
        before = _children_seconds()
        sides[name]()
        used[name].append(_children_seconds() - before)

    calls: dict[str, measure.Side] = {name: partial(counted, name) for name in sides}
    taken = measure.interleave(calls, repeats)
    return {
        name: {
            "seconds": measure.summary(taken[name]),
            "seconds_of_processor_time": measure.summary(used[name][1:]),  # the first call warmed up
        }
        for name in sides
    }


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _changed_inputs(project: Path) -> str:
    """Return the external file or folder that DVC reports as changed for the stage ``inputs``."""
    found = json.loads(_dvc(project, "status", "--json")).get("inputs", [])
    return " ".join(name for entry in found for name in entry.get("changed deps", {}))


def finished_project(folder: Path, num_inputs: int = 0) -> Path:
    """Copy the project so that DVC considers every stage up to date.

    Args:
        num_inputs: number of files of the corpus; 0 for the project's corpus.
    """
    folder.mkdir(exist_ok=True)
    copy_project(folder)
    if num_inputs:
        (folder / "texts").mkdir()
        for number in range(num_inputs):
            (folder / f"texts/{number}.txt").write_text(f"text {number}\n")
        source = {"kind": "files", "name": "texts", "paths": ["texts/*.txt"]}
        profile = folder / "params/books.yaml"
        values = yaml.safe_load(profile.read_text())
        profile.write_text(yaml.safe_dump({**values, "corpus": {**values["corpus"], "sources": [source]}}))
        _call(folder, "-m", "electra", "inputs")
    from dvc.repo import Repo

    with Repo(str(folder)) as repo:
        files = [Path(file.fs_path) for file in (*repo.index.outs, *repo.index.deps)]
    for path in (path for path in files if not path.exists()):
        placeholder = path if path.suffix else path / "manifest.json"
        placeholder.parent.mkdir(parents=True, exist_ok=True)
        placeholder.write_text("{}\n")
    _dvc(folder, "commit", "--force", "--quiet")
    return folder


def measure_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Return the peak memory and seconds of each stage, by size of the corpus."""
    found: dict[str, Any] = {}
    for factor in options.factors:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            size = copy_text(options.text, folder / "text.txt", factor * options.bytes)
            sources = [files_source(folder / "text.txt")]
            # several files at every size: a single file is processed without worker processes
            changes = {"sources": sources, "held_out_fraction": 0.03, "documents_per_file": 5, "decontamination": None}
            write_workspace(folder, "tiny", corpus=changes)
            for command in options.stages:
                peak, seconds = watch_memory(folder, command)
                entry = {"text_bytes": size, "peak_bytes": peak, "seconds": round(seconds, 2)}
                found.setdefault(command, {})[f"{factor}x"] = entry
                print(f"{factor}x, {command}: {peak / 2**20:,.0f} MiB, {seconds:.1f} s", file=sys.stderr, flush=True)
    return found


def watch_memory(folder: Path, command: str) -> tuple[int, float]:
    """Run a stage; return the peak memory of its process tree in bytes, and its seconds."""
    begin, peak = time.perf_counter(), 0
    process = stage(folder, command, PYTHONUNBUFFERED="1")
    output: list[str] = []
    reader = threading.Thread(target=lambda: output.append(process.stdout.read() if process.stdout else ""))
    reader.start()
    tree = psutil.Process(process.pid)
    while process.poll() is None:
        peak = max(peak, _tree_bytes(tree))
        time.sleep(SAMPLE_SECONDS)
    reader.join()
    if process.returncode:
        raise InfrastructureError(f"electra {command} ended with {process.returncode}:\n{output[0][-2000:]}")
    return peak, time.perf_counter() - begin


def _tree_bytes(tree: psutil.Process) -> int:
    total = 0
    try:
        members = [tree, *tree.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in members:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def time_smoke() -> dict[str, float]:
    """Return the seconds of each stage of the smoke profile, and their sum."""
    with tempfile.TemporaryDirectory() as name:
        project = copy_project(Path(name))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro"],
            cwd=project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        begin = time.perf_counter()
        starts: list[tuple[str, float]] = []
        for line in process.stdout or ():
            if started := RUNNING.search(line):
                starts.append((started[1], time.perf_counter()))
        if process.wait():
            raise InfrastructureError(f"dvc repro ended with {process.returncode}", next_step="run: make run")
        end = time.perf_counter()
    ends = [at for _, at in starts[1:]] + [end]
    seconds = {name: round(after - at, 1) for (name, at), after in zip(starts, ends, strict=True)}
    return {**seconds, "in all": round(end - begin, 1)}


def as_table(result: dict[str, Any]) -> str:
    rows = [[name, measure.spread(found, ".2f")] for name, found in result["seconds"].items()]
    tables = [measure.table(["command", "seconds, median (min - max)"], rows)]
    if memory := result.get("memory"):
        sizes = list(next(iter(memory.values())))
        rows = [
            [name, *(f"{by[size]['peak_bytes'] / 2**20:,.0f} ({by[size]['seconds']:.1f} s)" for size in sizes)]
            for name, by in memory.items()
        ]
        tables.append(measure.table(["peak MiB (seconds)", *sizes], rows))
    if inputs := result.get("input_files"):
        rows = [
            [name, *(measure.spread(found[of], ".2f") for of in ("seconds_of_processor_time", "seconds"))]
            for name, found in inputs["commands"].items()
        ]
        tables.append(measure.table(["command", "seconds of processor time", "seconds"], rows))
    if smoke := result.get("smoke_seconds_by_stage"):
        tables.append(measure.table(["stage", "seconds"], [[name, f"{taken:.1f}"] for name, taken in smoke.items()]))
    return "\n\n".join(tables)


if __name__ == "__main__":
    measure.run(main)
