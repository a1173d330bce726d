"""Tasks of the microworld: official layouts, right labels, disjoint splits."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from electra.common.errors import ConfigError
from electra.microworld import pair_tasks, sentence_tasks
from electra.microworld.grammar import change
from electra.microworld.lexicon import NEGATIVE_ADJECTIVES, POSITIVE_ADJECTIVES
from electra.microworld.tasks import SYNTHETIC_TASKS, write_official_tasks
from electra.microworld.world import World

TRAIN, DEV = 240, 120
REAL = Path(__file__).resolve().parents[2] / "../shared/data"
HEADERS = {
    "SST-2": "sentence label",
    "MRPC": "Quality|#1 ID|#2 ID|#1 String|#2 String",
    "STS-B": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "QQP": "id qid1 qid2 question1 question2 is_duplicate",
    "QNLI": "index question sentence label",
    "RTE": "index sentence1 sentence2 label",
}
# text columns and label column of every task, by position
COLUMNS = {
    "CoLA": ((3,), 1),
    "SST-2": ((0,), 1),
    "MRPC": ((3, 4), 0),
    "STS-B": ((7, 8), 9),
    "QQP": ((3, 4), 5),
    "MNLI": ((8, 9), -1),
    "QNLI": ((1, 2), 3),
    "RTE": ((1, 2), 3),
}


def read(path: Path, header: bool = True) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len({len(row) for row in rows}) == 1, path
    return rows[1:] if header else rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    write_official_tasks(folder, SYNTHETIC_TASKS, seed=5, train_examples=TRAIN, dev_examples=DEV)
    return folder


def splits(folder: Path, task: str) -> dict[str, list[list[str]]]:
    found = sorted((folder / "glue" / task).glob("*.tsv"))
    return {path.stem: read(path, header=task != "CoLA") for path in found}


def questions(path: Path) -> list[tuple[str, dict]]:
    data = json.loads(path.read_text(encoding="utf-8"))
    return [(p["context"], qa) for article in data["data"] for p in article["paragraphs"] for qa in p["qas"]]


def digest(folder: Path) -> str:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(p.relative_to(folder)).encode() + p.read_bytes() for p in paths)).hexdigest()


def test_bytes_do_not_depend_on_the_process(folder: Path, tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from electra.microworld.tasks import *;"
        f"write_official_tasks(Path(sys.argv[1]), SYNTHETIC_TASKS, 5, {TRAIN}, {DEV})"
    )
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / hash_seed)], env=env, check=True)
        assert digest(tmp_path / hash_seed) == digest(folder)


def test_another_seed_makes_other_examples(folder: Path, tmp_path: Path):
    write_official_tasks(tmp_path, ["RTE"], seed=6, train_examples=20, dev_examples=10)
    assert splits(tmp_path, "RTE") != splits(folder, "RTE")


def test_dev_does_not_depend_on_the_number_of_training_examples(folder: Path, tmp_path: Path):
    write_official_tasks(tmp_path, ["MRPC"], seed=5, train_examples=10, dev_examples=DEV)
    assert splits(tmp_path, "MRPC")["dev"] == splits(folder, "MRPC")["dev"]


@pytest.mark.parametrize("task", sorted(HEADERS))
def test_headers_are_the_official_ones(folder: Path, task: str):
    expected = HEADERS[task].split("|" if "|" in HEADERS[task] else " ")
    for split in ("train", "dev"):
        assert (folder / "glue" / task / f"{split}.tsv").read_text().split("\n")[0].split("\t") == expected


def test_mnli_has_two_dev_genres_with_five_annotators(folder: Path):
    genres = {}
    for split, annotators in (("train", 1), ("dev_matched", 5), ("dev_mismatched", 5)):
        lines = (folder / "glue/MNLI" / f"{split}.tsv").read_text().split("\n")
        names = lines[0].split("\t")
        assert names[:4] == ["index", "promptID", "pairID", "genre"]
        assert names[8:] == ["sentence1", "sentence2", *(f"label{i + 1}" for i in range(annotators)), "gold_label"]
        genres[split] = {line.split("\t")[3] for line in lines[1:-1]}
    assert genres["train"] == genres["dev_matched"] != genres["dev_mismatched"]


def test_cola_has_no_header_and_marks_what_is_wrong(folder: Path):
    for rows in splits(folder, "CoLA").values():
        assert all((label, mark) in (("1", ""), ("0", "*")) for _, label, mark, _ in rows)


@pytest.mark.parametrize("task", ["CoLA", "MRPC", "RTE", "STS-B"])
def test_layout_is_that_of_the_real_files(folder: Path, task: str):
    real = REAL / "glue" / task / "dev.tsv"
    if not real.is_file():
        pytest.skip("the real GLUE files are not beside this checkout")
    first = [path.open(encoding="utf-8-sig").readline().rstrip("\n").split("\t")
             for path in (real, folder / "glue" / task / "dev.tsv")]  # fmt: skip
    assert len(first[0]) == len(first[1])
    if task != "CoLA":
        assert first[0] == first[1]


@pytest.mark.parametrize("task", sorted(COLUMNS))
def test_sizes_balance_and_disjoint_splits(folder: Path, task: str):
    texts, label = COLUMNS[task]
    found = splits(folder, task)
    seen: set[tuple[str, ...]] = set()
    for split, rows in found.items():
        assert len(rows) == (TRAIN if split == "train" else DEV)
        own = {tuple(row[column] for column in texts) for row in rows}
        assert len(own) == len(rows)
        assert own.isdisjoint(seen)
        seen |= own
        counts = Counter(row[label] for row in rows)
        assert min(counts.values()) > 0.5 * len(rows) / len(counts), (split, counts)


def test_sentiment_of_unseen_words_is_asked(folder: Path):
    polar = set(POSITIVE_ADJECTIVES + NEGATIVE_ADJECTIVES)
    words = {
        split: {word.strip(".,!") for row in rows for word in row[0].split()} & polar
        for split, rows in splits(folder, "SST-2").items()
    }
    assert len(words["dev"] - words["train"]) > 0.4 * len(words["dev"])


def names(path: Path, tag: str) -> set[str]:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return {line[0] for line in lines if line and line[3] == tag}


def test_most_names_of_the_development_set_are_not_in_the_training_set(folder: Path):
    train, dev = (folder / "conll2003" / f"{part}.txt" for part in ("train", "testa"))
    for tag in ("B-PER", "B-LOC"):
        assert len(names(dev, tag) - names(train, tag)) > 0.4 * len(names(dev, tag))


def test_every_name_is_tagged_and_nothing_else():
    world, rng = World(1), Random(0)
    people = {person.name for person in world.people}
    surnames, places = {person.surname for person in world.people}, {*world.towns, *world.regions.values()}
    for _ in range(300):
        for word, tag in sentence_tasks.named(rng, world):
            expected = (
                "B-PER" if word in people else "I-PER" if word in surnames else "B-LOC" if word in places else "O"
            )
            assert tag == expected, word


def test_training_sets_speak_of_a_part_of_the_words(folder: Path):
    known = {person.name for person in World(5).narrowed(sentence_tasks.TRAIN_SHARE).people}
    people = {person.name for person in World(5).people}
    assert len(known) == round(0.25 * len(people))
    cola = {
        split: set(" ".join(row[3] for row in rows).strip(".").split())
        for split, rows in splits(folder, "CoLA").items()
    }
    assert people & cola["train"] <= known
    assert len(people & cola["dev"] - known) > 20
    squad = {
        split: " ".join(context for context, _ in questions(folder / f"squad/{split}-v1.1.json"))
        for split in ("train", "dev")
    }
    assert people & set(squad["train"].replace(".", "").split()) <= known
    assert len(people & set(squad["dev"].replace(".", "").split()) - known) > 20


def test_a_question_without_an_answer_is_not_answered_by_its_event():
    world, rng = World(1), Random(0)
    for _ in range(300):
        text = sentence_tasks.passage(rng, world)
        event, role = sentence_tasks.unanswerable(rng, world, text, 0, "what")
        told = text.events[0]
        if event is told:
            assert getattr(told, {"where": "place", "when": "time"}[role]) is None
        else:
            assert role == "what" and (event.subject, event.verb) != (told.subject, told.verb)


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_answers_stand_at_their_offsets(folder: Path, version: str):
    for split, size in (("train", TRAIN), ("dev", DEV)):
        path = folder / "squad" / f"{split}-v{version}.json"
        rows = questions(path)
        assert len(rows) == size
        assert len({qa["id"] for _, qa in rows}) == size
        for context, qa in rows:
            for answer in qa["answers"] + qa.get("plausible_answers", []):
                end = answer["answer_start"] + len(answer["text"])
                assert context[answer["answer_start"] : end] == answer["text"]
                assert len(answer["text"].split()) <= 3
            assert ("is_impossible" in qa) == (version == "2.0")
            assert bool(qa["answers"]) != qa.get("is_impossible", False)


def test_a_third_of_squad2_is_impossible(folder: Path):
    share = sum(qa["is_impossible"] for _, qa in questions(folder / "squad/train-v2.0.json")) / TRAIN
    assert 0.23 < share < 0.43


def test_squad_contexts_of_train_and_dev_differ(folder: Path):
    contexts = [{c for c, _ in questions(folder / "squad" / f"{split}-v1.1.json")} for split in ("train", "dev")]
    assert contexts[0].isdisjoint(contexts[1])


def test_an_unknown_task_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="WNLI has no embedded form"):
        write_official_tasks(tmp_path, ["RTE", "WNLI"], seed=1, train_examples=10, dev_examples=10)
    assert not list(tmp_path.iterdir())


def test_a_change_exchanges_exactly_the_asked_role():
    world, rng = World(1), Random(0)
    for _ in range(100):
        event = pair_tasks.full_event(rng, world)
        for role in pair_tasks.GRADED_ROLES:
            other = change(rng, world, event, role)
            differing = [r for r in pair_tasks.GRADED_ROLES if getattr(other, r) is not getattr(event, r)]
            assert differing == [role]


def test_corruption_changes_one_word_or_the_order():
    world, rng = World(1), Random(0)
    for _ in range(200):
        text, label = sentence_tasks.acceptability(rng, world)
        if label == "1":
            broken = sentence_tasks.corrupt(rng, text)
            assert broken != text
            before, after = Counter(text.lower().rstrip(".!").split()), Counter(broken.lower().rstrip(".!").split())
            assert (before - after).total() <= 1 and (after - before).total() <= 1
