"""Evaluation text in the corpus is found in any case and punctuation, and nothing else is."""

import json
import random
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from electra.common.artifacts import read_json, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from electra.results.report.facts import Facts, leakage
from electra.text.corpus.build import build_corpus
from electra.text.corpus.decontamination import collect_evaluation_texts
from electra.text.corpus.leaks import LEAST_LETTERS, EvaluationTexts, letters_of
from tests.corpus.small import Built, cleaned_by_a_worker_too, write_documents
from tests.text_stages import text_settings

VOCABULARY = ["".join(random.Random(i).choices("abcdefghijklmnop", k=2 + i % 7)) for i in range(3000)]


def sentence(generator: random.Random, num_words: int) -> str:
    words = generator.choices(VOCABULARY, k=num_words)
    return " ".join(words).capitalize() + "."


def rewritten(text: str, generator: random.Random) -> str:
    """Re-cased, re-punctuated, with other spaces."""
    words = text.rstrip(".").split()
    changed = [word.upper() if generator.random() < 0.3 else word for word in words]
    changed = [word + generator.choice(["", ",", " --", "...", " (x)"[:2]]) for word in changed]
    return generator.choice([" ", "  ", "\n"]).join(changed) + "!"


@pytest.mark.parametrize("as_it_was", [True, False])
def test_every_planted_sentence_is_found_and_clean_text_is_not(as_it_was: bool) -> None:
    generator = random.Random(1)
    planted = [sentence(generator, generator.randrange(8, 40)) for _ in range(1000)]
    planted = [text for text in planted if len(letters_of(text)) >= LEAST_LETTERS]
    assert len(planted) >= 995
    texts = EvaluationTexts.of(planted)
    clean = [" ".join(sentence(generator, 15) for _ in range(20)) for _ in range(1000)]
    assert not any(texts.find(clean))
    for number, text in enumerate(planted):
        written = text if as_it_was else rewritten(text, generator)
        around = [sentence(generator, generator.randrange(1, 30)) for _ in range(6)]
        document = " ".join(around[:3]) + "\n" + written + generator.choice(["\n", " "]) + " ".join(around[3:])
        (leaks,) = texts.find([document])
        assert leaks and number in leaks.rows, text


def find(evaluation: str, document: str, **rules: int) -> Any:
    return EvaluationTexts.of([evaluation], **rules).find([document])[0]


LONG = "One morning the old captain walked slowly along the harbour wall and counted every ship that came home"


def test_thirteen_words_in_a_row_are_found_and_twelve_are_not() -> None:
    words = LONG.split()
    assert find(LONG, "He said that " + " ".join(words[2:15]) + " and left")
    assert not find(LONG, "He said that " + " ".join(words[2:14]) + " and left")
    assert not find(LONG, " ".join([*words[:9], "boldly", *words[9:18]]))
    assert find(LONG, " ".join(words[2:14]), num_words=12)


def test_a_changed_letter_does_not_hide_what_comes_after_it() -> None:
    text = f"{LONG} with nothing at all to tell of the storm that had been so long in coming over the sea"
    changed = text.replace("slowly", "slewly")  # the parts before and after it lie alike in both
    assert find(text, changed) and find(text, text.replace("slowly", "quickly"))


def test_a_short_text_is_found_as_a_whole_only() -> None:
    short = "The captain counted every single ship that came"
    assert find(short, "They say: the CAPTAIN, counted every single ship -- that came; so what?")
    assert not find(short, "The captain counted every single ship")
    assert not find("It is as it is to be so", "It is as it is to be so")  # too few letters
    assert not find("Captains counted every remarkable ship", "Captains counted every remarkable ship")  # too few words


def test_tokenised_text_is_the_same_text() -> None:
    assert find(
        "It did n't , they say , rain at all in the whole of the summer .",
        "It didn't, they say, rain at all in the whole of the summer.",
    )


def test_a_part_found_is_told_by_its_lines() -> None:
    words = LONG.split()
    document = "\n".join(["First line.", " ".join(words[:7]), "...", " ".join(words[7:]), "Last line."])
    assert find(LONG, document).lines == [1, 3]


def test_other_scripts_are_compared_too() -> None:
    chinese = "今天早上老船长沿着港口的墙慢慢地走"
    assert find(chinese, f"他说：{chinese[:9]}，{chinese[9:]}。")
    assert not find(chinese, "他说今天早上老船长在家里睡觉没有走到港口")
    greek = "Σήμερα το πρωί ο γέρος καπετάνιος περπάτησε αργά κατά μήκος του τείχους του λιμανιού"
    assert find(greek, greek.upper())


def test_letters_are_the_same_however_they_are_found() -> None:
    """The slow way: NFKC and casefolding of every line, then all that is no letter or digit removed."""

    def slow(text: str) -> bytes:
        lines = (unicodedata.normalize("NFKC", line).casefold() for line in text.split("\n"))
        return "".join(re.sub(r"[\W_]+", "", line) for line in lines).encode()

    generator = random.Random(1)
    points = [*range(32, 0xD800), *range(0xE000, 0x1FFFF)]
    texts = ["".join(map(chr, generator.choices(points, k=40))) + "Ab, 1" for _ in range(200)]
    quoted = ["“It’s…” — he said\nin ½ ℡ No. e\u0301\u200d_x", "ﬁn İ ß Σς", "a\u2019b\u0301"]
    for text in [*quoted, *texts, *(f"a{chr(point)}b" for point in generator.sample(points, 3000))]:
        assert letters_of(text) == slow(text), ascii(text)


def test_many_documents_looked_at_together_do_not_mix() -> None:
    words = LONG.split()
    halves = [" ".join(words[:9]), " ".join(words[9:])]
    texts = EvaluationTexts.of([LONG])
    assert texts.find(halves) == [None, None]
    found = texts.find(["", "x", LONG, "y" * 7, f"a {LONG}", ""])
    assert [bool(leaks) for leaks in found] == [False, False, True, False, True, False]


def test_a_table_read_from_disk_finds_the_same(tmp_path: Path) -> None:
    texts = EvaluationTexts.of([LONG, "", "short"])
    texts.save(tmp_path)
    assert EvaluationTexts.load(tmp_path, 13).find([LONG]) == texts.find([LONG]) != [None]
    assert EvaluationTexts.of([]).find([LONG]) == [None]


CONTEXT = "In the year of the great flood the people of the valley moved their houses up to the hills above the river."
ROWS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("RTE", "train"): [
        {"id": "0", "text_a": "Nobody may mind that this text of the training set is in the corpus.", "text_b": "x"},
    ],
    ("RTE", "dev"): [
        {"id": "0", "text_a": f"{LONG}.", "text_b": "Ships came."},
        {"id": "1", "text_a": "a", "text_b": "b"},
    ],
    ("SQuAD1.1", "dev"): [
        {"id": "a", "question": "Why?", "context": CONTEXT},
        {"id": "b", "question": "When?", "context": CONTEXT},
    ],
    ("CoNLL-2000", "test"): [
        {"id": "0", "words": "A tagged sentence of the test set that is nowhere else to be found".split()},
    ],
}
DOCUMENTS = [
    f"A first line that has nothing to hide.\n{LONG.upper()}!\nA last line of the same kind.",
    "A clean document about something else entirely, as most of them are.",
    f"{CONTEXT}",
    ROWS["RTE", "train"][0]["text_a"],
]


@pytest.fixture
def tasks_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``data/tasks`` and ``a.txt`` in the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = Paths().tasks
    for (task, split), rows in ROWS.items():
        (folder / task).mkdir(parents=True, exist_ok=True)
        (folder / task / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {task for task, _ in ROWS}
    counts = {
        name: {"rows": {split: len(rows) for (task, split), rows in ROWS.items() if task == name}} for name in names
    }
    write_manifest(folder, source={"kind": "files"}, tasks=dict(sorted(counts.items())))
    write_documents("a.txt", [*DOCUMENTS, *(f"Filler document number {i} is here." for i in range(20))])


def settings_of(**rules: Any) -> Settings:
    source = {"kind": "files", "name": "a", "paths": ["a.txt"]}
    return text_settings(corpus={"sources": [source], "held_out_fraction": 1e-9, **rules})


def built(action: str) -> Built:
    settings = settings_of(decontamination={"action": action})
    collect_evaluation_texts(settings, Paths())
    build_corpus(settings, Paths())
    return Built(Path())


def test_the_command_that_reads_the_tasks_is_named_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="next: .*electra tasks"):
        collect_evaluation_texts(settings_of(decontamination={}), Paths())
    assert not (tmp_path / "data/evaluation").exists()


SETS = [
    {"task": "CoNLL-2000", "split": "test", "examples": 1, "compared": 1, "found": 0, "documents": 0, "paragraphs": 0},
    {"task": "RTE", "split": "dev", "examples": 2, "compared": 1, "found": 1, "documents": 1, "paragraphs": 1},
    {"task": "SQuAD1.1", "split": "dev", "examples": 2, "compared": 2, "found": 2, "documents": 1, "paragraphs": 1},
]


@pytest.mark.parametrize(
    ("action", "left", "dropped"),
    [
        ("report", DOCUMENTS, 0),
        ("drop_documents", [DOCUMENTS[1], DOCUMENTS[3]], 2),
        ("drop_paragraphs", [DOCUMENTS[0].replace(f"\n{LONG.upper()}!", ""), DOCUMENTS[1], DOCUMENTS[3]], 1),
    ],
)
@pytest.mark.usefixtures("tasks_and_text")
def test_what_is_found_is_dropped_as_asked_and_counted_by_task(action: str, left: list[str], dropped: int) -> None:
    corpus = built(action)
    assert sorted(text for text in corpus.texts() if not text.startswith("Filler")) == sorted(left)
    assert corpus.manifest["dropped"] == {"duplicate": 0, "too_short": 0, "decontamination": dropped}
    assert corpus.manifest["decontamination"]["sets"] == SETS
    (rule,) = read_json(corpus.folder / "cleaning.json")
    assert rule.startswith("decontamination.")


@pytest.mark.usefixtures("tasks_and_text")
def test_the_choices_of_an_example_are_looked_for() -> None:
    """The ends of SWAG, the alternatives of COPA: what a model must choose is no training text."""
    ends = [f"{name} closed the heavy door of the lighthouse and lit the lamp again." for name in ("Anna", "Peter")]
    row = {"id": "0", "text_a": "It grew dark.", "choices": [*ends, "Nobody.", "No."], "label": "0"}
    folder = Paths().tasks / "SWAG"
    folder.mkdir()
    (folder / "dev.jsonl").write_text(json.dumps(row) + "\n")
    tasks = {**read_json(Paths().tasks / "manifest.json")["tasks"], "SWAG": {"rows": {"dev": 1}}}
    write_manifest(Paths().tasks, source={"kind": "files"}, tasks=tasks)
    write_documents("a.txt", [ends[1], *DOCUMENTS, "Filler document number 1 is here."])
    corpus = built("drop_documents")
    assert ends[1] not in corpus.texts()
    found = [one for one in corpus.manifest["decontamination"]["sets"] if one["task"] == "SWAG"]
    assert [(one["compared"], one["found"], one["documents"]) for one in found] == [(1, 1, 1)]


@pytest.mark.usefixtures("tasks_and_text")
def test_rows_that_only_judge_another_tasks_model_are_looked_for_too() -> None:
    """As HANS judges models of MNLI."""
    hard = "The judge by the actor stopped the banker before the trial of the year began in town."
    (Paths().tasks / "RTE/hard").mkdir()
    (Paths().tasks / "RTE/hard/dev.jsonl").write_text(json.dumps({"id": "0", "text_a": hard, "text_b": "x"}) + "\n")
    tasks = read_json(Paths().tasks / "manifest.json")["tasks"]
    write_manifest(Paths().tasks, source={"kind": "files"}, tasks=tasks, evaluations={"RTE/hard": {"rows": {"dev": 1}}})
    write_documents("a.txt", [hard, *DOCUMENTS, "Filler document number 1 is here."])
    corpus = built("drop_documents")
    assert hard not in corpus.texts()
    assert [one["found"] for one in corpus.manifest["decontamination"]["sets"] if one["task"] == "RTE/hard"] == [1]


@pytest.mark.usefixtures("tasks_and_text")
def test_the_card_has_a_row_for_each_set() -> None:
    manifest = built("drop_paragraphs").manifest
    section = leakage(Facts(settings_of(), None, None, None, {}, {"corpus": manifest}))
    assert section.rows[1] == ["RTE", "dev", "2", "1", "1", "1", "1"]
    assert "13 words in a row" in section.note and "paragraphs were dropped" in section.note
    assert leakage(Facts(settings_of(), None, None, None, {}, {"corpus": {}})).rows == []


@pytest.mark.usefixtures("tasks_and_text")
def test_without_decontamination_nothing_depends_on_the_tasks() -> None:
    settings = settings_of()
    shutil.rmtree(Paths().tasks)
    collect_evaluation_texts(settings, Paths())
    assert [path.name for path in Paths().evaluation_texts.iterdir()] == ["manifest.json"]
    build_corpus(settings, Paths())
    assert "decontamination" not in Built(Path()).manifest


@pytest.mark.usefixtures("tasks_and_text")
def test_a_workers_file_says_what_this_process_would_have_said(tmp_path: Path) -> None:
    built("drop_paragraphs")
    corpus = settings_of(decontamination={"action": "drop_paragraphs"}).corpus
    here = cleaned_by_a_worker_too(DOCUMENTS, corpus, Paths().evaluation_texts, tmp_path / "part.arrow")
    assert [bool(made.leaks) for made in here] == [True, False, True, False]
