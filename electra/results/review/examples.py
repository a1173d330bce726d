"""Development examples of both sides: predictions, the paired bootstrap over them, and examples that flipped.

Predictions are not in git: they are in ``models/finetuned`` of a folder, or in DVC's cache on this machine.
"""

import configparser
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from electra.common.errors import DataError, ElectraError
from electra.kinds import KINDS
from electra.kinds.scores import score
from electra.results.review.sides import Side
from electra.results.review.statistics import Difference, from_predictions
from electra.tasks.catalogue import TaskSpec, find_spec

MOST_SHOWN = 6  # flipped examples per task, split evenly between both directions if possible
_CACHE_CONFIGS = (".dvc/config.local", ".dvc/config")  # in order of precedence


@dataclass(frozen=True)
class Flip:
    """An example that only one side predicts correctly."""

    id: str
    text: str
    gold: str
    before: str
    after: str
    fixed: bool


@dataclass(frozen=True)
class Flips:
    """Flips of one task, for one seed on both sides; ``why_not`` is the reason if predictions are not available."""

    task: str
    seed: str = ""
    num_examples: int = 0
    fixed: int = 0
    broken: int = 0
    shown: list[Flip] = field(default_factory=list)
    why_not: str = ""


@dataclass(frozen=True)
class Pairs:
    """A task's development rows with the predictions of both sides."""

    spec: TaskSpec
    seed: str
    rows: list[dict[str, Any]]
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]

    def right(self, predictions: Sequence[dict[str, Any]]) -> np.ndarray | None:
        """Return how correct each prediction is, 0 to 1; None if the metric is not defined per row."""
        found = KINDS[self.spec.kind].correct(self.spec, self.rows, list(predictions))
        return None if found is None else np.array(found)


def pairs_of(task: str, before: Side, after: Side) -> Pairs | str:
    """Return rows and predictions of a seed that both sides have, or the reason why there are none."""
    seeds = [seed for seed in before.values(task) if seed in after.values(task)]
    if not seeds:
        return "no seed that both sides have"
    found = []
    for side in (before, after):
        content = _content(side, f"models/finetuned/{task}-{seeds[0]}", "predictions.jsonl")
        if content is None:
            return f"no predictions of {side.name} on this machine"
        found.append([line for line in _lines(content) if line["split"] == "dev"])
    rows = next((text for side in (after, before) if (text := _content(side, "data/tasks", f"{task}/dev.jsonl"))), None)
    if rows is None:
        return "no data/tasks of either side on this machine"
    gold = _lines(rows)
    try:
        spec = find_spec(after.folder / "data/tasks", task)
        score(spec, gold[:1], found[0][:1])
    except (ElectraError, KeyError, ValueError):
        return "its predictions are of other rows"
    if not [row["id"] for row in gold] == [line["id"] for line in found[0]] == [line["id"] for line in found[1]]:
        return "its predictions are of other rows"
    return Pairs(spec, seeds[0], gold, found[0], found[1])


def _lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.split(b"\n") if line]  # str.splitlines splits at U+2028 too


def _content(side: Side, folder: str, file: str) -> bytes | None:
    """Return a file of a DVC output: from the folder or, for a revision, from DVC's cache."""
    if side.revision is None:
        return side.read(f"{folder}/{file}")
    digest = side.hash_of(folder)
    listed = _cached(side.folder, digest) if digest and digest.endswith(".dir") else None
    hashes = {entry["relpath"]: entry["md5"] for entry in json.loads(listed)} if listed else {}
    return _cached(side.folder, hashes[file]) if file in hashes else None


def _cached(root: Path, digest: str) -> bytes | None:
    file = _cache(root) / "files/md5" / digest[:2] / digest[2:]
    return file.read_bytes() if file.is_file() else None


def _cache(root: Path) -> Path:
    """Return the folder of DVC's cache: ``cache.dir`` of its configuration, or the default."""
    for name in _CACHE_CONFIGS:
        config = configparser.ConfigParser(interpolation=None)
        try:
            config.read(root / name, encoding="utf-8")
        except configparser.Error:
            continue
        if folder := config.get("cache", "dir", fallback=""):
            return root / ".dvc" / folder  # DVC resolves it relative to the configuration file
    return root / ".dvc/cache"


def bootstrap(pairs: Pairs, metric: str, rows: float) -> Difference | None:
    """Return the interval of a difference from one seed's predictions, adjusted for ``rows`` simultaneous intervals."""
    gold, before, after = pairs.rows, pairs.before, pairs.after
    try:
        was, now = (100 * score(pairs.spec, gold, side)[metric] for side in (before, after))
        was_each, now_each = (
            KINDS[pairs.spec.kind].row_scores(pairs.spec, metric, gold, side) for side in (before, after)
        )
        if was_each is not None and now_each is not None:
            gain = 100 * (np.array(now_each) - np.array(was_each))
            return from_predictions(was, now, lambda chosen: float(gain[chosen].mean()), len(gold), rows)

        def difference_of(chosen: Any) -> float:
            drawn = [gold[number] for number in chosen]
            new, old = (score(pairs.spec, drawn, [side[n] for n in chosen])[metric] for side in (after, before))
            return 100 * float(new - old)

        return from_predictions(was, now, difference_of, len(gold), rows, draws=200)
    except (DataError, KeyError, ValueError):
        return None


def flips_of(task: str, pairs: Pairs | str) -> Flips:
    """Return the examples that only one side has right; for spans, right means an F1 of at least one half."""
    if isinstance(pairs, str):
        return Flips(task, why_not=pairs)
    before, after = pairs.right(pairs.before), pairs.right(pairs.after)
    if before is None or after is None:
        return Flips(task, why_not="its predictions are numbers, neither right nor wrong")
    fixed, broken = np.flatnonzero((before < 0.5) & (after >= 0.5)), np.flatnonzero((before >= 0.5) & (after < 0.5))
    half = MOST_SHOWN // 2
    most = max(half, MOST_SHOWN - len(broken)), max(half, MOST_SHOWN - len(fixed))
    chosen = [*fixed[: most[0]].tolist(), *broken[: most[1]].tolist()]
    shown = [_flip(pairs, number, bool(after[number] >= 0.5)) for number in chosen]
    return Flips(task, pairs.seed, len(pairs.rows), len(fixed), len(broken), shown)


def _flip(pairs: Pairs, number: int, fixed: bool) -> Flip:
    row = pairs.rows[number]
    kind = KINDS[pairs.spec.kind]
    old, new = (kind.shown(side[number]) for side in (pairs.before, pairs.after))
    return Flip(str(row["id"]), " | ".join(_texts(row)), kind.shown_gold(row), old, new, fixed)


def _texts(row: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a row: for span tasks the question, otherwise all texts."""
    if "words" in row:
        yield " ".join(row["words"])
    for key in ("question", "text_a", "text_b", "text", "choices"):
        value = row.get(key)
        if value:
            yield " / ".join(map(str, value)) if isinstance(value, list) else str(value)
