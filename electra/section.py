"""The base of every section of the settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
