"""Labelled tasks of the microworld, written in the official file formats of GLUE and SQuAD.

Every example is made from the corpus' own grammar. Labels follow from how the example was made; what they take
(synonyms, hypernyms, the polarity of words, what a verb admits) is shown by the corpus and only in part by the small
training sets. Dev is drawn first and is the same for every number of training examples; train avoids it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from electra.common.errors import ConfigError
from electra.microworld import formats, pair_tasks, sentence_tasks, span_tasks
from electra.microworld.world import World

EMBEDDED_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "SQuAD1.1", "SQuAD2.0")
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
    "CoLA": formats.cola,
    "SST-2": formats.sst,
    "MRPC": formats.mrpc,
    "STS-B": formats.stsb,
    "QQP": formats.qqp,
    "QNLI": lambda rows: formats.indexed_pair("question", "sentence", rows),
    "RTE": lambda rows: formats.indexed_pair("sentence1", "sentence2", rows),
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
        if task not in EMBEDDED_TASKS:
            raise ConfigError(
                f"{task} has no embedded form",
                where="cells.tasks",
                next_step=f"leave it out, or choose another tasks.source; embedded: {', '.join(EMBEDDED_TASKS)}",
            )
    world = World(seed)
    for task in tasks:
        if task.startswith("SQuAD"):
            _write_squad(folder, world, f"v{task[-3:]}", {"dev": dev_examples, "train": train_examples})
        elif task == "MNLI":
            _write_mnli(folder, world, train_examples, dev_examples)
        else:
            seen: set[Row] = set()
            for split, count in (("dev", dev_examples), ("train", train_examples)):
                rows = _draw(world, task, split, count, _maker(world, task, split), seen)
                formats.write_tsv(folder / "glue" / task / f"{split}.tsv", *_LAYOUTS[task](rows))


def _maker(world: World, task: str, split: str) -> Maker:
    if task == "CoLA":
        return lambda rng: sentence_tasks.acceptability(rng, world)
    if task == "SST-2":
        opinions = sentence_tasks.known_opinions(world) if split == "train" else world.opinions
        return lambda rng: sentence_tasks.sentiment(rng, opinions)
    return lambda rng: _PAIR_MAKERS[task](rng, world)


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
        formats.write_tsv(folder / "glue" / "MNLI" / f"{split}.tsv", *formats.mnli(rows, genre, annotators))


def _write_squad(folder: Path, world: World, version: str, counts: dict[str, int]) -> None:
    seen: set[str] = set()
    for split, count in counts.items():
        rng = Random(f"{world.seed}/tasks/SQuAD{version}/{split}")
        paragraphs = span_tasks.squad(rng, world, split, count, version, seen)
        # the official names: 1.1's version string is bare, 2.0's has a "v"
        formats.write_squad(
            folder / "squad" / f"{split}-{version}.json",
            version.removeprefix("v") if version == "v1.1" else version,
            paragraphs,
        )
