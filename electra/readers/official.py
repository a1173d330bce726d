"""Readers of the official layouts: GLUE's tables, SQuAD's JSON, SuperGLUE's JSON lines, CoNLL's column files.

SuperGLUE (Wang et al., 2019b): one object per line, with keys given by the TaskSpec. CoNLL: one word per line with its
columns, a blank line between sentences.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.common.artifacts import sha256
from electra.common.errors import ConfigError, DataError
from electra.common.lines import open_input, text_lines
from electra.common.parsing import parse_json, shown
from electra.readers.questions import read_mrqa, read_swag
from electra.readers.tables import DOCUMENT_START, as_label, column_lines, columns_of, encoding_of, filled
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, choice_row, question_row, sentence_row, tagged_row


def read_conll(spec: TaskSpec, path: Path) -> Iterator[Row]:
    """Yield sentences in file order, with tags converted to IOB2; lines that begin a document are skipped.

    Raises:
        DataError: a line lacks columns of the layout, or its tag or entity type is unknown; names file and line.
    """
    headers = [spec.fixed_header or (), *spec.other_headers]
    columns: tuple[str, ...] = ()
    words: list[str] = []
    tags: list[str] = []
    number = 0
    for where, values in column_lines(path, encoding_of(path, spec.encodings)):
        if values is None:
            if words:
                yield tagged_row(spec, str(number), words, tags, where)
                number += 1
            words, tags = [], []
        elif values[0] != DOCUMENT_START:
            columns = columns or next((header for header in headers if len(header) == len(values)), headers[0])
            if len(values) != len(columns):
                raise DataError(
                    f"{spec.name}: expected {len(columns)} columns ({' '.join(columns)}), found {len(values)}",
                    where=where,
                    next_step="repair the line; columns are separated by spaces, sentences by blank lines",
                )
            tag = values[columns.index(spec.label)]
            check_tag(spec, tag, where)
            words.append(values[columns.index(spec.text_a)])
            tags.append(tag)


def check_tag(spec: TaskSpec, tag: str, where: str) -> None:
    """Raise DataError for a tag of an unknown scheme or an entity type that the task does not have."""
    if tag not in spec.labels:
        types = ", ".join(dict.fromkeys(label[2:] for label in spec.labels if label != "O"))
        raise DataError(
            f"{spec.name}: tag {tag!r} is not O or B-, I-, E- or S- with one of {types}",
            where=where,
            next_step=f"repair the line; the tag is the column {spec.label}",
        )


ID = "idx"


def read_json_lines(spec: TaskSpec, path: Path, labelled: bool) -> Iterator[Row]:
    """Yield rows of a classification or multiple-choice task in file order; labels ``true`` and 1 are kept as text.

    Args:
        labelled: False for a test split, whose labels are not read.

    Raises:
        DataError: a line is not an object, lacks a key, holds no text under a key, or has an unknown label; names file
            and line.
    """
    texts = [spec.text_a, *([spec.text_b] if spec.text_b else []), *spec.choices]
    wanted = [ID, *(column for text in texts for column in columns_of(text)), *([spec.label] if labelled else [])]
    with open_input(path) as file:
        for number, line in text_lines(file, str(path)):
            where = f"{path}:{number}"
            record = parse_json(line, where=where, what=f"{spec.name}: ")
            missing = [key for key in wanted if key not in record] if isinstance(record, dict) else wanted
            if missing:
                raise DataError(
                    f"{spec.name}: expected an object with {', '.join(wanted)}; {', '.join(missing)} is missing",
                    where=where,
                    next_step="use the file as SuperGLUE distributes it",
                )
            yield _row(spec, record, texts, as_label(record[spec.label]) if labelled else None, where)


def _row(spec: TaskSpec, record: dict[str, Any], texts: list[str], label: str | None, where: str) -> Row:
    def text_of(column: str) -> str:
        if not isinstance(record[column], str):
            raise DataError(f"{spec.name}: {column!r} holds no text", where=where, next_step="repair the row")
        return record[column]

    id = str(record[ID])
    first, *others = [filled(text, text_of) for text in texts]
    if spec.kind == "multiple_choice":
        return choice_row(spec, id, first, others, label, where)
    return sentence_row(spec, id, first, others[0] if others else None, label, where)


class OfficialSource:
    """Source of tasks in their official files, such as ``<glue>/<task>/{train,dev,test}.tsv``.

    Args:
        glue: folder with one folder per GLUE task; None without GLUE tasks.
        squad: folder with the SQuAD files ``{train,dev}-v{1.1,2.0}.json``; None without SQuAD tasks.
        more: folders for the other keys of ``tasks.source``.

    Attributes:
        counts: numbers of rows repaired or left out so far, by task.
    """

    def __init__(self, glue: Path | None, squad: Path | None, **more: Path | None):
        self.folders = {"glue": glue, "squad": squad, **more}
        self.counts: dict[str, Counter[str]] = {}

    def splits(self, spec: TaskSpec) -> list[str]:
        """Return the available splits; only test splits may be missing."""
        return [split for split in spec.files if not split.startswith("test") or self._path(spec, split).is_file()]

    def read(self, spec: TaskSpec, split: str) -> Iterator[Row]:
        """Yield the rows of one split, in file order.

        Raises:
            DataError: a file is missing or unreadable; a row is malformed, with its file and line.
        """
        path = self._path(spec, split)
        if not path.is_file():
            others = " or ".join(spec.other_files.get(split, ()))
            raise DataError(
                f"{spec.name}: {path} does not exist" + (f", nor {others}" if others else ""),
                next_step="add the file, or drop the task",
            )
        counts = self.counts.setdefault(spec.name, Counter())
        try:
            yield from read_official(spec, split, path, counts)
        except UnicodeDecodeError as error:
            raise DataError(f"{spec.name}: the file is not UTF-8 text: {error}", where=str(path)) from None

    def describe(self, spec: TaskSpec) -> dict[str, Any]:
        """Return the files of a task with their sha256, and the encodings if the task allows several."""
        paths = [self._path(spec, split) for split in self.splits(spec)]
        files = [{"name": path.name, "sha256": sha256(path)} for path in paths]
        if len(spec.encodings) > 1:
            files = [
                {**file, "encoding": encoding_of(path, spec.encodings)} for file, path in zip(files, paths, strict=True)
            ]
        return {"files": files}

    def _path(self, spec: TaskSpec, split: str) -> Path:
        folder = self.folders.get(spec.source)
        if folder is None:
            raise ConfigError(
                f"{spec.name} is among cells.tasks, but there is no folder to read it from",
                where=f"tasks.source.{spec.source}",
                next_step=f"set tasks.source.{spec.source}, or remove {spec.name} from cells.tasks",
            )
        return spec.path_in(folder, split)


def read_official(spec: TaskSpec, split: str, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Return the rows of one file in the layout of the task's source, in file order.

    Args:
        counts: numbers of rows repaired or left out; updated.

    Raises:
        DataError: the file is unreadable; a row is malformed, with its file and line.
    """
    labelled = not split.startswith("test")
    match spec.source:
        case "squad":
            return read_questions(spec, path, counts)
        case "mrqa":
            return read_mrqa(spec, path, counts)
        case "conll":
            return read_conll(spec, path)
        case "swag":
            return read_swag(spec, path, labelled)
        case "superglue":
            return read_json_lines(spec, path, labelled)
        case _:
            return read_sentences(spec, split, path, counts)


def read_sentences(spec: TaskSpec, split: str, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a GLUE TSV file, in which quotes have no special meaning and only a line feed ends a row."""
    with open_input(path) as file:
        numbered = text_lines(file, str(path))
        lines = ((number, line.removesuffix("\n").removesuffix("\r")) for number, line in numbered)
        is_labelled = not split.startswith("test")
        if spec.fixed_header and is_labelled:
            header = list(spec.fixed_header)
        else:
            header = next(lines, (1, ""))[1].split("\t")
        wanted = [spec.text_a] + ([spec.text_b] if spec.text_b else []) + ([spec.label] if is_labelled else [])
        if missing := [name for name in wanted if name not in header]:
            raise DataError(
                f"{spec.name}: no column {', '.join(map(repr, missing))} in the header {shown(header)}",
                where=f"{path}:1",
                next_step="use the file as GLUE distributes it",
            )
        column = {name: header.index(name) for name in wanted}
        # The ids of test rows are the file's index, as submissions need; the ids of labelled rows are their numbers.
        index = next((header.index(name) for name in ("index", "id") if name in header and not is_labelled), None)
        number = 0
        for line_number, line in lines:
            values = line.split("\t")
            if len(values) != len(header):
                if spec.may_have_broken_rows and len(values) < len(header):
                    counts["broken_rows_left_out"] += 1
                    continue
                raise DataError(
                    f"{spec.name}: expected {len(header)} tab-separated columns, found {len(values)}",
                    where=f"{path}:{line_number}",
                    next_step="repair the row; the columns are " + ", ".join(header),
                )
            yield sentence_row(
                spec,
                id=str(number) if index is None else values[index],
                text_a=values[column[spec.text_a]],
                text_b=values[column[spec.text_b]] if spec.text_b else None,
                label=values[column[spec.label]] if is_labelled else None,
                where=f"{path}:{line_number}",
            )
            number += 1


def read_questions(spec: TaskSpec, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a SQuAD file, in file order.

    Raises:
        DataError: as :func:`squad_items`; a question is malformed or an id occurs twice, with its place.
    """
    seen: set[str] = set()
    for paragraph, item, where in squad_items(spec, path):
        row = _question(spec, paragraph, item, where, counts)
        if row["id"] in seen:
            raise DataError(f"{spec.name}: question id {row['id']} stands twice", where=where)
        seen.add(row["id"])
        yield row


def squad_items(spec: TaskSpec, path: Path) -> Iterator[tuple[Any, Any, str]]:
    """Yield (paragraph, question, place) of every question of a SQuAD file, unchecked.

    Raises:
        DataError: the file is not JSON, or lacks one of the lists of a SQuAD file.
    """
    content = parse_json(path.read_bytes(), where=str(path), what=f"{spec.name}: ")
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise DataError(f"{spec.name}: no list `data`; not a SQuAD file", where=str(path))
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(_list(article, "paragraphs", spec, f"{path}: data[{a}]")):
            where = f"{path}: data[{a}].paragraphs[{p}]"
            for q, item in enumerate(_list(paragraph, "qas", spec, where)):
                yield paragraph, item, f"{where}.qas[{q}]"


def _list(holder: Any, key: str, spec: TaskSpec, where: str) -> list[Any]:
    if not isinstance(holder, dict) or not isinstance(holder.get(key), list):
        raise DataError(f"{spec.name}: expected a list `{key}`", where=where)
    return holder[key]


def _question(spec: TaskSpec, paragraph: Any, item: Any, where: str, counts: Counter[str]) -> Row:
    try:
        return question_row(
            spec,
            id=str(item["id"]),
            question=str(item["question"]),
            context=str(paragraph["context"]),
            answers=[(str(answer["text"]), int(answer["answer_start"])) for answer in item["answers"]],
            impossible=bool(item.get("is_impossible", False)),
            where=where,
            counts=counts,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{spec.name}: a question needs id, question and answers with text and answer_start: {error!r}",
            where=where,
        ) from None
