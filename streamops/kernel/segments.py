"""Segments: rows of the state of a shard that are stored apart, and read only when they are needed.

The tables of a state are read and written in each step. With a large state, a core can move rows out of
them into segments: a segment is written once, never changed, and removed. The state has an index of them.

A core that uses segments continues from every state that it can be given: without any, with an index, or with
the table ``_unmerged`` instead of one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields, replace

import pyarrow as pa

LIMIT = 1 << 16
"""Size beyond which a core moves a part of its state to segments. The core says what it counts."""

INDEX = "_segments"
"""Name of the index, among the tables of a stored state."""

ROWS = "rows"
"""Name of the one table in a stored segment."""

UNMERGED = "_unmerged"
"""Name of a table of a stored state with the rows of segments, which the state tools write.

The next step moves them to segments.
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """An entry of the index.

    Parameters
    ----------
    number : int
        Identifies the segment in its shard.
    first, last : int
        The first and the last step on the time axis of the core at which its rows are needed. For
        filters, which every step reads: the cell.
    scale : int
        Its interval on this axis: from ``first >> scale << scale``, of a length of ``1 << scale``.
    rows : int
        Number of rows.
    size : int
        Bytes as stored; 0 before it is stored.
    checksum : int
        That of its frame; 0 before it is stored.
    """

    number: int
    first: int
    last: int
    scale: int
    rows: int
    size: int = 0
    checksum: int = 0


_SCHEMA = pa.schema([(column.name, pa.int64()) for column in fields(Segment)])


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a shard, in one step. Never changed: methods return others.

    Parameters
    ----------
    load : callable
        From an entry of the index to the rows of the stored segment.
    index : tuple of Segment
        All segments.
    limit : int
        Size beyond which the core moves a part of its state to segments.
    written : mapping of int to Table
        The segments that the step adds, by number.
    removed : tuple of int
        The stored segments that the step removes.
    """

    load: Callable[[Segment], pa.Table]
    index: tuple[Segment, ...]
    limit: int
    written: Mapping[int, pa.Table] = field(default_factory=dict)
    removed: tuple[int, ...] = ()

    def read(self, of: Segment) -> pa.Table:
        """The rows of a segment."""
        return self.written[of.number] if of.number in self.written else self.load(of)

    def add(self, rows: pa.Table, *, first: int, last: int, scale: int) -> Segments:
        """With one more segment."""
        number = 1 + max((of.number for of in self.index), default=0)
        added = Segment(number, first, last, scale, len(rows))
        return replace(self, index=(*self.index, added), written={**self.written, number: rows})

    def remove(self, segments: Collection[Segment]) -> Segments:
        """Without these segments."""
        numbers = {of.number for of in segments}
        return replace(
            self,
            index=tuple(of for of in self.index if of.number not in numbers),
            written={n: rows for n, rows in self.written.items() if n not in numbers},
            removed=(*self.removed, *sorted(numbers - self.written.keys() - {*self.removed})),
        )

    @property
    def rows(self) -> int:
        """The number of rows in all segments."""
        return sum(of.rows for of in self.index)

    @property
    def size(self) -> int:
        """Bytes of all stored segments."""
        return sum(of.size for of in self.index)


def index_table(index: Iterable[Segment]) -> pa.Table:
    """The index as a table of the state."""
    return pa.Table.from_pylist(
        [dict(zip(_SCHEMA.names, astuple(of), strict=True)) for of in index], _SCHEMA
    )


def read_index(table: pa.Table) -> tuple[Segment, ...]:
    """The index of a stored state."""
    return tuple(Segment(**row) for row in table.to_pylist())
