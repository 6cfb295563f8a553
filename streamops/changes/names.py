"""The columns of a stream of changes, beside those of the row."""

from __future__ import annotations

from streamops.changelog.table import (
    CHANGE_COLUMNS,
    CHANGED_AT,
    COMMIT_COLUMNS,
    REJECTED,
    SEQUENCE,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
)

__all__ = [
    "CHANGED_AT",
    "CHANGE_COLUMNS",
    "COMMIT_COLUMNS",
    "REJECTED",
    "SEQUENCE",
    "SNAPSHOT",
    "TOMBSTONE",
    "UNAVAILABLE",
]
