"""Thresholds that a comparison must meet: `electra compare --gate FILE`."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from electra.common.errors import ConfigError
from electra.common.parsing import read_yaml
from electra.config import Section
from electra.results.review.compare import Comparison


class Bounds(Section):
    """Thresholds of one figure."""

    at_least: float | None = Field(None, description="lowest value after")
    drop_at_most: float | None = Field(None, ge=0, description="largest drop from before to after")


class Thresholds(Section):
    """Content of the file for ``electra compare --gate``."""

    mean: Bounds = Field(Bounds(), description="mean over tasks, points")
    tasks: dict[str, Bounds] = Field({}, description="single tasks, points")
    disc_auc: Bounds = Field(Bounds(), description="the discriminator's AUC on held-out text")
    worse: int | None = Field(0, ge=0, description="most tasks that may be worse; null: any number")
    mean_worse: bool = Field(False, description="let the mean be worse")


def read_thresholds(path: Path) -> Thresholds:
    """Read and check the file for ``--gate``.

    Raises:
        ConfigError: the file does not exist or has other content.
    """
    try:
        return Thresholds.model_validate(read_yaml(path) or {})
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", where="--gate", next_step="docs/reviewing.md has one") from None
    except ValidationError as error:
        messages = "\n".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(messages, where=str(path), next_step="docs/reviewing.md lists the keys") from None


def reasons_to_refuse(found: Comparison, thresholds: Thresholds) -> list[str]:
    """Return the reasons why a comparison fails the thresholds; empty if it passes."""
    reasons: list[str] = []
    by_name = {row.name: row for row in found.rows}
    if found.mean:
        reasons += _outside("mean", found.mean.figures.before, found.mean.figures.after, thresholds.mean)
        if found.mean.verdict == "worse" and not thresholds.mean_worse:
            reasons.append(f"the mean is worse: {found.mean.figures.difference:+.1f}")
    elif thresholds.mean != Bounds():
        reasons.append("mean: no task is scored on both sides")
    for name, bounds in thresholds.tasks.items():
        if name in by_name:
            reasons += _outside(name, by_name[name].figures.before, by_name[name].figures.after, bounds)
        else:
            reasons.append(f"{name}: not scored on both sides")
    before, after = found.pretrain.get("disc_auc", (None, None))
    if thresholds.disc_auc != Bounds():
        if after is None:
            reasons.append("disc_auc: not there")
        else:
            reasons += _outside("disc_auc", after if before is None else before, after, thresholds.disc_auc)
    worse = [row.name for row in found.rows if row.verdict == "worse"]
    if thresholds.worse is not None and len(worse) > thresholds.worse:
        reasons.append(f"worse: {', '.join(worse)}; at most {thresholds.worse} may be")
    return reasons


def _outside(name: str, before: float, after: float, bounds: Bounds) -> Iterator[str]:
    if bounds.at_least is not None and after < bounds.at_least:
        yield f"{name}: {after:.4g} is below {bounds.at_least:g}"
    if bounds.drop_at_most is not None and before - after > bounds.drop_at_most:
        yield f"{name}: dropped by {before - after:.4g}, at most {bounds.drop_at_most:g} may be lost"
