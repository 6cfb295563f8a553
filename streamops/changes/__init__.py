"""Operators on change streams."""

from streamops.changes.aggregate import aggregate

__all__ = ["aggregate"]
