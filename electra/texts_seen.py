"""Which texts a checkpoint has seen: ``electra trace --data``, recomputed from the order of training.

The order of the examples is a function of the seed, and the examples are cut from the documents of the corpus by the
settings. So nothing has to be recorded while a model is trained except the order and the checksums of the shards.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from electra.common.artifacts import ListedFile, listed_files, read_facts, read_manifest, sha256, verify_folder
from electra.common.corpus_file import read_documents
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.common.tensors import read_tensors
from electra.config import Settings
from electra.config.methods import METHODS
from electra.hub.export.pretrained import exported_models
from electra.objectives.saved import load_objective
from electra.pretrain.data.masking import places_of
from electra.pretrain.data.seen import Order
from electra.text.corpus.cleaned import clean_documents
from electra.text.corpus.cleaning.steps import DROPS_DOCUMENTS
from electra.text.corpus.document import text_hash
from electra.text.shards.build import CutDocument, Cutter
from electra.text.shards.layout import Shards

WEIGHTS = "model.safetensors"
SHOWN = 20  # documents of an answer that are listed
CHUNK = 4096  # examples looked up at a time
OTHER_SHARDS = "restore the shards of that run with: git checkout <commit> && dvc checkout; or run: dvc repro pretrain"


@dataclass(frozen=True)
class Checkpoint:
    """Weights of the workspace's run.

    Attributes:
        name: of the folder in ``models/milestones``; ``final`` for ``models/pretrained``.
        step: steps taken.
        shards: name -> sha256 of the files that the run was trained on.
        parent: weights that the run continued from, whose texts are not known here; empty if random.
    """

    name: str
    step: int
    order: Order
    shards: dict[str, str]
    parent: str = ""


@dataclass(frozen=True)
class Seen:
    """A document of the training text and how often it was read.

    Attributes:
        file, row: corpus file, and row in it from 0.
        fewest, most: how often its examples were read.
        first: step after which the weights had first seen a part of it; 0 if none.
        tokens: read, repetitions counted, with [CLS] and [SEP].
        words: of the document, and read: in proportion to its tokens.
    """

    document: str
    source: str
    file: str
    row: int
    fewest: int
    most: int
    first: int
    tokens: int
    words: int
    words_read: float


@dataclass
class Total:
    """Counts over documents."""

    documents: int = 0
    seen: int = 0
    tokens: int = 0
    words: int = 0
    words_read: float = 0.0

    def add(self, one: Seen) -> None:
        self.documents += 1
        self.seen += one.most > 0
        self.tokens += one.tokens
        self.words += one.words
        self.words_read += one.words_read

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "words_read": round(self.words_read),
                "epochs": round(self.words_read / max(1, self.words), 4)}  # fmt: skip


@dataclass
class Question:
    """A text that is looked for, and the documents that are it or contain it.

    Attributes:
        ids: of the documents that have this text, as it is or cleaned; or the id that was asked for.
        forms: the text as it is and cleaned, white space as single spaces; empty for an id.
        num_found: such documents of the training text; ``found`` has the first of them.
        fewest, most, first: sums of their counts, and the first step, as in :class:`Seen`.
    """

    asked: str
    ids: set[str]
    forms: set[str]
    num_found: int = 0
    fewest: int = 0
    most: int = 0
    first: int = 0
    found: list[Seen] = field(default_factory=list)
    is_held_out: bool = False

    def matches(self, document: str, text: str) -> bool:
        """Whether a document is the text or contains it."""
        return document in self.ids or any(form in text for form in self.forms)

    def note(self, one: Seen) -> None:
        """Count a document that matches."""
        self.num_found += 1
        self.fewest, self.most = self.fewest + one.fewest, self.most + one.most
        if one.most:
            self.first = min(self.first or one.first, one.first)
        if len(self.found) < SHOWN:
            self.found.append(one)

    def answer(self) -> str:
        """Return the answer in words."""
        if not self.num_found:
            return "held out" if self.is_held_out else "not in the corpus"
        if not self.most:
            return "in the corpus, not yet seen at this step"
        times = f"{self.most:,}" if self.fewest == self.most else f"{self.fewest:,} to {self.most:,}"
        where = f", in {self.num_found:,} documents" if self.num_found > 1 else ""
        return f"seen {times} time{'s' * (times != '1')}{where}, first at step {self.first:,}"

    def facts(self) -> dict[str, Any]:
        return {"asked": self.asked, "answer": self.answer(), "documents": [asdict(one) for one in self.found]}


def find_checkpoint(paths: Paths, artefact: Path) -> Checkpoint:
    """Return which weights of the workspace's run a folder holds, whatever its name.

    Args:
        artefact: ``models/pretrained``, a folder of ``models/milestones``, or an export of these for ``transformers``.

    Raises:
        DataError: it holds no weights or those of another run, or the run recorded no order of its examples.
        ConfigError: the method reads text that the order alone does not give.
    """
    folder = next((path.parent for path in [artefact / WEIGHTS, *sorted(artefact.glob(f"*/{WEIGHTS}"))]
                   if path.is_file()), None)  # fmt: skip
    if folder is None:
        raise DataError(f"there is no {WEIGHTS}", where=str(artefact), next_step="name a folder of weights")
    run = read_manifest(paths.milestones)
    if not {"order", "shards", "final"} <= run.keys():
        raise DataError(
            "the run was trained before the checksums of its shards were recorded",
            where=str(paths.milestones),
            next_step="run: dvc repro -f pretrain",
        )
    order, config = Order(**run["order"]), read_facts(paths.pretrained / "config.json")
    if METHODS[config["method"]["objective"]].next_sentences:
        raise ConfigError("examples of this method have segments of other documents, which are not traced")
    sums = {Path(entry["path"]).parts[0]: entry["sha256"] for entry in run["files"] if entry["path"].endswith(WEIGHTS)}
    steps = {"final": order.num_steps, **run["steps"]}
    sources = {"final": paths.pretrained, **{name: paths.milestones / name for name in run["steps"]}}
    if sha256(paths.pretrained / WEIGHTS) != run["final"]:
        raise DataError(
            "models/pretrained is not of the run of models/milestones",
            where=str(paths.pretrained),
            next_step="run: dvc checkout; or dvc repro pretrain",
        )
    digest = sha256(folder / WEIGHTS)
    sums["final"] = run["final"]
    found = next((name for name, sum_ in sums.items() if sum_ == digest), None)
    if found is None:
        found = next((name for name, source in sources.items() if _is_export_of(folder, source)), None)
    if found is None:
        raise DataError(
            "these weights are neither those of the workspace's run nor of one of its milestones",
            where=str(folder),
            next_step=f"name one of: {', '.join(map(str, sources.values()))}; or an export of these",
        )
    return Checkpoint(found, steps[found], order, run["shards"], run.get("initialize_from") or "")


def _is_export_of(folder: Path, source: Path) -> bool:
    theirs = read_tensors(folder / WEIGHTS)
    verify_folder(source)
    objective = load_objective(source)
    for model in exported_models(objective, objective.encoder_to_publish()):
        ours = model.weights
        if ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours):
            return True
    return False


def documents_seen(settings: Settings, paths: Paths, checkpoint: Checkpoint) -> Iterator[tuple[Seen, str]]:
    """Yield every training document with its text, in the order of the corpus; memory does not grow with it.

    Raises:
        DataError: the shards are not those of the run, or are not cut from the corpus with these settings.
    """
    listed = listed_files(paths.shards, "train-*")
    now = {file.path.name: file.sha256 for file in listed}
    if different := sorted(name for name in {*now, *checkpoint.shards} if now.get(name) != checkpoint.shards.get(name)):
        raise DataError(
            f"the shards are not those that the run was trained on: {len(different):,} files differ",
            where=str(paths.shards / different[0]),
            next_step=OTHER_SHARDS,
        )
    verify_folder(paths.shards)
    shards = Shards(paths.shards, "train")
    cutter = Cutter(paths.tokenizer / "tokenizer.json", settings.shards)
    start = 0
    for file in listed_files(paths.corpus, "train-*.parquet"):
        waiting: list[tuple[int, CutDocument, str, str]] = []
        num_waiting = 0
        for row, (document, (source, text)) in enumerate(zip(cutter.documents(file), _texts(file), strict=True)):
            waiting.append((row, document, source, text))
            num_waiting += len(document.cuts)
            if num_waiting >= CHUNK:
                yield from _looked_up(cutter, shards, checkpoint, file, waiting, start)
                start, waiting, num_waiting = start + num_waiting, [], 0
        yield from _looked_up(cutter, shards, checkpoint, file, waiting, start)
        start += num_waiting
    if start != len(shards):
        raise _not_of_the_corpus(paths.shards)


def _not_of_the_corpus(where: Path) -> DataError:
    return DataError(
        "the shards are not cut from this corpus with these settings and this tokenizer",
        where=str(where),
        next_step=OTHER_SHARDS,
    )


def _texts(file: ListedFile) -> Iterator[tuple[str, str]]:
    """Yield source and text of each row."""
    with pq.ParquetFile(file.path) as parquet:
        sources = (one for batch in parquet.iter_batches(columns=["source"]) for one in batch["source"].to_pylist())
        texts = (text for _, texts in read_documents(file.path) for text in texts)
        yield from zip(sources, texts, strict=True)


def _looked_up(
    cutter: Cutter,
    shards: Shards,
    checkpoint: Checkpoint,
    file: ListedFile,
    documents: list[tuple[int, CutDocument, str, str]],
    start: int,
) -> Iterator[tuple[Seen, str]]:
    """Yield documents whose examples begin at ``start``, after comparing these with the shards."""
    stop = start + sum(len(document.cuts) for _, document, _, _ in documents)
    if stop > len(shards):
        raise _not_of_the_corpus(file.path)
    tokens, spans = shards.gather(np.arange(start, stop))
    cut, cut_spans = np.zeros(tokens.shape, dtype=cutter.dtype), np.zeros_like(spans)
    places = ((document, number) for _, document, _, _ in documents for number in range(len(document.cuts)))
    for row, (document, number) in enumerate(places):
        cut_spans[row] = cutter.write(document, number, cut[row])
    if not (np.array_equal(cut, tokens) and np.array_equal(cut_spans, spans)):
        raise _not_of_the_corpus(file.path)
    times, first, read = examples_read(checkpoint.order, shards, checkpoint.step, start, stop)
    at = 0
    for row, document, source, text in documents:
        own = slice(at, at := at + len(document.cuts))
        fewest, most = (int(times[own].min()), int(times[own].max())) if document.cuts else (0, 0)
        # of the pieces of a document, those that were read; a length curriculum adds [CLS] and [SEP]
        total = int(spans[own, 0].sum())
        yield Seen(
            document.doc_id, source, file.path.name, row, fewest, most, int(first[own].min()) if most else 0,
            int(read[own].sum()), document.num_words, document.num_words * int(read[own].sum()) / max(1, total),
        ), text  # fmt: skip


def examples_read(
    order: Order, shards: Shards, end: int, start: int, stop: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how the examples ``start`` to ``stop`` were read in the first ``end`` steps, [stop - start] int64 each.

    Under a length curriculum an example counts as often as its most frequent piece with text.

    Returns:
        Times; the first step (counted from 1) that read a part of it, meaningless where that is none; tokens read.
    """
    times, tokens = np.zeros(stop - start, dtype=np.int64), np.zeros(stop - start, dtype=np.int64)
    first = np.full(stop - start, np.iinfo(np.int64).max)
    if start == stop:
        return times, first, tokens
    for examples, batch_size, steps in order.parts(shards, end):
        per_example = len(examples) // len(shards)
        rows = np.arange(start * per_example, stop * per_example)
        counts, positions = _visits(rows, len(examples), order.seed, steps.start * batch_size, steps.stop * batch_size)
        lengths = examples.lengths(rows)
        counts[lengths == 0] = 0
        at = np.where(counts > 0, positions // batch_size + 1, np.iinfo(np.int64).max)
        times += counts.reshape(-1, per_example).max(1)
        tokens += (counts * lengths).reshape(-1, per_example).sum(1)
        first = np.minimum(first, at.reshape(-1, per_example).min(1))
    return times, first, tokens


def _visits(examples: np.ndarray, num_examples: int, seed: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each example is at the positions ``start`` to ``stop``, and the first of its positions.

    An epoch has every example once, so that only the first and the last epoch are looked at.
    """

    @cache
    def places(epoch: int) -> np.ndarray:
        return places_of(examples, np.full(len(examples), epoch), num_examples, seed)

    (first, begins), (last, ends) = divmod(start, num_examples), divmod(max(start, stop), num_examples)
    after, before = places(first) >= begins, places(last) < ends
    counts = after.astype(np.int64) + before + (last - first - 1)
    positions = np.where(after, first * num_examples + places(first), (first + 1) * num_examples + places(first + 1))
    return counts, positions


def question(settings: Settings, paths: Paths, asked: str) -> Question:
    """Return the question for a text, for the text in a file, or for a document's id (16 hexadecimal digits).

    Raises:
        ConfigError: the text is empty.
        DataError: the file is not UTF-8.
    """
    if len(asked) == 16 and all(letter in "0123456789abcdef" for letter in asked):
        return Question(asked, {asked}, set())
    return text_question(settings, paths, read_text(Path(asked)) if _is_file(asked) else asked, asked)


def text_question(settings: Settings, paths: Paths, text: str, asked: str) -> Question:
    """Return the question for a text; it is looked for as it is, and with its lines cleaned like those of the corpus.

    Rules that drop whole documents do not apply: what is asked for may be a sentence of a longer one.
    """
    if not text.split():
        raise ConfigError("the text to look for is empty", where=asked[:80], next_step="give a text, a file or an id")
    changing = [step for step in settings.corpus.cleaning if not isinstance(step, DROPS_DOCUMENTS)]
    keep_all = {"cleaning": changing, "decontamination": None, "near_duplicates": None, "min_chars": 1}
    rules = settings.corpus.model_copy(update=keep_all)
    (cleaned,) = clean_documents(iter([text]), rules, paths.evaluation_texts)
    forms = {" ".join(one.split()) for one in (text, cleaned.text) if one.split()}
    return Question(asked, {text_hash(one)[:8].hex() for one in (text, cleaned.text) if one}, forms)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # longer than a file's name may be
        return False


def read_text(file: Path) -> str:
    """Return a file's text."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read: {error}", where=str(file), next_step="give UTF-8 text") from None


def note_held_out(paths: Paths, questions: list[Question]) -> None:
    """Mark questions whose text is in the held-out part of the corpus."""
    if all(one.num_found for one in questions):
        return
    for file in listed_files(paths.corpus, "heldout-*.parquet"):
        file.verify()
        for ids, texts in read_documents(file.path):
            for document, text in zip(ids, texts, strict=True):
                flat = " ".join(text.split())
                for one in questions:
                    one.is_held_out = one.is_held_out or one.matches(document, flat)


def trace_texts(
    settings: Settings, paths: Paths, artefact: str, questions: list[Question], as_json: bool, every: bool
) -> Iterator[str]:
    """Yield lines about the texts that a checkpoint has seen: its documents where asked for, totals, and the answers.

    Args:
        as_json: one JSON object a line; the last one has totals and answers.
        every: also a line for every document.
    """
    checkpoint = find_checkpoint(paths, Path(artefact))
    total, by_source = Total(), dict[str, Total]()
    for one, text in documents_seen(settings, paths, checkpoint):
        total.add(one)
        by_source.setdefault(one.source, Total()).add(one)
        if questions:
            flat = " ".join(text.split())
            for asked in questions:
                if asked.matches(one.document, flat):
                    asked.note(one)
        if every:
            yield json.dumps(asdict(one), ensure_ascii=False) if as_json else _document_line(one)
    note_held_out(paths, questions)
    sources = {name: counts.facts() for name, counts in by_source.items()}
    if as_json:
        facts = {
            "artefact": artefact, "checkpoint": checkpoint.name, "step": checkpoint.step,
            "num_steps": checkpoint.order.num_steps, "parent": checkpoint.parent, **total.facts(),
            "sources": sources, "answers": [asked.facts() for asked in questions],
        }  # fmt: skip
        yield json.dumps(facts, ensure_ascii=False)
        return
    yield f"{artefact}: checkpoint {checkpoint.name}, step {checkpoint.step:,} of {checkpoint.order.num_steps:,}"
    if checkpoint.parent:
        yield f"! trained on from {checkpoint.parent}, whose texts are not counted here"
    for name, counts in {"all sources": total.facts(), **sources}.items():
        yield (
            f"{name}: {counts['seen']:,} of {counts['documents']:,} documents seen, {counts['epochs']:.2f} epochs, "
            f"{counts['tokens']:,} tokens, {counts['words_read']:,} words with repetitions"
        )
    yield "the shards are those of the run, and those that the corpus gives (compared)"
    for asked in questions:
        yield f"{' '.join(asked.asked.split())[:80]!r}: {asked.answer()}"
        yield from (f"  {_document_line(one)}" for one in asked.found)


def _document_line(one: Seen) -> str:
    times = f"{one.most:,}" if one.fewest == one.most else f"{one.fewest:,} to {one.most:,}"
    first = f", first at step {one.first:,}" if one.most else ""
    return f"{one.document}  {one.source}, {one.file} row {one.row}: {times} times{first}, {one.tokens:,} tokens"
