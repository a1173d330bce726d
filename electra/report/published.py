"""Published scores, read from ``published_scores.yaml``: every figure with where it stands."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("published_scores.yaml")
GLUE_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")  # of the paper's mean
SQUAD_TASKS = ("SQuAD1.1", "SQuAD2.0")


@dataclass(frozen=True)
class Published:
    """One model's development-set scores, percent; what is not published is not there.

    Attributes:
        source: publication and table.
        glue: task -> the metric of the score card.
        glue_mean: as published, over :data:`GLUE_TASKS`.
        squad: task -> ``exact`` and ``f1``.
    """

    name: str
    source: str
    glue: dict[str, float] = field(default_factory=dict)
    glue_mean: float | None = None
    squad: dict[str, dict[str, float]] = field(default_factory=dict)


@cache
def published_scores() -> tuple[Published, ...]:
    """All models, in the file's order."""
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return tuple(
        Published(
            name=model["name"],
            source=", ".join([content["sources"][model["source"]], *filter(None, [model.get("where")])]),
            glue=model.get("glue", {}),
            glue_mean=model.get("glue_mean"),
            squad=model.get("squad", {}),
        )
        for model in content["models"]
    )
