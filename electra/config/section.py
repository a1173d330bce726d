"""Base class of all sections of the settings, and types that several sections use."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0, le=1)]
# The random generator of a step is seeded with a product of seed, step and micro-batch, which must stay below 2**64.
# Strict, because DVC copies the seed from the file into commands, and `true` or 1.0 would name another run than 1.
Seed = Annotated[int, Field(strict=True, ge=0, le=100_000_000)]


class Section(BaseModel):
    """Base class of sections: immutable, without unknown keys, all numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
