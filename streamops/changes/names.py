"""The columns of a stream of changes, beside those of the row."""

from __future__ import annotations

from streamops.kernel.changes import CHANGE_TYPE

__all__ = [
    "CHANGED_AT",
    "REJECTED",
    "SAID",
    "SEQUENCE",
    "SNAPSHOT",
    "TOMBSTONE",
    "UNAVAILABLE",
]

SEQUENCE = "_sequence"
SNAPSHOT = "_snapshot"
UNAVAILABLE = "_unavailable"
CHANGED_AT = "_changed_at"
TOMBSTONE = "_tombstone"
REJECTED = "rejected"

SAID = (CHANGE_TYPE, SEQUENCE, SNAPSHOT, UNAVAILABLE, CHANGED_AT, TOMBSTONE, REJECTED)
"""What is said of a change, and is no value of the row."""
