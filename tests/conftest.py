"""Fixtures that several rooms share."""

from hypothesis import settings

from tests.workspace import prepared, uninterrupted, workspace

__all__ = ["prepared", "uninterrupted", "workspace"]

# No test is timed: on a busy machine an example may take any time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
