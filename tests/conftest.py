"""Fixtures that several rooms share."""

from tests.workspace import prepared, uninterrupted, workspace

__all__ = ["prepared", "uninterrupted", "workspace"]
