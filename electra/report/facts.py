"""Everything the report tells, read from ``results/`` and the manifests."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.common.artifacts import MANIFEST, read_json
from electra.common.errors import DataError
from electra.common.paths import SCORE_FAMILIES, Paths
from electra.config import Settings


@dataclass(frozen=True)
class Section:
    """A titled table; numbers are text already. Without columns it is its note alone."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


Curves = dict[str, list[float | None]]  # column -> values, None where a row has none; the first column is the step


@dataclass(frozen=True)
class Facts:
    """All facts about one run; a part is None where its stage has not run."""

    settings: Settings
    scores: dict[str, Any] | None
    pretrain: dict[str, Any] | None
    curves: Curves | None
    validation: dict[str, dict[str, Any]]  # suite -> report
    manifests: dict[str, dict[str, Any]]  # corpus, tokenizer, shards, tasks


def gather(settings: Settings, paths: Paths) -> Facts:
    """Read what is there.

    Raises:
        DataError: a file is broken.
    """
    folders = {"corpus": paths.corpus, "tokenizer": paths.tokenizer, "shards": paths.shards, "tasks": paths.tasks}
    tsv = paths.results / "pretrain.tsv"
    return Facts(
        settings=settings,
        scores=read_scores(paths),
        pretrain=_optional_json(paths.results / "pretrain.json"),
        curves=read_curves(tsv) if tsv.exists() else None,
        validation={
            name: report
            for name in ("corpus", "shards", "tasks")
            if (report := _optional_json(paths.results / f"validation/{name}.json"))
        },
        manifests={name: facts for name, at in folders.items() if (facts := _optional_json(at / MANIFEST))},
    )


def read_scores(paths: Paths) -> dict[str, Any] | None:
    """``results/scores.json`` with the ``tasks`` of the card's other files, GLUE first; None before evaluation.

    Raises:
        DataError: a file is missing or broken.
    """
    scores = _optional_json(paths.results / "scores.json")
    if scores is None:
        return None
    tasks = [entry for family in SCORE_FAMILIES for entry in read_json(paths.scores(family)).items()]
    return {**scores, "tasks": dict(tasks)}


def read_curves(path: Path) -> Curves:
    """Columns of a TSV of numbers; a cell may be empty.

    Raises:
        DataError: a cell is not a number, with its line.
    """
    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    curves: Curves = {name: [] for name in header}
    for line, row in enumerate(rows, 2):
        try:
            for name, cell in zip(header, row, strict=True):
                curves[name].append(float(cell) if cell else None)
        except ValueError as error:
            raise DataError(
                f"the curve has a bad row: {error}", where=f"{path}:{line}", next_step="dvc repro -f pretrain"
            ) from None
    return curves


def _optional_json(path: Path) -> Any:
    return read_json(path) if path.exists() else None
