"""`electra score`: the score of a line, and the end of the command."""

from pathlib import Path

import pytest
import torch
from tokenizers import BertWordPieceTokenizer

from electra import __main__ as cli
from electra.common.artifacts import write_manifest
from electra.common.errors import DataError
from electra.common.lines import MAX_BATCH_CHARS
from electra.common.paths import Paths
from electra.config import Cluster, Method
from electra.model.pretrained import save_pretrained
from electra.objectives.base import build_objective
from electra.objectives.electric import Electric
from electra.objectives.saved import load_objective
from electra.predict.pseudo_likelihood import _parts, score_lines
from tests.fixtures import LABELLED, exchange_two_entries
from tests.small_tasks import VOCAB, make_settings

CPU = torch.device("cpu")


def write_model(paths: Paths, objective: str) -> None:
    paths.tokenizer.mkdir(parents=True)
    (paths.root / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    tokenizer = BertWordPieceTokenizer(str(paths.root / "vocab.txt"), lowercase=True)
    tokenizer.save(str(paths.tokenizer / "tokenizer.json"))
    write_manifest(paths.tokenizer)
    settings, method = make_settings(LABELLED, ["CoLA"]), Method(objective=objective)
    model = build_objective(settings.model, len(VOCAB), 4, method).initialize(0.3, seed=1)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    save_pretrained(paths.pretrained, weights, settings.model, len(VOCAB), paths.tokenizer, method)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A model for 64 tokens."""
    write_model(Paths(tmp_path), "electric")
    return Paths(tmp_path)


def scored(paths: Paths, lines: list[str], *, bf16: bool = False) -> list[tuple[str, float, int]]:
    return list(score_lines(paths, lines, CPU, bf16))


def energies(paths: Paths, words: str) -> list[float]:
    """Log-likelihoods of each wordpiece of a text that fits."""
    model = load_objective(paths.pretrained)
    assert isinstance(model, Electric)
    ids = torch.tensor([[2, *(VOCAB.index(word) for word in words.split()), 3]])
    with torch.no_grad():
        return (-model.energies(ids, torch.zeros_like(ids), torch.ones_like(ids).bool()))[0, 1:-1].tolist()


def test_a_text_is_scored_by_the_energies_of_its_wordpieces(paths: Paths) -> None:
    lines = ["the cat sat on the red house", "a dog", "", "mary ran in the park"]
    found = scored(paths, [line + "\r\n" for line in lines])
    assert [(text, number) for text, _, number in found] == [(line, len(line.split())) for line in lines]
    for text, value, _ in found:
        assert value == pytest.approx(sum(energies(paths, text)) if text else 0, abs=1e-4)


def test_a_text_longer_than_the_model_is_scored_whole_in_parts(paths: Paths) -> None:
    words = [VOCAB[5 + (7 * number) % 28] for number in range(150)]  # 62 fit beside [CLS] and [SEP]
    text = " ".join(words)
    ((_, value, number),) = scored(paths, [text])
    assert number == 150
    expected = 0.0
    for start, first, last in [(0, 0, 46), (31, 46, 77), (62, 77, 106), (88, 106, 150)]:
        part = energies(paths, " ".join(words[start : start + 62]))
        expected += sum(part[first - start : last - start])
    assert value == pytest.approx(expected, abs=1e-3)
    both = scored(paths, ["the cat", text, "a dog"])
    assert [number for _, _, number in both] == [2, 150, 2]
    assert both[1][1] == pytest.approx(value, abs=1e-3)


def test_weights_of_another_tokenizer_score_nothing(paths: Paths) -> None:
    exchange_two_entries(paths.tokenizer)
    with pytest.raises(DataError, match="pre-trained with another tokenizer"):
        scored(paths, ["the cat"])


@pytest.mark.parametrize("room", [1, 2, 7, 62])
def test_parts_score_every_wordpiece_once_with_context_on_both_sides(room: int) -> None:
    for length in range(3 * room + 3):
        ids = list(range(length))
        parts = list(_parts(5, ids, room))
        assert [i for part in parts for i in part.ids[part.first : part.last]] == ids
        for part in parts:
            assert part.text == 5 and len(part.ids) == min(room, length)
            before, after = part.ids[: part.first], part.ids[part.last :]
            assert not before or len(before) >= room // 4
            assert not after or len(after) >= room // 4


def test_special_tokens_in_a_text_are_text(paths: Paths) -> None:
    ((_, value, number),) = scored(paths, ["the [SEP]"])
    assert number == 6  # of the, [, s, ##e, ##p and ]
    assert value == pytest.approx(sum(energies(paths, "the [UNK] s ##e ##p [UNK]")), abs=1e-3)


def test_texts_are_read_in_small_batches_however_long_they_are(paths: Paths) -> None:
    taken: list[int] = []
    lines = (" " * (MAX_BATCH_CHARS // 4 * (taken.append(number) or 1)) for number in range(1000))
    next(score_lines(paths, lines, CPU, False))
    assert len(taken) == 4


def test_matrix_products_in_bf16_give_nearly_the_same(paths: Paths) -> None:
    exact, rounded = (scored(paths, ["the cat sat on the red house"], bf16=bf16)[0][1] for bf16 in (False, True))
    assert rounded == pytest.approx(exact, abs=1)
    assert rounded != exact


def run(paths: Paths, monkeypatch: pytest.MonkeyPatch, *arguments: str, device: str = "cpu") -> int:
    monkeypatch.chdir(paths.root)
    monkeypatch.setattr(cli.tools, "cluster_settings", lambda: Cluster(device=device, precision="fp32"))
    monkeypatch.setattr("sys.argv", ["electra", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_command_prints_score_number_and_text(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (paths.root / "texts.txt").write_text("\ufeffthe cat\na dog\tsat\n")
    assert run(paths, monkeypatch, "score", "texts.txt") == 0
    lines = [line.split("\t", 2) for line in capsys.readouterr().out.splitlines()]
    assert [(number, text) for _, number, text in lines] == [("2", "the cat"), ("3", "a dog\tsat")]
    assert float(lines[0][0]) == pytest.approx(sum(energies(paths, "the cat")), abs=1e-4)


BAD = {  # name: content, what is said
    "folder": (None, "cannot be read: Is a directory"),
    "latin.txt": (b"the cat\ncaf\xe9\n", "not UTF-8 text: byte 0xe9 at byte 3 of the line\n  where: latin.txt:2"),
    "long.txt": (b"the cat\n" + b"x" * (4 << 20) + b"\n", "a line of more than 4 MiB\n  where: long.txt:2"),
}


def test_a_missing_file_is_a_mistake_of_the_command_line(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(paths, monkeypatch, "score", "missing.txt") == 2
    assert "missing.txt" in capsys.readouterr().err


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_scored_ends_with_3_and_a_message(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    content, message = BAD[name]
    (paths.root / "folder").mkdir()
    if content:
        (paths.root / name).write_bytes(content)
    assert run(paths, monkeypatch, "score", name) == 3
    assert message in capsys.readouterr().err


def test_a_model_of_another_method_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = Paths(tmp_path)
    write_model(paths, "electra")
    (paths.root / "texts.txt").write_text("the cat\n")
    assert run(paths, monkeypatch, "score", "texts.txt") == 3
    assert "objective electra, which does not score texts" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_the_device_is_that_of_the_cluster_section(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (paths.root / "texts.txt").write_text("the cat\n")
    assert run(paths, monkeypatch, "score", "texts.txt", device="cuda") == 2
    assert "there is no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", str(2**63)])
def test_a_seed_that_cannot_be_one_ends_with_2(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: str
) -> None:
    assert run(paths, monkeypatch, "finetune", "--task", "CoLA", "--seed", seed) == 2
    assert "--seed" in capsys.readouterr().err
