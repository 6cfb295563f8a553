"""What the operators that remember rows of a table know of their input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.table import REJECTED, KeyedTable
from streamops.kernel.contract import Counts

__all__ = [
    "TOLD",
    "VALID_FROM",
    "VALID_TO",
    "ChangeCounts",
    "HistorySpec",
    "Publish",
    "TableSpec",
]

Publish = Literal["every change", "last"]

VALID_FROM, VALID_TO = "valid_from", "valid_to"


@dataclass(frozen=True, slots=True)
class ChangeCounts(Counts):
    """What happened to changes in a step.

    Parameters
    ----------
    stale : int
        Changes older than what is remembered of their key.
    duplicates : int
        Changes that came before, as they are.
    ignored : int
        Rows that are no change to a state: preimages, tombstones.
    deletes : int
        Rows that were deleted.
    """

    stale: int = 0
    duplicates: int = 0
    ignored: int = 0
    deletes: int = 0


TOLD = {
    "rows": "rows",
    "rejected": "rejected",
    "stale": "stale",
    "duplicates": "duplicates",
    "ignored": "ignored",
    "results": "results",
    "corrections": "corrections",
    "deletes": "deletes",
}
"""What is told of a micro-batch, and where it stands among the counts."""


@dataclass(frozen=True)
class TableSpec(KeyedTable):
    """Settings, bound to the schema of their input.

    Parameters
    ----------
    publish : str
        Which changes of a micro-batch are told.
    """

    publish: Publish

    @property
    def row(self) -> list[pa.Field]:
        """Fields of a row of the table, the key first."""
        return [self.input.field(name) for name in (*self.by, *self.values)]

    @cached_property
    def output(self) -> pa.Schema:
        """The row, how often its key was published, and what became of it."""
        told = pa.struct([("reason", pa.string()), ("row", pa.struct(list(self.input)))])
        own = [(REVISION, pa.int32()), (CHANGE_TYPE, pa.string()), (REJECTED, told)]
        return pa.schema([*self.row, *own])

    @property
    def origins(self) -> dict[str, str]:
        """Columns of the output that hold values of one of the input."""
        return {name: name for name in (*self.by, *self.values)}

    @property
    def event_time(self) -> str:
        """There is none; the column that carries what the next operator must know."""
        return REVISION

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on. The limit is not in it, nor is what is told."""
        return {
            "key": [[name, str(self.input.field(name).type)] for name in self.by],
            "values": [[name, str(self.input.field(name).type)] for name in self.values],
            "sequence": [[name, str(self.input.field(name).type)] for name in self.sequence],
            "time": self.time,
            "snapshots": self.snapshots,
        }


@dataclass(frozen=True)
class HistorySpec(TableSpec):
    """The same, of rows with their history.

    Parameters
    ----------
    track : tuple of str
        Values in which a new interval begins when they change.
    """

    track: tuple[str, ...] = field(kw_only=True)

    @cached_property
    def output(self) -> pa.Schema:
        """The row, for which interval it is valid, how often that was told, what became of it."""
        rest = list(super().output)[len(self.row) :]
        place = [pa.field(VALID_FROM, self.position), pa.field(VALID_TO, self.position)]
        row = self.row
        return pa.schema([*row[: len(self.by)], *place, *row[len(self.by) :], *rest])

    @property
    def event_time(self) -> str:
        """The column that carries what the next operator must know."""
        return REVISION

    @property
    def identity(self) -> Mapping[str, Any]:
        """What is told is computed from what is remembered, by the values that are tracked."""
        return {**super().identity, "track": list(self.track)}
