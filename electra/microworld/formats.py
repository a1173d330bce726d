"""Writers of the official file layouts of GLUE and SQuAD.

Columns are those of the GLUE download (https://gluebenchmark.com/tasks); SQuAD's are those of its JSON release.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
