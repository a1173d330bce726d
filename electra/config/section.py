"""The base of every section of the settings, and types that several of them have."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0, le=1)]
# Random numbers of a step are seeded by a product of seed, step and micro-batch, which must stay below 2**64. Strict:
# DVC writes a seed into commands as it stands in the file, and `true` or 1.0 would be another cell than 1.
Seed = Annotated[int, Field(strict=True, ge=0, le=100_000_000)]


class Section(BaseModel):
    """Immutable, no unknown keys; a number is finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
