"""The spec of a comparison, and the windows that it compares.

The table of windows of a comparison: the windows of each key, stored and arrived.

A table of windows has the keys, the columns ``start`` and ``end``, and ``value.0``, ``value.1``,
... With corrections also ``revision`` (the one last published of its result, -1 for none),
``source`` (the revision it arrived with) and ``is_there`` (false after a delete).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, DELETE, REVISION
from streamops.kernel.calendar import CalendarPeriod, FixedPeriod, Period, Unit
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    key_codes,
    rows_differ,
    take,
    timestamp_micros,
)
from streamops.kernel.contract import Aggregation
from streamops.kernel.errors import ChangeStreamError, ColumnNotFound, SchemaError, SpecError
from streamops.kernel.groups import Groups, Ids, Mask, first_of, pair_codes
from streamops.kernel.parameters import refuse_taken_names, refuse_type, require_instant
from streamops.kernel.time import Instants, format_instant
from streamops.windows.core.grid_spec import require_unit, show_length
from streamops.windows.core.rows import key_fields, keys_of, micros
from streamops.windows.core.spec import INSTANT, RESERVED, Early, WindowSpec

__all__ = [
    "WIDEST_DECIMAL",
    "CompareSpec",
    "Revised",
    "WindowTable",
    "difference_type",
    "read_windows",
    "window_schema",
]

Revised = Literal["never", "upserts", "changes"]

WIDEST_DECIMAL = 38  # digits

_PREFIXES = ("previous_", "change_", "rate_")
_LATE_FIELDS = {"reason", "lateness", "watermark", "row"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSpec(WindowSpec):
    """A comparison of window results with those of the previous period.

    Parameters
    ----------
    period : int or str
        How far back: a duration or, with `zone`, a calendar unit.
    zone : str, optional
        Time zone of the unit.
    values : tuple of str
        The columns that are compared.
    revised : str
        Filled in by ``bind``: how the input is revised: never, by upserts with a revision, or by
        a change stream.
    """

    # The windows of the input have determined these.
    time: str = field(default="window_end", init=False, repr=False)
    agg: tuple[tuple[str, Aggregation], ...] = field(default=(), init=False, repr=False)
    early: Early = field(default="never", init=False, repr=False)

    period: int | Unit = field(metadata={"shown": show_length, "first": True})
    zone: str | None = field(metadata={"first": True})
    values: tuple[str, ...] = field(metadata={"first": True})
    revised: Revised = field(default="never", repr=False)

    def __post_init__(self) -> None:
        WindowSpec.__post_init__(self)
        if self.zone is not None:
            require_unit(self.period, self.zone, "monday", parameter="period", where=self.operator)
        self.refuse_too_late_without_corrections()
        if not self.values:
            raise SpecError(
                "NO_VALUE",
                "nothing to compare",
                where=self.operator,
                got=f"values={self.values!r}",
                expected="the name of at least one column",
                fix='values="views", say: a column of the windows before',
            )
        added = [name for v in self.values for name in (v, *(prefix + v for prefix in _PREFIXES))]
        given = {"by": list(self.by), "values": list(self.values)}
        fix = "rename the column, or leave it out"
        refuse_taken_names([*self.by, *added], RESERVED, given, fix, self.operator)

    def bind(self, schema: pa.Schema, *, carried: int | None) -> Self:
        """Return the spec over these columns."""
        self._refuse_other_frames(schema)
        bound = WindowSpec.bind(self, schema, carried=carried)
        for name in self.values:
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=self.operator, role="values")
            self._require_number(schema, name)
        revised = self._revised(schema)
        read = {*bound.input.names, *self.values}
        if revised != "never":
            read.add(REVISION)
        if revised == "changes":
            read.add(CHANGE_TYPE)
        columns = pa.schema([f for f in schema if f.name in read])
        return replace(bound, revised=revised, input=columns)

    @property
    def accepts_revisions(self) -> tuple[bool, ...]:
        """The input is the results of windows."""
        return (True,)

    @property
    def extra_columns(self) -> Mapping[str, str]:
        """The start of the window."""
        return {"window_start": "window_start"}

    @property
    def previous_period(self) -> Period:
        """Finds the window one period before another."""
        if isinstance(self.period, int):
            return FixedPeriod(self.period)
        assert self.zone is not None, "without a zone the period is a duration"
        return CalendarPeriod(self.period, self.zone)

    @property
    def value_columns(self) -> list[tuple[str, pa.DataType]]:
        """Name and type of the columns that a result has per key and window."""
        columns = []
        for name in self.values:
            dtype = self.input.field(name).type
            columns += [(name, dtype), (f"previous_{name}", dtype)]
            columns += [(f"change_{name}", difference_type(dtype)), (f"rate_{name}", pa.float64())]
        return columns

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Columns of the output that hold values of an input column."""
        pairs = ((name, (0, name)) for name in (*self.by, *self.values))
        return {**dict(pairs), **{f"previous_{name}": (0, name) for name in self.values}}

    @property
    def window_identity(self) -> Mapping[str, Any]:
        """The period."""
        return self.previous_period.identity

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that a checkpoint depends on."""
        own = {
            "values": [[name, str(self.input.field(name).type)] for name in self.values],
            "revised": self.revised,
        }
        common = super(CompareSpec, self).identity
        return {name: value for name, value in common.items() if name != "agg"} | own

    def _refuse_other_frames(self, schema: pa.Schema) -> None:
        """Refuse rows that are not results of windows, and results with late rows among them."""
        where = self.operator
        if not {"window_start", "window_end"} <= set(schema.names):
            raise SchemaError(
                "NOT_WINDOWED",
                "the rows are not results of windows",
                where=where,
                got=f"columns {', '.join(schema.names)}",
                expected="window_start and window_end among them",
                fix="put it behind a window. Behind Spark's own: df.select('window', "
                "F.col('window.start').alias('window_start'), "
                "F.col('window.end').alias('window_end'), ...)",
            )
        for name in ("window_start", "window_end"):
            require_instant(schema, name, where=where, use="a border of windows")
        if "late" in schema.names and pa.types.is_struct(schema.field("late").type):
            fields = {member.name for member in schema.field("late").type}
            if fields >= _LATE_FIELDS:
                raise SchemaError(
                    "LATE_ROWS_IN_INPUT",
                    "there are late rows among the results, which are no windows",
                    where=where,
                    got="a column 'late', as routing makes it",
                    expected="results alone",
                    fix='.where("late is null").drop("late") before',
                )

    def _require_number(self, schema: pa.Schema, name: str) -> None:
        dtype = schema.field(name).type
        is_number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype)
        if not (is_number or pa.types.is_decimal(dtype)):
            fix = f"df.withColumn({name!r}, F.col({name!r}).cast('double')), or leave it out"
            refuse_type(schema, name, "a value to compare", "a number", fix, where=self.operator)

    def _revised(self, schema: pa.Schema) -> Revised:
        """Return how the results of the frame are revised; refuse revisions we cannot follow."""
        has_changes, has_revision = CHANGE_TYPE in schema.names, REVISION in schema.names
        if not (has_changes or has_revision):
            return "never"
        if not has_revision or not pa.types.is_integer(schema.field(REVISION).type):
            raise SchemaError(
                "REVISION_MISSING",
                "a change stream without a revision does not say which row is newer",
                where=self.operator,
                got=f"columns {', '.join(schema.names)}",
                expected=f"an integer column {REVISION!r} beside {CHANGE_TYPE!r}",
                fix="keep the column revision of the windows before",
            )
        wanted = ("retract",) if has_changes else ("update", "retract")
        if self.stragglers not in wanted:
            how = "a change stream" if has_changes else "results with a revision"
            raise SchemaError(
                "REVISED_INPUT",
                f"the windows are revised, and stragglers={self.stragglers!r} cannot follow",
                where=self.operator,
                got=f"{how}: a column {CHANGE_TYPE if has_changes else REVISION!r}",
                expected=" or ".join(f"stragglers={choice!r}" for choice in wanted),
                fix=f"stragglers={wanted[0]!r}, with the allowed_lateness of the windows before",
            )
        return "changes" if has_changes else "upserts"


def difference_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the difference of two values of a type."""
    if pa.types.is_decimal(dtype):
        return pa.decimal128(min(dtype.precision + 1, WIDEST_DECIMAL), dtype.scale)
    return pa.float64() if pa.types.is_floating(dtype) else pa.int64()


def window_schema(spec: CompareSpec) -> pa.Schema:
    """Columns of a table of windows."""
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    own: list[tuple[str, pa.DataType]] = [("start", pa.int64()), ("end", pa.int64())]
    if spec.corrects:
        values += [("revision", pa.int32()), ("source", pa.int64()), ("is_there", pa.bool_())]
    return pa.schema([*key_fields(spec), *own, *values])


def read_windows(spec: CompareSpec, rows: pa.Table) -> pa.Table:
    """The rows as a table of windows."""
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
    """The same with 0.0 for -0.0: they are equal, so a preimage could not tell which was published."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(values, pa.scalar(0.0, values.type))


@dataclass(frozen=True, slots=True)
class WindowTable:
    """The windows of a shard, each once, those that were stored first.

    Parameters
    ----------
    spec : CompareSpec
    table : Table
        What was stored, and below it what arrived.
    codes, start, end : arrays of int64
        Key, as a number, and place of each window.
    old, new : arrays of int64
        Rows of the table that say what a window was before and what it is now; -1 where none
        does, or where it says that there is no such window.
    latest : array of int64
        The row that arrived with the highest revision, a delete included.
    stored : int
        How many rows, and so how many windows, were stored.
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
        """The table after these windows arrived."""
        table = concat([stored, arrived]) if len(arrived) else stored
        keys = key_codes(keys_of(table, spec), len(table))
        start, end = micros(table, "start"), micros(table, "end")
        groups, _ = Groups.of(pair_codes(pair_codes(keys, start), end))
        source, is_there = np.zeros(len(table), np.int64), np.ones(len(table), np.bool_)
        if spec.corrects:
            source, is_there = (
                micros(table, "source"),
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
        """The windows that are not as they were."""
        return self.latest >= self.stored

    @property
    def revision(self) -> npt.NDArray[np.int32]:
        """The revision last published of each window, -1 for none."""
        revision = np.full(len(self), -1, np.int32)
        if self.spec.corrects:
            revision[: self.stored] = micros(self.table, "revision")[: self.stored]
        return revision

    def previous(self, chosen: Ids) -> list[Ids]:
        """Where the previous one of each of these windows may be: windows of the table, or -1."""
        candidates = self.spec.previous_period.before(self.start[chosen], self.end[chosen])
        return [self._find(self.codes[chosen], start, end) for start, end in candidates]

    def _find(self, codes: Ids, start: Instants, end: Instants) -> Ids:
        mine, theirs = (self.codes, self.start, self.end), (codes, start, end)
        key, begin, over = (np.concatenate(pieces) for pieces in zip(mine, theirs, strict=True))
        # Numbered in order of first appearance, and those of the table stand first, each once.
        found = Groups.of(pair_codes(pair_codes(key, begin), over))[0].ids[len(self) :]
        return np.where(found < len(self), found, -1)

    def about(self, chosen: Ids) -> list[pa.Array]:
        """Columns of the output that say which windows these are."""
        index = pa.array(self.latest[chosen])
        keys = [key.take(index) for key in keys_of(self.table, self.spec)]
        window = (self.start[chosen], self.end[chosen])
        return [*keys, *(pa.array(edge).cast(INSTANT) for edge in window)]

    def values(self, rows: Ids, chosen: Ids, previous: Sequence[Ids]) -> list[pa.Array]:
        """The values of windows, and below them those of their previous ones.

        Parameters
        ----------
        rows : array of int64
            ``old`` or ``new``: as they were, or as they are.
        previous : sequence of arrays
            Where the previous ones may be; the first counts at which there is one.
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
        """The table of these windows."""
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
    """Refuse two different rows of one window where neither is newer than the other.

    Parameters
    ----------
    rows : array of int64
        Rows of the table.
    ids, source : arrays of int64
        The window of each, and the revision it arrived with.
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
    begin = int(micros(table, "start")[row])
    raise ChangeStreamError(
        "WINDOW_TWICE",
        "two rows of one key and window, and nothing tells which of them holds",
        where="windows.compare",
        got=f"values {pairs[0]} and {pairs[1]} of {keys}, window of {format_instant(begin)}",
        expected="a row for each key and window, or a higher revision in the later one",
        fix="name all key columns of the window before in `by`; of results that are corrected, "
        "keep the columns revision and _change_type",
    )
