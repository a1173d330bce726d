"""The benchmark of planted defects in miniature: steps find every defect, and keep text that only resembles one."""

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import planted_defects as benchmark

WORDS = (
    "the of and to a in that he was it his her with as had for she not at but be on they him by which said from all "
    "would there one so were have this when what if who could them no out into up more an then some now about time "
    "very little man before old other great house down good over never how upon came must himself day long made after "
    "might went only know two through again door night first night water where head room looked light hand found white"
).split()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = random.Random(1)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [f"{' '.join(generator.choices(WORDS, k=generator.randrange(15, 60))).capitalize()}." for _ in range(1500)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "EACH", 12)
    monkeypatch.setattr(benchmark, "EVALUATION", 30)


def test_every_planted_defect_is_found_and_nothing_else_is_changed(text: Path) -> None:
    result = benchmark.measure(text, 48)
    defects = result["defects"]
    assert set(benchmark.CASES) < set(defects) and result["documents"] == 48
    for name, row in defects.items():
        if "dropped" in row:
            assert row["dropped"] == (row["planted"] if float(name.split()[-1]) >= 0.8 else 0), name
        else:
            assert row["recall"] == row["precision"] == 1.0, (name, row)
    assert defects["evaluation text, re-cased, re-punctuated"]["planted"] == 30
    assert "| near-duplicates at 0.9: 12 | 12 dropped |" in benchmark.as_table(result)


@pytest.mark.parametrize("name", [name for name in benchmark.CASES if name != "mojibake"])
def test_without_its_step_a_defect_is_not_found(name: str, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, _ = benchmark.sound_documents(benchmark.documents_of(text), 20)
    _, defects, _ = benchmark.CASES[name]
    generator: Any = random.Random(1)
    row = benchmark.look([], [defects(document, generator) for document in documents[:20]], [], []).row()
    assert row["planted"] == 20 and row["recall"] < 0.1, row
