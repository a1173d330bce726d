"""What to expect of a text and a time: the law, its range, and what `init` and `estimate` print of it."""

import gzip
import json
import math
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from electra.__main__ import app
from electra.cluster.estimate import expected, text_size
from electra.cluster.estimate.expected import Law, body_parameters, described, expect, expect_profile
from electra.cluster.estimate.text_size import local_text_bytes, text_bytes
from electra.config import Settings
from electra.init.project import describe_project, plan_project, write_project
from electra.model.encoder import Encoder
from electra.model.shape import EncoderConfig
from experiments.curves_law import fitted
from tests.project import copy_project, load_profile

ROOT = Path(__file__).resolve().parents[2]

LAW = Law(
    2.0, 2e4, 0.35, 3e5, 0.4, 6.0, {"chunks": (90.0, -11.0, 0.9)}, 0.5, {"chunks": 0.8}, (4e5, 5e6), (1.5e6, 24e6)
)


@pytest.fixture
def tiny(tmp_path: Path) -> Settings:
    return load_profile(tmp_path, "tiny")


def with_steps(settings: Settings, steps: int) -> Settings:
    recipe = settings.pretrain.model_copy(update={"num_steps": steps})
    return settings.model_copy(update={"pretrain": recipe})


def test_text_that_is_read_again_is_worth_less_than_new_text() -> None:
    assert LAW.worth(1e6, 4e6) == 1e6
    second, tenth = LAW.worth(8e6, 4e6), LAW.worth(40e6, 4e6)
    assert 4e6 < second < 8e6 and second < tenth < 4e6 * (1 + LAW.passes)
    assert math.isclose(LAW.worth(8e6, 4e6), 4e6 * (1 + 6 * (1 - math.exp(-1 / 6))))


def test_the_loss_falls_with_size_tokens_and_text() -> None:
    loss = LAW.loss(1e6, 12e6, 4e6)
    assert LAW.floor < LAW.loss(2e6, 12e6, 4e6) < loss
    assert LAW.loss(1e6, 24e6, 4e6) < loss and LAW.loss(1e6, 12e6, 8e6) < loss
    assert LAW.loss(1e6, 12e6, 48e6) == LAW.loss(1e6, 12e6, 12e6)  # text that is not read adds nothing


@pytest.mark.parametrize("profile", ["tiny", "books", "small", "modern-small"])
def test_body_parameters_are_those_of_the_layers_matrices(tmp_path: Path, profile: str) -> None:
    model = load_profile(tmp_path, profile).model
    layers = Encoder(EncoderConfig.discriminator(model, vocab_size=8)).layers
    assert body_parameters(model) == sum(weight.numel() for weight in layers.parameters() if weight.ndim == 2)


def test_of_many_passes_text_is_short_and_of_one_pass_time(tiny: Settings) -> None:
    tokens = tiny.pretrain.num_steps * tiny.pretrain.batch_size * tiny.shards.max_length
    little, much = expect(tiny, tokens / 40, LAW), expect(tiny, tokens, LAW)
    assert little is not None and much is not None
    assert (little.short, round(little.passes)) == ("text", 40) and (much.short, much.passes) == ("time", 1)
    assert much.by_text == 0 < much.by_time and little.by_time < little.by_text
    assert much.loss < little.loss and much.scores["chunks"] > little.scores["chunks"]


def test_what_to_expect_is_shown_within_twice_the_deviation_of_the_measured_runs(tiny: Settings) -> None:
    found = expect(tiny, 1e7, LAW)
    assert found is not None and math.isclose(found.loss_within, 0.01 * found.loss)
    figures = f"{found.loss:.2f} ± {0.01 * found.loss:.2f}, CoNLL-2000 chunks F1 {found.scores['chunks']:.0f} ± 2 "
    assert described(found)[0].startswith(f"held-out loss {figures}")


def test_far_from_what_was_measured_nothing_is_foretold(tiny: Settings, tmp_path: Path) -> None:
    assert expect(tiny, 1e7, LAW) is not None
    assert expect(with_steps(tiny, 3), 1e7, LAW) is None  # too short
    assert expect(with_steps(tiny, 10_000_000), 1e7, LAW) is None
    assert expect(load_profile(tmp_path, "base"), 1e7, LAW) is None
    assert expect(tiny, 0, LAW) is None


def test_of_another_block_than_the_measured_one_nothing_is_foretold(tiny: Settings, tmp_path: Path) -> None:
    assert expect(load_profile(tmp_path, "books"), 1e6, LAW) is None
    not_gated = tiny.model.model_copy(update={"feed_forward": "gelu"})
    assert expect(tiny.model_copy(update={"model": not_gated}), 1e7, LAW) is None


def test_compressed_text_counts_as_what_it_unpacks_to(tiny: Settings, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    with gzip.open(tmp_path / "corpus/a.txt.gz", "wb") as file:
        file.write(bytes(range(256)) * 40)
    packed = (tmp_path / "corpus/a.txt.gz").stat().st_size
    (tmp_path / "corpus/b.txt").write_text("word " * 1000)
    paths = ["corpus/*", "corpus/b.txt"]  # a file that two patterns name counts once
    source = tiny.corpus.sources[0].model_copy(update={"paths": paths})
    local = tiny.model_copy(update={"corpus": tiny.corpus.model_copy(update={"sources": [source]})})
    assert local_text_bytes(local, tmp_path) == 5000 + int(packed * 3.5)
    remote = source.model_copy(update={"paths": [*paths, "s3://bucket/c.txt"]})
    unknown = tiny.model_copy(update={"corpus": tiny.corpus.model_copy(update={"sources": [remote]})})
    assert expect_profile(local, tmp_path) is not None and expect_profile(unknown, tmp_path) is None
    assert local_text_bytes(load_profile(tmp_path, "small"), tmp_path) == 0  # on the hub


TEXTS = [f"Ein Käse von {number:04} Pfund, und noch mehr Käse. " * 8 for number in range(1000)]
TEXT_BYTES = sum(len(text.encode()) for text in TEXTS)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "utf-16.txt", "utf-16-be.jsonl", "cp1252.txt"])
def test_text_counts_in_utf_8_and_without_the_other_fields_of_its_records(name: str, tmp_path: Path) -> None:
    path, encoding = tmp_path / name, name.split(".")[0]
    encoding = encoding if len(encoding) > 1 else "utf-8"
    rows = [{"text": text, "html": f"<p>{'x' * 4000}</p>", "id": None} for text in TEXTS]
    if path.suffix == ".parquet":
        columns = {"text": TEXTS, "vector": [[number / 7.0] * 768 for number in range(len(TEXTS))]}
        pq.write_table(pa.table(columns), path)
    elif ".jsonl" in name:
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode(encoding)
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    else:
        path.write_text("\n\n".join(TEXTS), encoding)
    expected = path.stat().st_size * 3.5 * TEXT_BYTES / len(lines) if path.suffix == ".gz" else TEXT_BYTES
    assert text_bytes([path], "text", encoding) == pytest.approx(expected, rel=0.02)


def test_records_longer_than_the_sample_count_by_their_text_and_unreadable_ones_by_their_size(tmp_path: Path) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text("".join(json.dumps({"html": "x" * 300_000, "text": "y" * 1000}) + "\n" for _ in range(3)))
    assert text_bytes([long], "text", "utf-8") == pytest.approx(3000, rel=0.01)
    assert text_bytes([long], "body", "utf-8") == long.stat().st_size
    for name, content in [("a.parquet", b"none"), ("a.jsonl", b"[1]\n"), ("a.jsonl.gz", b"no"), ("b.jsonl", b"")]:
        (tmp_path / name).write_bytes(content)
        assert text_bytes([tmp_path / name], "text", "utf-8") == len(content) * (3.5 if name.endswith("gz") else 1)


def test_few_files_of_many_are_read_for_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(100)]
    for path in paths:
        path.write_text(json.dumps({"text": "word " * 200, "other": "x" * 1000}) + "\n")
    read = []
    monkeypatch.setattr(text_size, "_field_bytes", lambda text, _: read.append(text) or (1, 2))
    assert text_bytes(paths, "text", "utf-8") == sum(path.stat().st_size for path in paths) // 2 and len(read) <= 20


def test_estimate_prints_what_to_expect_and_init_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_project(tmp_path, "dvc.yaml", ".gitignore")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.txt").write_text("A sentence of the text.\n\n" * 80_000)
    monkeypatch.chdir(tmp_path)
    plan = plan_project(["corpus/"])
    write_project(plan)
    printed = describe_project(plan, None)
    found = expect_profile(plan.settings)
    assert found is not None and found.short == "text"
    assert f"expect   held-out loss {found.loss:.2f} ± {found.loss_within:.2f}, CoNLL-2000" in printed
    assert "         text is short: twice the text" in printed

    assert CliRunner().invoke(app, ["estimate", "--no-memory", "--no-measure"]).output.count("text is short") == 1
    noted = json.loads(CliRunner().invoke(app, ["estimate", "--no-memory", "--no-measure", "--json"]).output)
    assert noted["expected"] == expected.as_json(found) and noted["expected"]["short"] == "text"


def test_the_law_in_use_is_the_one_fitted_to_the_committed_runs() -> None:
    stored = json.loads((ROOT / "experiments/results/curves.json").read_text())
    assert json.loads(json.dumps(asdict(expected.MEASURED))) == stored["law"]
    found = fitted(stored["rows"])
    assert found is not None
    for row in stored["rows"]:  # what a law says, since the last digits of its scales differ between processors
        size, tokens = row["body_parameters"], row["run"]["tokens"]
        losses = [law.loss(size, tokens, row["text_tokens"]) for law in (found, expected.MEASURED)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        scores = [law.score("chunks", size, loss) for law, loss in zip((found, expected.MEASURED), losses, strict=True)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-3)
    assert (found.sizes, found.tokens) == (expected.MEASURED.sizes, expected.MEASURED.tokens)
