"""The columns of a stream of changes, beside those of the row."""

from __future__ import annotations

from streamops.kernel.keyed import (
    CHANGED_AT,
    COMMIT,
    REJECTED,
    SAID,
    SEQUENCE,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
)

__all__ = [
    "CHANGED_AT",
    "COMMIT",
    "REJECTED",
    "SAID",
    "SEQUENCE",
    "SNAPSHOT",
    "TOMBSTONE",
    "UNAVAILABLE",
]
