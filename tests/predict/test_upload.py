"""`electra publish` against a stand-in on loopback that speaks the hub's protocol."""

import base64
import hashlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, ModelCardData, constants

from electra.__main__ import main
from electra.common.artifacts import building, write_json, write_manifest
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.hub import onnx
from electra.hub.export.pretrained import OWN_PARTS
from electra.hub.publish import SOMETIMES_WRITTEN, plan_uploads, upload_all

TOKEN = "hf_aVerySecretToken"
NAME = "me/electra-books"


class Hub(ThreadingHTTPServer):
    """Repositories as dictionaries of files; ``fail`` maps a part of a path to the status it is answered with."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.large: dict[str, bytes] = {}
        self.fail: dict[str, int] = {}
        self.tokens: set[str | None] = set()
        self.sent: list[str] = []


class Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        hub, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        hub.tokens.add(self.headers.get("Authorization"))
        for part, status in hub.fail.items():
            if part in self.path:
                return self.answer({"error": f"the stand-in fails, {self.headers.get('Authorization')}"}, status)
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if repo in hub.repos:
                return self.answer({"error": "exists", "url": f"{hub.url}/{repo}"}, 409)
            hub.repos[repo], hub.private[repo] = {}, asked.get("private") or asked.get("visibility") == "private"
            return self.answer({"url": f"{hub.url}/{repo}"})
        if self.path == "/api/validate-yaml":
            content = json.loads(body)["content"]
            errors = [] if "license:" in content else [{"message": "no licence"}]
            return self.answer({"errors": errors, "warnings": []}, 400 if errors else 200)
        if "/preupload/" in self.path:
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith((".safetensors", ".onnx")) else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for file in json.loads(body)["files"]
            ]
            return self.answer({"files": modes})
        if self.path.endswith("/info/lfs/objects/batch"):
            objects = []
            for wanted in json.loads(body)["objects"]:
                there = wanted["oid"] in hub.large
                action = {} if there else {"actions": {"upload": {"href": f"{hub.url}/lfs/{wanted['oid']}"}}}
                objects.append({**wanted, **action})
            return self.answer({"transfer": "basic", "objects": objects})
        if "/branch/" in self.path:
            repo, _, branch = self.path.removeprefix("/api/models/").partition("/branch/")
            if f"{repo}@{branch}" in hub.repos:
                return self.answer({"error": "Reference already exists"}, 409)
            hub.repos[f"{repo}@{branch}"] = dict(hub.repos[repo])
            return self.answer({})
        if "/commit/" in self.path:
            repo, _, branch = self.path.removeprefix("/api/models/").partition("/commit/")
            repo = repo if branch == "main" else f"{repo}@{branch}"
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.repos[repo][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "deletedFile":
                    del hub.repos[repo][value["path"]]
                elif line["key"] == "lfsFile":
                    hub.repos[repo][value["path"]] = hub.large[value["oid"]]
            return self.answer({"commitUrl": f"{hub.url}/{repo}/commit/1", "commitOid": "0" * 40})
        return self.answer({"error": f"the stand-in knows no {self.path}"}, 404)

    def do_PUT(self) -> None:
        content, oid = self.rfile.read(int(self.headers["Content-Length"])), self.path.removeprefix("/lfs/")
        assert hashlib.sha256(content).hexdigest() == oid
        self.server.large[oid] = content
        self.server.sent.append(oid)
        self.answer({}, self.server.fail.get("/lfs/", 200))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """Files of a repository at a branch, and none of the other questions that `transformers` asks."""
        repo, _, rest = self.path.removeprefix("/").partition("/resolve/")
        branch, _, name = rest.partition("/")
        content = self.server.repos.get(repo if branch == "main" else f"{repo}@{branch}", {}).get(name)
        self.send_response(404 if content is None else 200)
        if content is None:
            self.send_header("X-Error-Code", "EntryNotFound")
        else:
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", hashlib.sha1(branch.encode()).hexdigest())
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if content and self.command == "GET":
            self.wfile.write(content)

    def answer(self, value: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)  # HF_ENDPOINT, which the library reads when it is imported
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def exported(tmp_path: Path) -> Paths:
    """models/export and one fine-tuned model, as far as their files matter here."""
    paths = Paths(tmp_path)

    def write(folder: Path, text: str) -> None:
        folder.mkdir()
        torch.save({}, folder / "model.safetensors")  # any bytes
        (folder / "config.json").write_text("{}\n")
        data = ModelCardData(library_name="transformers", pipeline_tag="fill-mask", tags=["electra"])
        (folder / "README.md").write_text(f"---\n# license: set it\n{data.to_yaml()}\n---\n# A model\n\n{text}\n")

    with building(paths.export) as scratch:
        for name in ("generator", "discriminator"):
            write(scratch / name, 'load("path/to/discriminator")')
        write_manifest(scratch)
    with building(paths.exported("CoLA-1")) as scratch:
        scratch.rmdir()
        write(scratch, 'load("path/to/this/folder")')
        write_manifest(scratch, task="CoLA")
    write_json(paths.results / "machine.json", {"pretrain": {"processor": "A CPU", "cores": 2, "minutes": 3.0}})
    return paths


@pytest.fixture
def publish(exported: Paths, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the command and returns its exit code."""
    monkeypatch.chdir(exported.root)
    monkeypatch.setattr("electra.hub.finetuned.export_task", lambda paths, task, with_onnx: paths.exported(f"{task}-1"))

    def run(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["electra", "publish", NAME, "--license", "mit", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return run


def test_each_folder_becomes_a_repository_with_its_own_card(hub: Hub, publish: Callable[..., int]) -> None:
    assert publish("--task", "CoLA") == 0
    assert list(hub.repos) == [f"{NAME}-discriminator", f"{NAME}-generator", f"{NAME}-cola"]
    for files in hub.repos.values():
        assert set(files) == {"config.json", "model.safetensors", "README.md"}
    cards = {repo: ModelCard(files["README.md"].decode()) for repo, files in hub.repos.items()}
    assert {card.data.license for card in cards.values()} == {"mit"}
    assert [card.data.base_model for card in cards.values()] == [None, None, f"{NAME}-discriminator"]
    assert f'load("{NAME}-discriminator")' in cards[f"{NAME}-generator"].text
    assert f'load("{NAME}-cola")' in cards[f"{NAME}-cola"].text
    assert "3.0 minutes" in cards[f"{NAME}-discriminator"].text and "A CPU" not in cards[f"{NAME}-cola"].text
    assert hub.tokens == {f"Bearer {TOKEN}"} and not any(hub.private.values())


def test_a_second_run_sends_no_weights_again(hub: Hub, publish: Callable[..., int]) -> None:
    assert publish("--private") == 0 and all(hub.private.values()) and len(hub.sent) >= 1
    sent = list(hub.sent)
    assert publish() == 0 and hub.sent == sent


def test_files_of_an_earlier_upload_that_this_one_lacks_are_deleted(
    hub: Hub, publish: Callable[..., int], exported: Paths
) -> None:
    """A stale graph would be loaded, and stale parts imported over the new weights; files of the user stay."""
    assert publish() == 0
    with building(exported.exported("with graphs")) as scratch:
        (scratch / "onnx").mkdir()
        for name in ("model.onnx", "check.json"):  # int8 was left out
            (scratch / "onnx" / name).write_bytes(b"new")
        (scratch / "README.md").write_text("---\nlicense: mit\n---\n")
        write_manifest(scratch, encoder="discriminator")
    repo = f"{NAME}-discriminator"
    hub.repos[repo] |= dict.fromkeys([*SOMETIMES_WRITTEN, "onnx/of_the_user.onnx"], b"old")
    upload_all(plan_uploads(exported, NAME, "mit", [], with_graphs=exported.exported("with graphs")))
    left = {name: content for name, content in hub.repos[repo].items() if content in (b"old", b"new")}
    assert left == {"onnx/model.onnx": b"new", "onnx/check.json": b"new", "onnx/of_the_user.onnx": b"old"}
    assert publish() == 0
    assert not set(SOMETIMES_WRITTEN) & set(hub.repos[repo])


def test_the_files_that_uploads_may_lack_are_those_that_exports_write() -> None:
    graphs = {f"{onnx.FOLDER}/{name}" for name in (onnx.FP32, onnx.INT8, onnx.FACTS)}
    assert set(SOMETIMES_WRITTEN) == {*graphs, OWN_PARTS}


def test_a_dry_run_prints_files_and_cards_and_sends_nothing(
    hub: Hub, publish: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert publish("--dry-run") == 0
    output = capsys.readouterr().out
    assert f"{NAME}-generator: " in output and "model.safetensors" in output and "license: mit" in output
    assert not hub.repos and not hub.tokens


@pytest.mark.parametrize(
    ("fail", "code", "message"),
    [
        ({"/commit/": 503}, 5, "-discriminator could not be published"),
        ({"-generator/commit/": 500}, 5, f"written before it: http://127.0.0.1:[0-9]+/{NAME}-discriminator"),
        ({"/repos/create": 403}, 2, "does not let this token write"),
        ({"/validate-yaml": 400}, 2, "the hub refuses"),
    ],
    ids=["commit", "second", "rights", "card"],
)
def test_a_failed_upload_says_what_failed_and_never_the_token(
    hub: Hub, publish: Callable[..., int], capfd: pytest.CaptureFixture[str], fail: dict, code: int, message: str
) -> None:
    import re

    hub.fail = fail
    assert publish() == code
    output = "".join(capfd.readouterr())
    assert re.search(message, output), output
    assert TOKEN not in output and "Traceback" not in output


def test_an_unreachable_hub_ends_with_exit_code_5(
    hub: Hub, publish: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    hub.shutdown()
    hub.server_close()
    assert publish() == 5
    assert "check the network and run the same command again" in capfd.readouterr().err


def test_without_a_token_nothing_is_asked(
    hub: Hub,
    publish: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    assert publish() == 2 and not hub.tokens
    assert "there is no token" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["books", "me/a/b", "me/..", "me/a b"])
def test_names_that_are_none_of_the_hubs_are_refused(exported: Paths, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a repository"):
        plan_uploads(exported, name, "mit", [])


def test_a_licence_that_is_none_and_a_changed_file_are_refused(exported: Paths) -> None:
    with pytest.raises(ConfigError, match="no identifier of a licence"):
        plan_uploads(exported, NAME, "All rights reserved", [])
    (exported.export / "generator/config.json").write_text("{1}")
    with pytest.raises(DataError, match="generator/config"):
        plan_uploads(exported, NAME, "mit", [])


def exported_run(paths: Paths, cell: str, task: str, start: str = "pretrained") -> Path:
    with building(paths.exported(cell)) as scratch:
        (scratch / "README.md").write_text("---\ntags: [electra]\n---\n# A model\n")
        write_manifest(scratch, cell=cell, task=task, start=start)
    return paths.exported(cell)


def test_a_run_from_random_weights_has_a_repository_of_its_own_without_a_base_model(exported: Paths) -> None:
    runs = [exported_run(exported, "labels-1", "labels"), exported_run(exported, "labels-1-25", "labels", "25"),
            exported_run(exported, "labels-1-scratch", "labels", "scratch")]  # fmt: skip
    found = {plan.repo: ModelCard(plan.card).data.base_model for plan in plan_uploads(exported, NAME, "mit", runs)[2:]}
    base = f"{NAME}-discriminator"
    assert found == {f"{NAME}-labels": base, f"{NAME}-labels-25": base, f"{NAME}-labels-scratch": None}


@pytest.mark.parametrize("tasks", [["labels", "labels"], ["generator"]], ids=["two seeds", "name of a folder"])
def test_two_models_for_one_repository_are_refused(exported: Paths, tasks: list[str]) -> None:
    runs = [exported_run(exported, f"{task}-{seed}", task) for seed, task in enumerate(tasks)]
    with pytest.raises(ConfigError, match=f"two models would be written to {NAME}-{tasks[0]}[\\s\\S]*OWNER/NAME"):
        plan_uploads(exported, NAME, "mit", runs)
