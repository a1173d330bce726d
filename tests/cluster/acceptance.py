"""From a fresh clone through server, worker and deployment to a finished run; dvc.lock is what ``dvc repro`` gives.

``python -m tests.cluster.acceptance [--profile tests|smoke] [--database sqlite|postgresql ...]``. ``tests`` is the
smoke profile with everything made small; ``smoke`` is what ``make run`` runs, and its reference is the ``dvc.lock`` of
the repository.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.prefect_site import Site, clone, postgresql_programs, site, worker

SMALLER = {
    "num_documents: 20000": "num_documents: 400",
    "documents_per_file: 5000": "documents_per_file: 200",
    "held_out_fraction: 0.02": "held_out_fraction: 0.1",
    "vocab_size: 4000": "vocab_size: 600",
    "hidden_size: 128": "hidden_size: 32",
    "num_heads: 4": "num_heads: 2",
    "intermediate_size: 512": "intermediate_size: 64",
    "embedding_size: 128": "embedding_size: 16",
    "num_steps: 1900": "num_steps: 20",
    "warmup_steps: 200": "warmup_steps: 4",
    "eval_every: 475": "eval_every: 10",
    "eval_examples: 512": "eval_examples: 32",
    "train_examples: 2000": "train_examples: 60",
    "dev_examples: 400": "dev_examples: 60",
    "epochs: 3": "epochs: 1",
    "task_epochs: {SQuAD1.1: 3, SQuAD2.0: 3}": "task_epochs: {}",
}


def shrink(workspace: Path) -> None:
    """Make the smoke profile as small as its stages still work with, and only two of its tasks."""
    profile = workspace / "params/smoke.yaml"
    text = profile.read_text()
    for old, new in SMALLER.items():
        assert old in text, f"params/smoke.yaml has no {old!r} any more"
        text = text.replace(old, new)
    profile.write_text(text)
    common = workspace / "params.yaml"
    lines = [
        "  tasks: [CoLA, SQuAD1.1]" if line.startswith("  tasks:") else line for line in common.read_text().splitlines()
    ]
    common.write_text("\n".join(lines) + "\n")


def run_through_deployment(place: Site, workspace: Path) -> None:
    """The commands of docs/cluster.md; the second run has nothing to do and says so."""
    place.run("electra", "cluster", "init", cwd=workspace)
    place.run("prefect", "--no-prompt", "deploy", "--all", cwd=workspace)
    ended = []
    with worker(place, workspace):
        for _ in range(2):
            place.run("prefect", "deployment", "run", "train_encoder/process", "--watch", cwd=workspace)
            run_id = place.last_run("train_encoder")
            assert place.state(run_id) == "COMPLETED", (place.folder / "worker.log").read_text()[-5000:]
            ended.append(set(place.task_states(run_id).values()))
    assert "Completed" in ended[0], ended
    assert ended[1] == {"Skipped"}, ended


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", choices=["tests", "smoke"], default="tests")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], nargs="+", default=["sqlite"])
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="electra-acceptance-"))
    start = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {what}", flush=True)

    original = clone(folder / "original")
    if options.profile == "tests":
        shrink(original)
    lock = original / "dvc.lock"
    if options.profile == "tests":
        with_repro = shutil.copytree(original, folder / "repro")
        Site(folder / "by-hand").run("dvc", "repro", "--quiet", cwd=with_repro)
        lock = with_repro / "dvc.lock"
        tell("dvc repro")
    for database in options.database:
        if database == "postgresql" and not postgresql_programs():
            tell("postgresql: SKIPPED, it is not installed here (apt-get install postgresql)")
            continue
        workspace = shutil.copytree(original, folder / database)
        with site(folder / f"site-{database}", database) as place:
            tell(f"{database}: server is up")
            run_through_deployment(place, workspace)
        assert (workspace / "dvc.lock").read_bytes() == lock.read_bytes(), f"{workspace}/dvc.lock differs from {lock}"
        tell(f"{database}: train_encoder/process has run, dvc.lock is that of dvc repro")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
