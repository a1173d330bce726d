"""From a fresh clone through server, worker and deployment to a finished run; dvc.lock is what ``dvc repro`` gives.

On the way: automations and their notifications, events, assets, a schedule, a trigger, an image for Kubernetes.

``python -m tests.cluster.acceptance [--profile tests|books] [--database sqlite|postgresql ...]``. ``tests`` is the
default profile with everything made small; ``books`` is what ``make run`` runs, and its reference is the ``dvc.lock``
of the repository.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.prefect_site import Site, clone, postgresql_programs, site, wait_until, worker

SMALLER: dict[str, dict[str, Any]] = {
    "tokenizer": {"vocab_size": 600},
    "model": {"hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "embedding_size": 16},
    # too short to learn anything: collapse alarms are raised
    "pretrain": {"num_steps": 20, "warmup_steps": 4, "eval_every": 10, "eval_examples": 32, "alarm_after": 10},
    "finetune": {
        "epochs": 1,
        "task_epochs": {},
        "task_learning_rate": {},
        "task_max_train_examples": {},
        "max_train_examples": 60,
    },
}
BOOKS, FEWER_BOOKS = "data/books/189*.txt.xz", "data/books/189[0-4]*.txt.xz"
TASKS = ["ewt-genre", "SQuAD1.1"]


def shrink(workspace: Path) -> None:
    """Make the default profile as small as its stages still work with, and only two of its tasks."""
    profile = workspace / "params/books.yaml"
    values = yaml.safe_load(profile.read_text(encoding="utf-8"))
    for section, changes in SMALLER.items():
        assert changes.keys() <= values[section].keys(), f"{profile}: {section} lacks a key of {list(changes)}"
        values[section] |= changes
    values["corpus"]["sources"][0]["paths"] = [BOOKS]
    profile.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    common = workspace / "params.yaml"
    text = re.sub(r"^  tasks: \[.*?\]", f"  tasks: [{', '.join(TASKS)}]", common.read_text(), flags=re.MULTILINE)
    common.write_text(re.sub(r"^  seeds: \[.*?\]", "  seeds: [1]", text, flags=re.MULTILINE))


SAVE_BLOCK = """
from prefect.blocks.notifications import CustomWebhookNotificationBlock
form = {"subject": "{{subject}}", "body": "{{body}}"}
CustomWebhookNotificationBlock(name="test", url="http://127.0.0.1:PORT/", json_data=form).save("test")
"""


@contextmanager
def receiver() -> Iterator[tuple[int, list[dict[str, str]]]]:
    """A web server on a loopback port, and the notifications that were posted to it."""
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, received
        server.shutdown()


def prepare(place: Site, workspace: Path, port: int) -> None:
    """Automations with a notification block, and deployments: those that start by themselves are off."""
    place.run("electra", "cluster", "init", cwd=workspace)
    assert set(automations(place)) == {"Crash zombie flows"}, "without a block there is nothing to notify with"
    place.run(sys.executable, "-c", SAVE_BLOCK.replace("PORT", str(port)), cwd=workspace)
    place.run("prefect", "variable", "set", "electra_notify", "custom-webhook/test", cwd=workspace)
    for _ in range(2):
        place.run("electra", "cluster", "init", cwd=workspace)
    place.run("prefect", "--no-prompt", "deploy", "--all", cwd=workspace)
    assert automations(place) == {
        "Crash zombie flows": True,
        "Notify of failed runs": True,
        "Notify of collapse alarms": True,
        "Retrain when the texts change": False,
    }
    (nightly,) = place.get("/deployments/name/prepare_data/process")["schedules"]
    assert (nightly["slug"], nightly["schedule"]["cron"], nightly["active"]) == ("nightly", "0 3 * * *", False)


def automations(place: Site) -> dict[str, bool]:
    """The automations of the server, and whether each is enabled."""
    return {found["name"]: found["enabled"] for found in place.post("/automations/filter", {})}


def run_through_deployment(place: Site, workspace: Path, received: list[dict[str, str]], is_small: bool) -> None:
    """The commands of docs/cluster.md; the second run has nothing to do and says so, the third is refused."""
    ended, names, seconds = [], [], 0.0
    command = ["prefect", "deployment", "run", "train_encoder/process", "--watch"]
    with worker(place, workspace):
        for _ in range(2):
            start = time.monotonic()
            place.run(*command, cwd=workspace)
            seconds = time.monotonic() - start
            run_id = place.last_run("train_encoder")
            assert place.state(run_id) == "COMPLETED", (place.folder / "worker.log").read_text()[-5000:]
            ended.append(set(place.task_states(run_id).values()))
            names.append(place.get(f"/flow_runs/{run_id}")["state"]["name"])
        place.run(*command, "--param", 'workspace={"publish": "x"}', cwd=workspace, expect=1)
    print(f"{seconds:6.0f} s  of these for a run with nothing to do (load {os.getloadavg()[0]:.1f})", flush=True)
    assert "Completed" in ended[0], ended
    assert (names, ended[1]) == (["Completed", "Skipped"], set()), (names, ended)
    wait_until(lambda: any("Failed" in found["subject"] for found in received), 60, "a notification of the failure")
    if is_small:
        (alarm, *_) = events(place, "electra.pretrain.alarm")
        alarms = [found for found in received if alarm["payload"]["alarm"] in found["subject"]]
        assert alarms and alarm["payload"]["reason"] in alarms[0]["body"], received
        assert alarm["payload"]["step"] == 10 and alarm["payload"]["run"].startswith("books-"), alarm


def events(place: Site, name: str) -> list[dict[str, Any]]:
    """Events of this name or with this prefix, the newest first."""
    body = {"event": {"prefix": [name]}, "occurred": {"since": "2020-01-01T00:00:00Z"}}
    return place.post("/events/filter", {"filter": body, "limit": 50})["events"]


def check_lineage(place: Site, workspace: Path) -> None:
    """Each asset was made once, from those that it is made from; its checksum is that of dvc.lock."""
    made = events(place, "prefect.asset.materialization.succeeded")
    assets = [Path(event["resource"]["prefect.resource.id"]).name for event in made]
    sources = [
        {
            Path(found["prefect.resource.id"]).name
            for found in event["related"]
            if found["prefect.resource.role"] == "asset"
        }
        for event in made
    ]
    assert len(assets) == 5 and dict(zip(assets, sources, strict=True)) == {
        "tasks": set(),
        "corpus": {"tasks"},
        "shards": {"corpus"},
        "encoder": {"corpus", "shards"},
        "score-card": {"corpus", "encoder", "shards", "tasks"},
    }, made
    stages = yaml.safe_load((workspace / "dvc.lock").read_text())["stages"]
    (shards,) = [event["payload"]["data/shards"] for event in made if "data/shards" in event["payload"]]
    assert shards["md5"] == stages["shards"]["outs"][0]["md5"], shards


def retrain_on_changed_texts(place: Site, workspace: Path) -> None:
    """Other texts, then `prepare_data`: the trigger of prefect.yaml starts a run of the deployment."""
    place.run("prefect", "automation", "resume", "Retrain when the texts change", cwd=workspace)
    profile = workspace / "params/books.yaml"
    profile.write_text(profile.read_text().replace(BOOKS, FEWER_BOOKS))
    place.run(sys.executable, "-c", "from flows.pipeline import prepare_data; prepare_data()", cwd=workspace)
    wait_until(lambda: events(place, "electra.texts.changed"), 60, "the event of changed texts")
    (changed,) = events(place, "electra.texts.changed")
    assert "data/shards" in changed["payload"]["changed"], changed
    scheduled = {
        "flows": {"name": {"any_": ["train_encoder"]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
    }
    wait_until(lambda: place.post("/flow_runs/filter", scheduled), 60, "the trigger to start a run")


def deploy_with_image(place: Site, workspace: Path) -> None:
    """The deployments of Kubernetes, with a `docker` that only writes down what it is asked for."""
    docker = place.folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\necho "$@" >> {place.folder}/docker.log\n')
    docker.chmod(0o755)
    place.environment["PATH"] = f"{docker.parent}{os.pathsep}{place.environment['PATH']}"
    image, repository = "registry.example.org/electra:1", "https://git.example.org/me/encoder.git"
    place.run("prefect", "variable", "set", "electra_image", image, cwd=workspace)
    place.run("prefect", "variable", "set", "electra_repository", repository, cwd=workspace)
    place.run("prefect", "--no-prompt", "deploy", "--prefect-file", "prefect-kubernetes.yaml", "--all", cwd=workspace)
    for flow in ("train_encoder", "prepare_data", "pretrain", "evaluate", "sweep"):
        deployment = place.get(f"/deployments/name/{flow}/kubernetes")
        assert deployment["job_variables"]["image"] == image
        assert deployment["parameters"]["workspace"]["repository"] == repository
    assert (place.folder / "docker.log").read_text() == f"build --tag {image} .\npush {image}\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", choices=["tests", "books"], default="tests")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], nargs="+", default=["sqlite"])
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="electra-acceptance-"))
    start = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {what}", flush=True)

    is_small = options.profile == "tests"
    original = clone(folder / "original")
    if is_small:
        shrink(original)
    lock = original / "dvc.lock"
    if is_small:
        with_repro = shutil.copytree(original, folder / "repro")
        Site(folder / "by-hand").run("dvc", "repro", "--quiet", cwd=with_repro)
        lock = with_repro / "dvc.lock"
        tell("dvc repro")
    for database in options.database:
        if database == "postgresql" and not postgresql_programs():
            tell("postgresql: SKIPPED, it is not installed here (apt-get install postgresql)")
            continue
        workspace = shutil.copytree(original, folder / database)
        with site(folder / f"site-{database}", database) as place, receiver() as (port, received):
            tell(f"{database}: server is up")
            prepare(place, workspace, port)
            tell(f"{database}: automations and deployments are as in the files")
            run_through_deployment(place, workspace, received, is_small)
            assert (workspace / "dvc.lock").read_bytes() == lock.read_bytes(), f"{workspace}/dvc.lock is not {lock}"
            tell(f"{database}: train_encoder/process has run, dvc.lock is that of dvc repro")
            check_lineage(place, workspace)
            if is_small and database == options.database[0]:
                retrain_on_changed_texts(place, workspace)
                deploy_with_image(place, workspace)
                tell(f"{database}: other texts start a run; an image is built and pushed for Kubernetes")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
