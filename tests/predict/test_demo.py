"""`electra demo`: contents of the page, refused requests, and that it fetches nothing."""

import html
import re
import shutil
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoModelForMaskedLM, AutoTokenizer, ElectraForPreTraining

from electra.common.errors import ConfigError, InfrastructureError
from electra.common.paths import Paths
from electra.predict import demo as module
from electra.predict.demo import MAX_BODY, Demo, application, listening, load_demo, serve
from electra.results.probe.learned import pieces_of
from tests.predict.test_finetuned_export import PAPERS, Keep, keep  # noqa: F401
from tests.probe.test_scores import MODERN, workspace_of
from tests.workspace import Workspace

CPU = torch.device("cpu")
TEXT = "The robin  sang in [MASK] garden."


@pytest.fixture(scope="module")
def exported(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Paths:
    return workspace_of(prepared, tmp_path_factory.mktemp("demo") / "root")


@pytest.fixture
def shown(exported: Paths) -> Demo:
    return load_demo(exported, None, CPU, False, Path("unused"))


def client(demo: Demo, **options: str) -> TestClient:
    return TestClient(application(demo), base_url="http://127.0.0.1:8765", **options)


def post(demo: Demo, **form: str | list[str]) -> str:
    found = client(demo).post("/", data=form)
    assert found.status_code == 200
    return found.text


def titles(page: str) -> list[float]:
    return [float(number) for number in re.findall(r'title="([\d.]+)"', page)]


def test_each_token_has_the_discriminators_probability(shown: Demo, exported: Paths) -> None:
    """As a plain ``transformers`` script finds it on the exported folder."""
    folder = exported.export / "discriminator"
    batch = AutoTokenizer.from_pretrained(folder)("The robin sang.", return_tensors="pt")
    with torch.no_grad():
        expected = ElectraForPreTraining.from_pretrained(folder)(**batch).logits[0, 1:-1].sigmoid().tolist()
    assert titles(post(shown, text="The robin sang.")) == pytest.approx(expected, abs=6e-4)


def test_masked_tokens_get_the_generators_proposals(shown: Demo, exported: Paths) -> None:
    folder = exported.export / "generator"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXT, return_tensors="pt")
    place = batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        shares = AutoModelForMaskedLM.from_pretrained(folder)(**batch).logits[0, place].softmax(-1)
    best = tokenizer.convert_ids_to_tokens(shares.topk(module.PROPOSALS).indices.tolist())
    page = post(shown, text=TEXT)
    assert [html.unescape(token) for token in re.findall(r"<tr><td>(.*?)</td>", page)] == best
    assert page.count('class="piece mask"') == 1
    assert len(titles(page)) == len(pieces_of(shown.probe, TEXT)) - 1, "no probability of the mask itself"
    other = post(shown, text="The robin sang.", token="1")
    assert "In place of" in other and "chosen" in other
    assert "In place of" not in post(shown, text="The robin sang.", token="99")


def test_the_text_is_shown_as_it_was_written(shown: Demo) -> None:
    for text in (TEXT, "[MASK][MASK] a", "[SEP] is text", "Été  déjà\n[MASK] vu", ""):
        pieces = pieces_of(shown.probe, text)
        assert "".join(piece.before + piece.text for piece in pieces) == text.rstrip()
        assert sum(piece.is_mask for piece in pieces) == text.count("[MASK]")
    assert shown.probe.sep not in [piece.id for piece in pieces_of(shown.probe, "[SEP] is text")]


def test_output_is_escaped(shown: Demo) -> None:
    attack = "<script>alert(1)</script> </textarea><img src=x onerror=y> \"'"
    page = post(shown, text=attack, second=attack, model=[attack])
    assert "<script" not in page and "<img" not in page and "&lt;script" in page


def test_nothing_is_fetched_and_no_script_runs(shown: Demo) -> None:
    found = client(shown).get("/")
    assert found.status_code == 200 and len(titles(found.text)) > 5, "an example is there at first"
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert not re.findall(r"(?:src|href|action)=\"(?!/\"|data:,)", found.text) and "<script" not in found.text
    assert "url(" not in found.text and "@import" not in found.text


@pytest.mark.parametrize(("host", "status"), [("localhost:8765", 200), ("127.0.0.1", 200), ("evil.example", 400)])
def test_a_foreign_host_header_is_refused(shown: Demo, host: str, status: int) -> None:
    """A name that was made to resolve to 127.0.0.1 (DNS rebinding)."""
    assert client(shown).get("/", headers={"Host": host}).status_code == status


def test_large_and_malformed_requests_are_refused(shown: Demo) -> None:
    browser = client(shown)
    assert browser.post("/", content=b"text=" + b"a" * MAX_BODY).status_code == 413
    assert browser.post("/", content=(b"a" * 1000 for _ in range(100))).status_code == 413, "without a length"
    assert browser.post("/", content=b"text=%ff").status_code == 400
    assert browser.post("/", content=b"&".join([b"a=1"] * 200)).status_code == 400
    assert browser.post("/", content=b"text=the+robin&token=-1&token=%F0%9F%98%80").status_code == 200
    assert browser.put("/").status_code == 405 and browser.get("/etc").status_code == 404


def test_fine_tuned_models_answer(exported: Paths, paths: Paths, keep: Keep) -> None:  # noqa: F811
    for task in ("CoLA", "STS-B", "SQuAD2.0", "CoNLL-2003", "SWAG"):
        keep(task, PAPERS)
    for name in ("models/pretrained", "data/tokenizer"):
        shutil.rmtree(paths.root / name, ignore_errors=True)
        shutil.copytree(exported.root / name, paths.root / name)
    demo = load_demo(paths, None, CPU, False, Path("unused"))
    everything = [f"{task}-1" for task in ("CoLA", "STS-B", "SQuAD2.0", "CoNLL-2003", "SWAG")]
    page = post(demo, text="what cat sat", second="the red cat sat on a house", model=everything)
    assert page.count("checked") == 5 and "no_answer_probability" in page and "<th>tag</th>" in page
    assert "SWAG takes a text, and 4 endings as second text, one a line" in page
    assert "STS-B takes two texts" in post(demo, text="one", model=["STS-B-1"])
    assert "<th>choice</th>" in post(demo, text="It", second="is good\nis bad\n\nran\nsat", model=["SWAG-1"])


@pytest.mark.parametrize("parts", [{}, MODERN], ids=["electra", "modern"])
def test_an_exported_folder_is_shown_as_the_weights_it_was_made_of(
    parts: dict, prepared: Workspace, tmp_path: Path
) -> None:
    paths = workspace_of(prepared, tmp_path / "root", **parts)
    ours = post(load_demo(paths, None, CPU, False, tmp_path), text=TEXT)
    for number, folder in enumerate((paths.export, paths.export / "discriminator", paths.export / "generator")):
        theirs = post(load_demo(Paths(tmp_path), folder, CPU, False, tmp_path / str(number)), text=TEXT)
        assert titles(theirs) == pytest.approx(titles(ours), abs=2e-3)
        assert re.findall(r"<tr><td>(.*?)</td>", theirs) == re.findall(r"<tr><td>(.*?)</td>", ours)


@pytest.mark.parametrize("parts", [{}, MODERN], ids=["electra", "modern"])
def test_an_exported_masked_language_model_is_shown_as_its_weights(
    parts: dict, prepared: Workspace, tmp_path: Path
) -> None:
    """What the default profile exports."""
    paths = workspace_of(prepared, tmp_path / "root", "bert", **parts)
    ours = post(load_demo(paths, None, CPU, False, tmp_path), text=TEXT)
    assert "In place of" in ours and not titles(ours)
    for number, folder in enumerate((paths.export, paths.export / "encoder")):
        theirs = post(load_demo(Paths(tmp_path), folder, CPU, False, tmp_path / str(number)), text=TEXT)
        assert re.findall(r"<tr><td>(.*?)</td>", theirs) == re.findall(r"<tr><td>(.*?)</td>", ours)
        assert not titles(theirs)


def test_what_a_folder_lacks_is_not_made_up(exported: Paths, tmp_path: Path) -> None:
    """An import draws a missing generator at random."""
    shutil.copytree(exported.export / "discriminator", tmp_path / "alone")
    shutil.copytree(exported.export / "discriminator", tmp_path / "half/discriminator")
    for number, folder in enumerate(("alone", "half")):
        page = post(load_demo(exported, tmp_path / folder, CPU, False, tmp_path / f"scratch{number}"), text=TEXT)
        assert "In place of" not in page and titles(page)
    with pytest.raises(ConfigError, match="there is no folder"):
        load_demo(exported, tmp_path / "nothing", CPU, False, tmp_path / "s")


def test_it_is_served_on_loopback_and_a_taken_port_is_said(
    shown: Demo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import uvicorn

    servers: list[uvicorn.Server] = []
    make = uvicorn.Server
    monkeypatch.setattr(uvicorn, "Server", lambda config: servers.append(make(config)) or servers[-1])
    sockets = ExitStack()
    thread = threading.Thread(target=serve, args=(shown, sockets.enter_context(listening(0))), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not (servers and servers[0].started) and time.monotonic() < deadline:
        time.sleep(0.01)
    url = re.search(r"http://127\.0\.0\.1:(\d+)/", capsys.readouterr().out)
    assert url
    with urllib.request.urlopen(url[0]) as response:
        assert b"ELECTRA demo" in response.read() and response.headers["X-Content-Type-Options"] == "nosniff"
    with pytest.raises(InfrastructureError, match="cannot be used"), listening(int(url[1])):
        pass
    servers[0].should_exit = True
    thread.join(10)
    assert not thread.is_alive()
    sockets.close()
