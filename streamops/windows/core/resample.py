"""Rows of a key on a grid of event time: at each multiple of a duration, the value of the row before.

The rows of a key are a series. It has one value per event time: that of the last row in their order. Each row
*governs* the instants of the grid from its event time on, up to the next row of its key, and at most
`max_gap` after it. So an instant is governed by one row or none, and a key without rows has no instants
after `max_gap`.

An instant is emitted once, as soon as no later row can change it: when the watermark reaches it or, if a
column is interpolated, when the next row is known or the watermark is `max_gap` past the row. Event time
alone decides, so results do not depend on how the stream is divided into micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, filter_rows, to_doubles
from streamops.kernel.core import State, StateFormat
from streamops.kernel.grids import expand_ranges
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.lateness import INSTANT, LATE, late_field
from streamops.kernel.operator import ShardSpec, Table, checkpointed
from streamops.kernel.parameters import (
    refuse_taken_names,
    refuse_type,
    require_choice,
    require_columns,
    show_duration,
)
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL, MAX_INSTANT, Instants
from streamops.windows import conditions
from streamops.windows.core.compare_spec import is_number
from streamops.windows.core.grid_spec import MOST_WINDOWS
from streamops.windows.core.ordered_rows import (
    OrderedCore,
    OrderedSpec,
    in_order,
    row_schema,
    stored_columns,
    times_of,
    whole_milliseconds,
)
from streamops.windows.core.spec import DURATION

Method = Literal["previous", "linear", "null"]

OBSERVED_AT = "observed_at"
"""Column of the output: the event time of the row that governs the instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResampleSpec(OrderedSpec):
    """Parameters of resampling. Durations are microseconds.

    Parameters
    ----------
    every : int
        The distance of the instants of the grid.
    values : tuple of (column, method)
        The columns, and what they have between rows.
    max_gap : int
        How long after its event time a row governs instants, at most.
    """

    every: int = checkpointed(metadata=DURATION)
    values: tuple[tuple[str, Method], ...] = checkpointed()
    max_gap: int = checkpointed(metadata=DURATION)

    def __post_init__(self) -> None:
        super(ResampleSpec, self).__post_init__()
        for name, method in self.values:
            require_choice(method, Method, parameter=f"values[{name!r}]")
        names = [name for name, _ in self.values]
        if not names:
            raise conditions.NO_METHOD.error(got="values={}")
        given = {"by": list(self.by), "time": self.time, "values": names}
        refuse_taken_names([*self.by, self.time, *names], (OBSERVED_AT, LATE), given)
        instants = self.max_gap // self.every + 1
        if instants > MOST_WINDOWS:
            raise conditions.TOO_MANY_INSTANTS.error(
                most_windows=MOST_WINDOWS,
                got=f"every={show_duration(self.every)}, max_gap={show_duration(self.max_gap)}: {instants:,} instants",
            )

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the columns. Late rows are emitted with all columns of the frame."""
        (schema,) = schemas
        names = [name for name, _ in self.values]
        require_columns(schema.names, {"values": names, "tie_break": self.tie_break})
        resolved = ShardSpec.resolve(self, schemas, carried=carried, shards=shards)
        for name, method in self.values:
            if method == "linear" and not is_number(schema.field(name).type):
                refuse_type(conditions.NUMBER_TYPE, schema, name, function=method)
        read = {*self.by, self.time, *names, *self.tie_break}
        columns = [column for column in schema if column.name in read]
        return replace(resolved, input=schema if self.routes else pa.schema(columns))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are compared or computed with."""
        return (*self.tie_break, *(name for name, method in self.values if method == "linear"))

    @property
    def stored(self) -> pa.Schema:
        """The columns that are read."""
        read = {*self.by, self.time, *self.tie_break, *(name for name, _ in self.values)}
        return pa.schema([column for column in self.input if column.name in read])

    @property
    def interpolates(self) -> bool:
        """Whether an instant depends on the row after it."""
        return any(method == "linear" for _, method in self.values)

    @property
    def held_back(self) -> int:
        """How far an instant that waits for a row can lie behind the watermark; whole milliseconds."""
        return whole_milliseconds(self.max_gap) if self.interpolates and not self.is_last else 0

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column."""
        copied = [name for name, method in self.values if method != "linear"]
        return {name: (0, name) for name in (*self.by, *copied)}

    @property
    def output(self) -> pa.Schema:
        """Keys, the instant, the values, the time of the row, and the side output."""
        fields = [self.input.field(name) for name in (*self.by, self.time)]
        values = [
            (name, pa.float64() if method == "linear" else self.input.field(name).type)
            for name, method in self.values
        ]
        late = [late_field(self.input)] if self.routes else []
        return pa.schema([*fields, *values, (OBSERVED_AT, INSTANT), *late])


class ResampleCore(OrderedCore[ResampleSpec]):
    """Rows of a key on a grid of event time."""

    STATE = StateFormat("windows.resample", 1)
    TABLES: ClassVar = {"rows": Table(row_schema)}

    def emit(
        self, spec: ResampleSpec, known: pa.Table, previous: int, now: int
    ) -> tuple[pa.Table, pa.Table]:
        """The instants that are decided."""
        series = _Series.of(spec, known)
        output = _emit(spec, series, *series.decided(spec, previous, now))
        return output, filter_rows(series.table, series.is_stored(spec, now))

    def next_deadline(self, spec: ResampleSpec, state: State) -> int | None:
        """When a row is known, or an instant is emitted that a known row governs."""
        now = BEFORE_ALL if state.watermark is None else state.watermark
        times = times_of(spec, state.tables["rows"])
        known = times[times <= now]
        # Each known row governs the next instant, or it would not be stored.
        next_instant = (now // spec.every + 1) * spec.every
        of_known = known + spec.max_gap if spec.interpolates else np.full_like(known, next_instant)
        due = np.concatenate([times[times > now], of_known])
        return int(due.min()) if len(due) else None


@dataclass(frozen=True, slots=True)
class _Series:
    """Known rows, key by key, one per event time.

    Parameters
    ----------
    table : Table
        With the columns of the state.
    times : array of int64
        Event times.
    next : array of int64
        The event time of the next row of the key; ``AFTER_ALL`` if none is known.
    first, last : arrays of int64
        The numbers of the first and the last instant that the row governs; none if ``last`` is less.
    """

    table: pa.Table
    times: Instants
    next: Instants
    first: Ids
    last: Ids

    @staticmethod
    def of(spec: ResampleSpec, table: pa.Table) -> _Series:
        """Sort rows. Of those with one event time, the last counts."""
        table, codes, times = in_order(spec, table)
        is_last_of_key = np.diff(codes, append=codes[-1:] + 1) != 0
        is_value = is_last_of_key | (np.diff(times, append=times[-1:]) != 0)
        table, times = filter_rows(table, is_value), times[is_value]
        later = np.where(is_last_of_key[is_value], AFTER_ALL, np.append(times[1:], AFTER_ALL))
        first = -(-times // spec.every)
        last = np.minimum(np.minimum(times + spec.max_gap, later - 1), MAX_INSTANT) // spec.every
        return _Series(table, times, later, first, last)

    def decided(self, spec: ResampleSpec, previous: int, watermark: int) -> tuple[Ids, Ids]:
        """The first and the last instant of each row that this watermark decides."""
        if spec.interpolates:  # a row is removed once its instants are decided
            is_decided = (self.next < AFTER_ALL) | (self.times + spec.max_gap <= watermark)
            return self.first, np.where(is_decided, self.last, self.first - 1)
        first = np.maximum(self.first, previous // spec.every + 1)
        return first, np.minimum(self.last, watermark // spec.every)

    def is_stored(self, spec: ResampleSpec, watermark: int) -> Mask:
        """Which rows govern instants that are not decided."""
        is_open: Mask = (self.next == AFTER_ALL) & (self.first <= self.last)
        if spec.interpolates:
            return is_open & (self.times + spec.max_gap > watermark)
        return is_open & (self.last > watermark // spec.every)


def _emit(spec: ResampleSpec, series: _Series, first: Ids, last: Ids) -> pa.Table:
    """Rows of the output for these instants of each row."""
    rows, numbers = expand_ranges(first, last)
    instants, times, index = numbers * spec.every, series.times[rows], pa.array(rows)
    is_observed = instants == times
    stored = stored_columns(spec)
    columns = {name: combine_chunks(series.table.column(stored[name])) for name in stored}
    output = {name: columns[name].take(index) for name in spec.by}
    edges = {spec.time: instants, OBSERVED_AT: times}
    output |= {name: pa.array(of).cast(spec.output.field(name).type) for name, of in edges.items()}
    for name, method in spec.values:
        if method == "linear":
            output[name] = _interpolate(spec, series, columns[name], rows, instants)
        elif method == "null":
            output[name] = columns[name].take(pa.array(rows, mask=~is_observed))
        else:
            output[name] = columns[name].take(index)
    if spec.routes:
        output[LATE] = pa.nulls(len(rows), spec.output.field(LATE).type)
    return pa.table([output[name] for name in spec.output.names], schema=spec.output)


def _interpolate(
    spec: ResampleSpec, series: _Series, column: pa.Array, rows: Ids, instants: Instants
) -> pa.Array:
    """Values on the line between a row and the next one, if these are at most `max_gap` apart.

    A value is never outside of both. Between an infinity and a finite number, it is that infinity.
    """
    values, is_valid = to_doubles(column), np.asarray(column.is_valid())
    following = np.minimum(rows + 1, len(values) - 1)
    elapsed, distance = instants - series.times[rows], (series.next - series.times)[rows]
    is_between = (distance <= spec.max_gap) & is_valid[following]
    before = values[rows]
    after = np.where(is_between, values[following], before)
    with np.errstate(all="ignore"):  # infinities, as IEEE 754 has them
        share, change = elapsed / distance, after - before
        found = before + change * share
        # The difference of two finite values can be infinite.
        found = np.where(np.isfinite(change), found, before * (1 - share) + after * share)
        found = np.clip(found, np.minimum(before, after), np.maximum(before, after))
    is_observed = elapsed == 0
    is_there = is_valid[rows] & (is_observed | is_between)
    return pa.array(np.where(is_observed, before, found), mask=~is_there)
