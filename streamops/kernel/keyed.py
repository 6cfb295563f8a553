"""What is known of a table whose rows have keys, of which the changes come in any order."""

from __future__ import annotations

from typing import Literal, Protocol

import pyarrow as pa

from streamops.kernel.changes import CHANGE_TYPE

__all__ = [
    "CHANGED_AT",
    "COMMIT",
    "REASONS",
    "REJECTED",
    "SAID",
    "SEQUENCE",
    "SNAPSHOT",
    "TOMBSTONE",
    "UNAVAILABLE",
    "KeyedTable",
    "Snapshots",
    "WhenFull",
]

Snapshots = Literal["below_log", "by_sequence"]
WhenFull = Literal["fail", "reject"]

SEQUENCE = "_sequence"
SNAPSHOT = "_snapshot"
UNAVAILABLE = "_unavailable"
CHANGED_AT = "_changed_at"
TOMBSTONE = "_tombstone"
REJECTED = "rejected"

SAID = (CHANGE_TYPE, SEQUENCE, SNAPSHOT, UNAVAILABLE, CHANGED_AT, TOMBSTONE, REJECTED)
"""Columns that say something of a change, and are no value of the row."""

COMMIT = ("_commit_version", "_commit_timestamp")
"""The same, of Delta's change data feed."""

REASONS = (
    "unknown_operation",
    "null_key",
    "no_sequence",
    "null_time",
    "time_out_of_range",
    "conflict",
    "forgotten",
    "full",
)
"""Why a change is rejected; the first that applies."""


class KeyedTable(Protocol):
    """What the machinery that remembers rows of a table must know of its changes."""

    @property
    def where(self) -> str:
        """The operator, for errors."""

    @property
    def by(self) -> tuple[str, ...]:
        """Key columns."""

    @property
    def sequence(self) -> tuple[str, ...]:
        """Columns that order the changes of a key."""

    @property
    def time(self) -> str | None:
        """Column by which deletes grow old; else they do by the sequence, a whole number."""

    @property
    def values(self) -> tuple[str, ...]:
        """The other columns of the row."""

    @property
    def input(self) -> pa.Schema:
        """The columns that are read."""

    @property
    def snapshots(self) -> Snapshots:
        """Whether rows of a snapshot lose against all of the log."""

    @property
    def limit(self) -> int:
        """Keys that one shard may keep."""

    @property
    def when_full(self) -> WhenFull:
        """What happens to changes of further ones."""

    @property
    def position(self) -> pa.DataType:
        """Type of a place in the order of changes."""

    def cutoff(self, newest: int) -> int:
        """What is older is beyond the horizon."""
