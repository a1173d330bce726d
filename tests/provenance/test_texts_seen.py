"""`electra trace --data`: counts equal those of the loader's batches, and other shards are refused."""

import json
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electra.__main__ import main
from electra.common.artifacts import read_manifest, write_manifest
from electra.common.corpus_file import read_documents
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.hub.export.pretrained import export_model
from electra.pretrain.data.batches import DataParallel, ExampleDrawer, training_steps
from electra.pretrain.data.dataset import CutExamples
from electra.pretrain.data.masking import permute, places_of
from electra.pretrain.data.seen import Order, TextCounter, times_seen
from electra.text.shards.layout import Shards
from electra.texts_seen import documents_seen, examples_read, find_checkpoint, text_question
from tests.pretrain.test_resume import EVERY_STEP, kill_at
from tests.text_stages import text_settings
from tests.workspace import Workspace

CLS, STEPS = 2, 400  # 3,200 of about 1,500 examples: each at least twice


def trace(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, list[str], str]:
    """Type the command; return its exit code, its lines, and what it said on stderr."""
    monkeypatch.chdir(workspace.root)
    monkeypatch.setattr(sys, "argv", ["electra", "trace", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out.splitlines(), said.err


@pytest.fixture(scope="module")
def run(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run that was killed and resumed, with its milestones and its export."""
    root = tmp_path_factory.mktemp("seen") / "workspace"
    shutil.copytree(prepared.root, root)
    done = Workspace(root).write({"cluster": {"checkpoint_minutes": EVERY_STEP}}, pretrain={"milestones": ["10 steps"]})
    kill_at(done, 12, signal.SIGKILL)
    done.pretrain()
    export_model(done.settings(), done.paths)
    return done


def drawn(workspace: Workspace, steps: int, *, packed: bool, processes: int) -> Counter[bytes]:
    """How often the loader's batches have each example, by its tokens."""
    recipe, train = workspace.settings().pretrain, Shards(workspace.paths.shards, "train")
    found: Counter[bytes] = Counter()
    for rank in range(processes):
        part = DataParallel(rank, processes, 2, pack_examples=packed)
        for batches in training_steps(ExampleDrawer(train, [0, CLS, 3, 4], recipe), part, 0, steps):
            for batch in batches:
                for tokens, real in zip(batch.input_ids_BT.numpy(), batch.mask_BT.numpy(), strict=True):
                    own = tokens[real]
                    for piece in np.split(own, np.flatnonzero(own == CLS)[1:]):
                        found[piece.tobytes()] += 1
    return found


@pytest.mark.parametrize(("packed", "processes"), [(False, 1), (True, 1), (False, 2), (True, 2)])
def test_counts_are_those_of_the_loaders_batches(prepared: Workspace, packed: bool, processes: int) -> None:
    train = Shards(prepared.paths.shards, "train")
    order = Order.of(prepared.settings().pretrain.model_copy(update={"num_steps": STEPS}))
    tokens, spans = train.gather(np.arange(len(train)))
    assert tokens[0, 0] == CLS
    for steps in (1, 24, STEPS):
        times, first, read = examples_read(order, train, steps, 0, len(train))
        mine: Counter[bytes] = Counter()
        for row, (length, _), number in zip(tokens, spans, times, strict=True):
            mine[row[:length].tobytes()] += int(number)
        assert +mine == drawn(prepared, steps, packed=packed, processes=processes)
        assert read.sum() == TextCounter(order, train).after(steps).tokens
        parts = [examples_read(order, train, steps, at, min(at + 400, len(train))) for at in range(0, len(train), 400)]
        np.testing.assert_array_equal(np.concatenate([one[0] for one in parts]), times)
        for example in (3, 700):
            after = next((step for step in range(1, steps + 1) if times_seen(order, train, step)[example]), None)
            assert after is None or after == first[example]


def test_pieces_of_a_length_curriculum_are_counted_where_they_have_text(prepared: Workspace) -> None:
    train = Shards(prepared.paths.shards, "train")
    order, cut = Order(seed=5, batch_size=8, num_steps=300, num_short_steps=250, short_length=8), CutExamples(train, 8)
    recipe = prepared.settings().pretrain.model_copy(update={"seed": 5})
    pieces = Counter[int]()
    gather = cut.gather

    def noted(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pieces.update(rows.tolist())
        return gather(rows)

    cut.gather = noted  # type: ignore[method-assign]
    short = ExampleDrawer(cut, [0, CLS, 3, 4], recipe)
    for _ in training_steps(short, DataParallel(0, 1, 8), 0, 250, short=short, num_short_steps=250):
        pass
    lengths = cut.lengths(np.arange(len(cut)))
    read = np.array([pieces[row] for row in range(len(cut))]) * (lengths > 0)
    times, _, tokens = examples_read(order, train, 250, 0, len(train))
    np.testing.assert_array_equal(times, read.reshape(len(train), -1).max(1))
    np.testing.assert_array_equal(tokens, (read * lengths).reshape(len(train), -1).sum(1))
    later, _, _ = examples_read(order, train, 300, 0, len(train))
    whole = np.bincount(permute_of(range(250 * 8, 300 * 8), len(train)), minlength=len(train))
    np.testing.assert_array_equal(later, times + whole)


def permute_of(positions: range, size: int) -> np.ndarray:
    epochs, places = np.divmod(np.array(positions), size)
    return permute(places, epochs, size, 5)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1000])
def test_places_are_the_inverse_of_the_permutation(size: int) -> None:
    places, epochs = np.arange(size), np.full(size, 3)
    np.testing.assert_array_equal(places_of(permute(places, epochs, size, 9), epochs, size, 9), places)


def test_a_milestone_has_seen_a_prefix_of_what_the_final_weights_have(
    run: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    names = ["models/milestones/6.25", "models/milestones/steps-10", "models/pretrained", "models/export",
             "models/export/discriminator"]  # fmt: skip
    for name in names:
        code, lines, said = trace(run, monkeypatch, capsys, name, "--data", "--all", "--json")
        assert code == 0, said
        found[name] = [json.loads(line) for line in lines]
    assert [found[name][-1]["step"] for name in names] == [2, 10, 24, 24, 24]
    for name in names[3:]:
        assert found[name][:-1] == found["models/pretrained"][:-1]
    last = found["models/pretrained"]
    order, train = Order.of(run.settings().pretrain), Shards(run.paths.shards, "train")
    assert last[-1]["tokens"] == TextCounter(order, train).after(24).tokens and last[-1]["documents"] == len(last) - 1
    assert 0 < last[-1]["seen"] <= len(last) - 1
    for early in names[:2]:
        for one, later in zip(found[early][:-1], last[:-1], strict=True):
            assert one["document"] == later["document"] and one["most"] <= later["most"]
            assert one["tokens"] <= later["tokens"] and (not one["first"] or one["first"] == later["first"])
            assert one["first"] <= found[early][-1]["step"]
            assert later["first"] > found[early][-1]["step"] or (later["first"] == one["first"])


def test_texts_are_answered_for(
    run: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, lines, _ = trace(run, monkeypatch, capsys, "models/milestones/6.25", "--data", "--all", "--json")
    documents = [json.loads(line) for line in lines[:-1]]
    ids = {name: text for file in sorted(run.paths.corpus.glob("*.parquet"))
           for some, texts in read_documents(file) for name, text in zip(some, texts, strict=True)}  # fmt: skip
    seen, unseen = next(d for d in documents if d["most"]), next(d for d in documents if not d["most"])
    (held, *_), _ = next(iter(read_documents(next(run.paths.corpus.glob("heldout-*.parquet")))))
    (tmp_path / "text.txt").write_text(ids[seen["document"]])
    (tmp_path / "lines").write_text(f"{' '.join(ids[held].split())}\n\nwords of no document of any kind\n")
    asked = ["--document", seen["document"], "--document", ids[unseen["document"]], "--document",
             str(tmp_path / "text.txt"), "--seen", str(tmp_path / "lines")]  # fmt: skip
    code, lines, said = trace(run, monkeypatch, capsys, "models/milestones/6.25", *asked, "--json")
    assert code == 0, said
    answers = [one["answer"] for one in json.loads(lines[-1])["answers"]]
    assert answers[0].startswith("seen ") and f"first at step {seen['first']}" in answers[0]
    assert answers[1:] == ["in the corpus, not yet seen at this step", answers[0], "held out", "not in the corpus"]
    code, lines, said = trace(run, monkeypatch, capsys, "models/milestones/6.25", *asked)
    assert code == 0 and f"'{seen['document']}': {answers[0]}" in lines and any("epochs" in line for line in lines)


def test_a_sentence_is_looked_for_as_cleaned_though_it_alone_would_be_dropped(tmp_path: Path) -> None:
    source = {"kind": "files", "name": "a", "paths": ["a.txt"]}
    settings = text_settings(corpus={"sources": [source], "cleaning": [{"kind": "markup"}, {"kind": "gopher"}]})
    asked = "It was <b>raining</b> all day &amp; all night."
    found = text_question(settings, Paths(tmp_path), asked, asked)
    assert found.forms == {asked, "It was raining all day & all night."}


def test_other_shards_other_corpora_and_other_weights_are_refused(
    run: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(run.root, tmp_path / "changed")
    changed = Workspace(tmp_path / "changed")
    changed.write(shards={"seed": 77})
    code, _, said = trace(changed, monkeypatch, capsys, "models/pretrained", "--data")
    assert code == 3 and "not cut from this corpus" in said
    changed.write()
    file = next(changed.paths.shards.glob("train-*.tokens.npy"))
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.write_bytes(content)
    code, _, said = trace(changed, monkeypatch, capsys, "models/pretrained", "--data")
    assert code == 3 and "checksum" in said
    facts = read_manifest(changed.paths.shards)
    write_manifest(changed.paths.shards, **{name: facts[name] for name in facts if name != "files"})
    code, _, said = trace(changed, monkeypatch, capsys, "models/pretrained", "--data")
    assert code == 3 and "not those that the run was trained on" in said and file.name in said
    other = changed.paths.milestones / "50/model.safetensors"
    shutil.copy(other, changed.paths.pretrained / "model.safetensors")
    code, _, said = trace(changed, monkeypatch, capsys, "models/pretrained", "--data")
    assert code == 3 and "not of the run of models/milestones" in said


def test_a_corpus_with_words_in_another_order_is_refused(run: Workspace, tmp_path: Path) -> None:
    shutil.copytree(run.root, tmp_path / "changed")
    changed = Workspace(tmp_path / "changed")
    file = next(changed.paths.corpus.glob("train-*.parquet"))
    table = pq.read_table(file)
    texts = table["text"].to_pylist()
    first, second, rest = texts[0].split(maxsplit=2)  # as many tokens, and examples, as before
    assert first != second
    texts[0] = f"{second} {first} {rest}"
    pq.write_table(table.set_column(table.column_names.index("text"), "text", pa.array(texts)), file)
    facts = read_manifest(changed.paths.corpus)
    write_manifest(changed.paths.corpus, **{name: facts[name] for name in facts if name != "files"})
    with pytest.raises(DataError, match="not cut from this corpus"):
        list(
            documents_seen(changed.settings(), changed.paths, find_checkpoint(changed.paths, changed.paths.pretrained))
        )


def test_folders_are_recognised_by_their_weights(run: Workspace, tmp_path: Path) -> None:
    shutil.copytree(run.paths.milestones / "50", tmp_path / "anything")
    assert find_checkpoint(run.paths, tmp_path / "anything").step == 12
    (tmp_path / "published").mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(run.paths.export / "discriminator" / name, tmp_path / "published")
    assert find_checkpoint(run.paths, tmp_path / "published").name == "final"
