"""Labelled tasks of the microworld, written in the official file formats of GLUE and SQuAD.

Every example is made from the corpus' own grammar. Labels follow from how the example was made; what they take
(synonyms, hypernyms, the polarity of words, what a verb admits) is shown by the corpus and only in part by the small
training sets. Dev is drawn first and is the same for every number of training examples; train avoids it.

Columns are those of the GLUE download (https://gluebenchmark.com/tasks) and of SQuAD's JSON release.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from electra.common.errors import ConfigError
from electra.microworld import pair_tasks, sentence_tasks
from electra.microworld.world import World

MNLI_HEADER = (
    "index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
    "sentence2_parse", "sentence1", "sentence2",
)  # fmt: skip
STSB_HEADER = (
    "index",
    "genre",
    "filename",
    "year",
    "old_index",
    "source1",
    "source2",
    "sentence1",
    "sentence2",
    "score",
)
Rows = Sequence[tuple[str, ...]]


def write_tsv(path: Path, header: Sequence[str] | None, rows: Rows) -> None:
    """Tab-separated lines without quoting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) for row in ([tuple(header)] if header else []) + list(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def cola(rows: Rows) -> tuple[None, Rows]:
    """(sentence, label) -> source, label, the author's mark, sentence; the file has no header."""
    return None, [("mw", label, "" if label == "1" else "*", text) for text, label in rows]


def sst(rows: Rows) -> tuple[Sequence[str], Rows]:
    """(sentence, label) -> sentence, label."""
    return ("sentence", "label"), rows


def mrpc(rows: Rows) -> tuple[Sequence[str], Rows]:
    """(first, second, label) -> Quality, the two ids, the two strings."""
    numbered = enumerate(rows)
    body = [(label, str(2 * i + 1), str(2 * i + 2), first, second) for i, (first, second, label) in numbered]
    return ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), body


def qqp(rows: Rows) -> tuple[Sequence[str], Rows]:
    """(first, second, label) -> id, the two question ids, the two questions, is_duplicate."""
    body = [(str(i), str(2 * i + 1), str(2 * i + 2), *row) for i, row in enumerate(rows)]
    return ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"), body


def stsb(rows: Rows) -> tuple[Sequence[str], Rows]:
    """(first, second, score) -> STS-B's ten columns, the score last."""
    body = [(str(i), "microworld", "events", "none", f"{i:04d}", "none", "none", *row) for i, row in enumerate(rows)]
    return STSB_HEADER, body


def indexed_pair(first_name: str, second_name: str, rows: Rows) -> tuple[Sequence[str], Rows]:
    """(first, second, label) -> index, the two texts, label: the layout of RTE and QNLI."""
    return ("index", first_name, second_name, "label"), [(str(i), *row) for i, row in enumerate(rows)]


def mnli(rows: Rows, genre: str, annotators: int) -> tuple[Sequence[str], Rows]:
    """(premise, hypothesis, label) -> MNLI's columns; the annotators' labels (train 1, dev 5) precede the gold one."""
    body = []
    for i, (premise, hypothesis, label) in enumerate(rows):
        parses = (binary_parse(premise), binary_parse(hypothesis), f"(ROOT {premise})", f"(ROOT {hypothesis})")
        labels = (label,) * (annotators + 1)
        body.append((str(i), str(i), f"{i}{label[0]}", genre, *parses, premise, hypothesis, *labels))
    names = tuple(f"label{number + 1}" for number in range(annotators))
    return (*MNLI_HEADER, *names, "gold_label"), body


def binary_parse(text: str) -> str:
    """A right-branching bracketing of the words."""
    words = text.rstrip(".?!").split() + [text[-1]]
    return "".join(f"( {word} " for word in words[:-1]) + words[-1] + " )" * (len(words) - 1)


def write_squad(path: Path, version: str, paragraphs: list[dict[str, Any]], per_article: int = 10) -> None:
    """SQuAD's JSON: articles of a few paragraphs each; a paragraph is ``{"context", "qas"}``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(paragraphs), per_article)
    data = [{"title": f"Microworld_{s // per_article}", "paragraphs": paragraphs[s : s + per_article]} for s in starts]
    path.write_text(json.dumps({"version": version, "data": data}), encoding="utf-8", newline="\n")


SYNTHETIC_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "CoNLL-2003", "SQuAD1.1", "SQuAD2.0")
Row = tuple[str, ...]
Maker = Callable[[Random], Row]

_PAIR_MAKERS = {
    "MRPC": pair_tasks.paraphrase,
    "QQP": pair_tasks.duplicate_question,
    "STS-B": pair_tasks.similarity,
    "QNLI": pair_tasks.answers,
    "RTE": pair_tasks.recognised,
}
_LAYOUTS: dict[str, Callable[[Sequence[Row]], tuple[Sequence[str] | None, Sequence[Row]]]] = {
    "CoLA": cola,
    "SST-2": sst,
    "MRPC": mrpc,
    "STS-B": stsb,
    "QQP": qqp,
    "QNLI": lambda rows: indexed_pair("question", "sentence", rows),
    "RTE": lambda rows: indexed_pair("sentence1", "sentence2", rows),
}


def write_official_tasks(folder: Path, tasks: Sequence[str], seed: int, train_examples: int, dev_examples: int) -> None:
    """Write ``folder/glue/<Task>/*.tsv`` and ``folder/squad/*.json`` as the official downloads lay them out.

    Args:
        tasks: names as in ``electra.tasks.catalogue.TASKS``.
        seed: seed of the world; the corpus of the same seed is about the same world.
        train_examples: rows (questions for SQuAD) per training set; ``dev_examples`` likewise.

    Raises:
        ConfigError: a task has no embedded form.
    """
    for task in tasks:
        if task not in SYNTHETIC_TASKS:
            raise ConfigError(
                f"{task} has no embedded form",
                where="cells.tasks",
                next_step=f"leave it out, or choose another tasks.source; embedded: {', '.join(SYNTHETIC_TASKS)}",
            )
    world = World(seed)
    for task in tasks:
        if task.startswith("SQuAD"):
            _write_squad(folder, world, f"v{task[-3:]}", {"dev": dev_examples, "train": train_examples})
        elif task == "MNLI":
            _write_mnli(folder, world, train_examples, dev_examples)
        elif task == "CoNLL-2003":
            _write_conll(folder, world, train_examples, dev_examples)
        else:
            seen: set[Row] = set()
            for split, count in (("dev", dev_examples), ("train", train_examples)):
                rows = _draw(world, task, split, count, _maker(world, task, split), seen)
                write_tsv(folder / "glue" / task / f"{split}.tsv", *_LAYOUTS[task](rows))


def _world_of(world: World, split: str) -> World:
    """What a split speaks of: training sets of a part of the words only, development sets of all."""
    return world.narrowed(sentence_tasks.TRAIN_SHARE) if split == "train" else world


def _maker(world: World, task: str, split: str) -> Maker:
    if task == "CoLA":
        own = _world_of(world, split)
        return lambda rng: sentence_tasks.acceptability(rng, own)
    if task == "SST-2":
        opinions = sentence_tasks.known_opinions(world) if split == "train" else world.opinions
        return lambda rng: sentence_tasks.sentiment(rng, opinions)
    own = _world_of(world, split) if task == "QNLI" else world
    return lambda rng: _PAIR_MAKERS[task](rng, own)


def _draw(world: World, task: str, split: str, count: int, make: Maker, seen: set[Row]) -> list[Row]:
    """``count`` rows whose text is not in ``seen``, and is added to it."""
    rng = Random(f"{world.seed}/tasks/{task}/{split}")
    rows: list[Row] = []
    while len(rows) < count:
        row = make(rng)
        if row[:-1] not in seen:
            seen.add(row[:-1])
            rows.append(row)
    return rows


def _write_mnli(folder: Path, world: World, train_examples: int, dev_examples: int) -> None:
    """Matched text tells of the past and the present; the mismatched genre foretells."""
    seen: set[Row] = set()
    for split, count, genre, annotators in (
        ("dev_matched", dev_examples, "story", 5),
        ("dev_mismatched", dev_examples, "forecast", 5),
        ("train", train_examples, "story", 1),
    ):
        tense = "future" if genre == "forecast" else "past"

        def make(rng: Random, tense: str = tense) -> Row:
            return pair_tasks.inference(rng, world, tense)

        rows = _draw(world, "MNLI", split, count, make, seen)
        write_tsv(folder / "glue" / "MNLI" / f"{split}.tsv", *mnli(rows, genre, annotators))


def _write_conll(folder: Path, world: World, train_examples: int, dev_examples: int) -> None:
    """Word, part of speech and chunk (both left open: "-"), name; a blank line after each sentence."""
    for part, count in (("testa", dev_examples), ("train", train_examples)):
        rng, own = (
            Random(f"{world.seed}/tasks/CoNLL-2003/{part}"),
            _world_of(world, "train" if part == "train" else "dev"),
        )
        sentences = [sentence_tasks.named(rng, own) for _ in range(count)]
        text = "".join("".join(f"{word} - - {tag}\n" for word, tag in words) + "\n" for words in sentences)
        path = folder / "conll2003" / f"{part}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("-DOCSTART- -X- -X- O\n\n" + text, encoding="utf-8", newline="\n")


def _write_squad(folder: Path, world: World, version: str, counts: dict[str, int]) -> None:
    seen: set[str] = set()
    for split, count in counts.items():
        rng = Random(f"{world.seed}/tasks/SQuAD{version}/{split}")
        paragraphs = sentence_tasks.squad(rng, _world_of(world, split), split, count, version, seen)
        # the official names: 1.1's version string is bare, 2.0's has a "v"
        write_squad(
            folder / "squad" / f"{split}-{version}.json",
            version.removeprefix("v") if version == "v1.1" else version,
            paragraphs,
        )
