"""The windows of a comparison, stored and new.

A table of windows has the keys, the columns ``start`` and ``end``, and ``value.0``, ``value.1``, ...
With corrections also ``revision`` (the last published revision of its comparison, -1 for none),
``source`` (the revision of the input row) and ``is_there`` (false after a delete).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, DELETE
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    integers,
    key_codes,
    rows_differ,
    take,
    timestamp_micros,
)
from streamops.kernel.groups import Groups, Ids, Mask, first_of, pair_codes
from streamops.kernel.lateness import INSTANT
from streamops.kernel.time import Instants, format_instant
from streamops.windows import conditions
from streamops.windows.core.compare_spec import CompareSpec
from streamops.windows.core.tables import key_fields, keys_of


def window_schema(spec: CompareSpec) -> pa.Schema:
    """Columns of a table of windows."""
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    own: list[tuple[str, pa.DataType]] = [("start", pa.int64()), ("end", pa.int64())]
    if spec.corrects:
        values += [("revision", pa.int32()), ("source", pa.int64()), ("is_there", pa.bool_())]
    return pa.schema([*key_fields(spec), *own, *values])


def read_windows(spec: CompareSpec, rows: pa.Table) -> pa.Table:
    """Convert input rows to a table of windows."""
    count = len(rows)
    window = [pa.array(timestamp_micros(rows.column(name))[0]) for name in spec.time_columns]
    columns = [*(rows.column(name) for name in spec.by), *window]
    columns += [_unsigned(rows.column(name)) for name in spec.values]
    if spec.corrects:
        source = pa.array(np.zeros(count, np.int64))
        if spec.revised != "never":
            source = rows.column("revision").cast(pa.int64())
        is_there = np.ones(count, np.bool_)
        if spec.revised == "changes":
            is_there = np.asarray(combine_chunks(rows.column(CHANGE_TYPE))) != DELETE
        columns += [pa.array(np.full(count, -1, np.int32)), source, pa.array(is_there)]
    return pa.table(columns, schema=window_schema(spec))


def _unsigned(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace -0.0 by 0.0. They are equal, so a preimage might have the other sign."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(values, pa.scalar(0.0, values.type))


@dataclass(frozen=True, slots=True)
class WindowTable:
    """The distinct windows of a shard, the stored ones first.

    Parameters
    ----------
    spec : CompareSpec
    table : Table
        The stored rows, followed by the new ones.
    codes, start, end : arrays of int64
        Key number and interval of each window.
    old, new : arrays of int64
        The row of each window before and after the step; -1 if it does not exist or is deleted.
    latest : array of int64
        The row with the highest revision, which may be a delete.
    stored : int
        Number of stored rows, each of which is one window.
    """

    spec: CompareSpec
    table: pa.Table
    codes: Ids
    start: Instants
    end: Instants
    old: Ids
    new: Ids
    latest: Ids
    stored: int

    @staticmethod
    def of(spec: CompareSpec, stored: pa.Table, arrived: pa.Table) -> WindowTable:
        """Merge new windows into the stored ones."""
        table = concat([stored, arrived]) if len(arrived) else stored
        keys = key_codes(keys_of(table, spec), len(table))
        start, end = integers(table, "start"), integers(table, "end")
        groups, _ = Groups.of(pair_codes(pair_codes(keys, start), end))
        source, is_there = np.zeros(len(table), np.int64), np.ones(len(table), np.bool_)
        if spec.corrects:
            source, is_there = (
                integers(table, "source"),
                np.asarray(combine_chunks(table.column("is_there"))),
            )
        latest = first_of(groups.ids, groups.count)
        if groups.count < len(table):
            latest = groups.first_by(~source, is_there.astype(np.int64))
            several = np.flatnonzero(is_there & (groups.sizes() > 1)[groups.ids])
            _refuse_conflicts(spec, table, several, groups.ids[several], source[several])
        old = np.full(groups.count, -1)
        old[: len(stored)] = np.where(is_there[: len(stored)], np.arange(len(stored)), -1)
        new = np.where(is_there[latest], latest, -1)
        return WindowTable(
            spec, table, keys[latest], start[latest], end[latest], old, new, latest, len(stored)
        )

    def __len__(self) -> int:
        return len(self.latest)

    @property
    def touched(self) -> Mask:
        """A mask of the windows that have changed."""
        return self.latest >= self.stored

    @property
    def revision(self) -> npt.NDArray[np.int32]:
        """The last published revision of each window, -1 for none."""
        revision = np.full(len(self), -1, np.int32)
        if self.spec.corrects:
            revision[: self.stored] = integers(self.table, "revision")[: self.stored]
        return revision

    def previous(self, chosen: Ids) -> list[Ids]:
        """Candidates for the previous window of each of these windows: positions, or -1."""
        candidates = self.spec.previous_period.before(self.start[chosen], self.end[chosen])
        return [self._find(self.codes[chosen], start, end) for start, end in candidates]

    def _find(self, codes: Ids, start: Instants, end: Instants) -> Ids:
        stored, wanted = (self.codes, self.start, self.end), (codes, start, end)
        columns = (np.concatenate(pieces) for pieces in zip(stored, wanted, strict=True))
        key, begin, stop = columns
        # Groups are numbered in order of first appearance, and those of the table come first.
        found = Groups.of(pair_codes(pair_codes(key, begin), stop))[0].ids[len(self) :]
        return np.where(found < len(self), found, -1)

    def about(self, chosen: Ids) -> list[pa.Array]:
        """Key and window columns of the output."""
        index = pa.array(self.latest[chosen])
        keys = [key.take(index) for key in keys_of(self.table, self.spec)]
        window = (self.start[chosen], self.end[chosen])
        return [*keys, *(pa.array(edge).cast(INSTANT) for edge in window)]

    def values(self, rows: Ids, chosen: Ids, previous: Sequence[Ids]) -> list[pa.Array]:
        """The values of windows, followed by those of their previous windows.

        Parameters
        ----------
        rows : array of int64
            ``old`` or ``new``.
        previous : sequence of arrays
            Candidates for the previous window. The first one that exists is used.
        """
        before = np.full(len(chosen), -1)
        for found in reversed(previous):
            at = np.where(found < 0, -1, rows[found])
            before = np.where(at < 0, before, at)
        own = rows[chosen]
        columns = [
            combine_chunks(self.table.column(f"value.{i}")) for i in range(len(self.spec.values))
        ]
        return [
            column.take(pa.array(which, mask=which < 0))
            for which in (own, before)
            for column in columns
        ]

    def retain(self, alive: Mask, revision: npt.NDArray[np.int32]) -> pa.Table:
        """The state table with these windows and revisions."""
        if alive.all() and not self.touched.any():
            table = self.table.slice(0, self.stored)
        else:
            table = take(self.table, self.latest[alive])
        if self.spec.corrects:
            position = table.schema.get_field_index("revision")
            table = table.set_column(
                position, table.schema.field(position), pa.array(revision[alive])
            )
        return table


def _refuse_conflicts(spec: CompareSpec, table: pa.Table, rows: Ids, ids: Ids, source: Ids) -> None:
    """Refuse two different rows of the same window and revision.

    ``rows`` are positions in the table, with the ids of their windows and their revisions.
    """
    groups, firsts = Groups.of(pair_codes(ids, source))
    first = rows[firsts][groups.ids]
    columns = [combine_chunks(table.column(f"value.{i}")) for i in range(len(spec.values))]
    second_index, first_index = pa.array(rows), pa.array(first)
    differs = rows_differ(
        [c.take(first_index) for c in columns], [c.take(second_index) for c in columns]
    )
    if not differs.any():
        return
    row = int(rows[differs][0])
    keys = {name: key[row].as_py() for name, key in zip(spec.by, keys_of(table, spec), strict=True)}
    pairs = [[column[at].as_py() for column in columns] for at in (int(first[differs][0]), row)]
    begin = int(integers(table, "start")[row])
    raise conditions.WINDOW_TWICE.error(
        got=f"values {pairs[0]} and {pairs[1]} of {keys}, window of {format_instant(begin)}"
    )
