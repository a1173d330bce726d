"""The base of every section of the settings, and types that several of them have."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """Immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
