"""Functions over the rows of a key in the order of event time: SQL's ``lag(v) OVER (PARTITION BY k ORDER BY t)``.

A row is *known* once the watermark has reached its event time: then all rows before it have arrived. It is
emitted once, as soon as no later row can change its values: when it is known or, with ``lead``, when as
many rows after it are known as it reads, or the watermark is `within` past its event time. Rows that are
more than `within` apart do not see each other, so a known row is forgotten when the watermark is `within`
past it.

Event time alone decides: results do not depend on how the stream is divided into micro-batches. That holds
bit for bit. The exponentially weighted sums of a key are added up row by row, and start anew at instants
that depend on the half-life only (:func:`_weighted_sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import (
    combine_chunks,
    filter_rows,
    to_doubles,
    type_name,
)
from streamops.kernel.core import State, StateFormat
from streamops.kernel.groups import Floats, Ids, Mask
from streamops.kernel.lateness import LATE, late_field
from streamops.kernel.operator import ShardSpec, Table, checkpointed
from streamops.kernel.parameters import refuse_taken_names, refuse_type, require_columns
from streamops.kernel.time import (
    AFTER_ALL,
    BEFORE_ALL,
    Instants,
    format_duration,
)
from streamops.windows import conditions
from streamops.windows.core.compare import subtract
from streamops.windows.core.compare_spec import difference_type, is_number
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

Function = Literal["lag", "lead", "difference", "rate", "ewma"]

_HALF_LIVES = 128
"""Weighted sums start anew every so many half-lives: the weights of a period fit into a double."""

_SUMS = {
    **dict.fromkeys(("sum", "weight", "carried_sum", "carried_weight"), pa.float64()),
    "period": pa.int64(),
}


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A value of a row that depends on other rows of its key: one of the functions of this package.

    Parameters
    ----------
    function : str
        Its name, such as ``"lag"``.
    column : str
        The column that it reads.
    offset : int
        How many rows before or after the row.
    length : int, optional
        The half-life, or the time of a rate, in microseconds.
    """

    function: Function
    column: str
    offset: int = 1
    length: int | None = None

    def __post_init__(self) -> None:
        if type(self.offset) is not int or self.offset < 1:
            raise conditions.OFFSET_OUT_OF_RANGE.error(got=f"offset={self.offset!r}")

    def __repr__(self) -> str:
        arguments = [repr(self.column)]
        if self.offset != 1:
            arguments.append(str(self.offset))
        if self.length is not None:
            parameter = "half_life" if self.function == "ewma" else "per"
            arguments.append(f"{parameter}={format_duration(self.length)!r}")
        return f"{self.function}({', '.join(arguments)})"

    @property
    def copies(self) -> bool:
        """Whether it is a value of another row as it is."""
        return self.function in ("lag", "lead")

    @property
    def reads_earlier(self) -> bool:
        """Whether it reads an earlier row. An average reads the sums of the row before instead."""
        return self.function in ("lag", "difference", "rate")

    def result(self, dtype: pa.DataType) -> pa.DataType:
        """The type of its values for a column of this type."""
        if self.copies:
            return dtype
        return difference_type(dtype) if self.function == "difference" else pa.float64()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverSpec(OrderedSpec):
    """Parameters of functions over the rows of a key. Durations are microseconds.

    Parameters
    ----------
    values : tuple of (name, function)
        What is computed, under which name.
    within : int
        How far rows that see each other are apart at most.
    """

    values: tuple[tuple[str, RowFunction], ...] = checkpointed(
        lambda _, values: [[name, repr(of)] for name, of in values]
    )
    within: int = checkpointed(metadata=DURATION)

    def __post_init__(self) -> None:
        super(OverSpec, self).__post_init__()
        if not self.values:
            raise conditions.NO_FUNCTION.error(got="values={}")
        self._refuse_names([])

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the columns. All of them are in the output."""
        (schema,) = schemas
        used = {f"values: {of!r}": [of.column] for _, of in self.values}
        require_columns(schema.names, {"tie_break": self.tie_break, **used})
        resolved = ShardSpec.resolve(self, schemas, carried=carried, shards=shards)
        self._refuse_names(schema.names)
        for _, of in self.values:
            if not (of.copies or is_number(schema.field(of.column).type)):
                refuse_type(conditions.NUMBER_TYPE, schema, of.column, function=of.function)
        return replace(resolved, input=schema)

    def _refuse_names(self, columns: Sequence[str]) -> None:
        names = [name for name, _ in self.values]
        given = {"columns": list(columns)} if columns else {}
        refuse_taken_names([*columns, *names], (LATE,), {**given, "values": names})

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are compared or computed with."""
        return (*self.tie_break, *(of.column for _, of in self.values if not of.copies))

    @property
    def ahead(self) -> int:
        """How many rows after a row its values read."""
        return max((of.offset for _, of in self.values if of.function == "lead"), default=0)

    @property
    def back(self) -> int:
        """How many rows before a row its values read."""
        return max((of.offset for _, of in self.values if of.reads_earlier), default=0)

    @property
    def averages(self) -> list[RowFunction]:
        """The averages, each once."""
        return list(dict.fromkeys(of for _, of in self.values if of.function == "ewma"))

    @property
    def held_back(self) -> int:
        """How far a row that waits for others can lie behind the watermark; whole milliseconds."""
        return whole_milliseconds(self.within) if self.ahead and not self.is_last else 0

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column."""
        copied = {name: (0, of.column) for name, of in self.values if of.copies}
        return {**{name: (0, name) for name in self.input.names}, **copied}

    @property
    def output(self) -> pa.Schema:
        """The columns of the row, its values, and the side output."""
        values = [(name, of.result(self.input.field(of.column).type)) for name, of in self.values]
        late = [late_field(self.input)] if self.routes else []
        return pa.schema([*self.input, *values, *late])


def _row_schema(spec: OverSpec) -> pa.Schema:
    """Columns of the stored rows, and the sums of averages."""
    sums = [(f"average.{at}.{n}", t) for at in range(len(spec.averages)) for n, t in _SUMS.items()]
    return pa.schema([*row_schema(spec), *sums])


class OverCore(OrderedCore[OverSpec]):
    """Functions over the rows of a key in the order of event time."""

    STATE = StateFormat("windows.over", 1)
    TABLES: ClassVar = {"rows": Table(_row_schema)}

    def emit(
        self, spec: OverSpec, known: pa.Table, previous: int, now: int
    ) -> tuple[pa.Table, pa.Table]:
        """Rows whose values are decided. A row was emitted in the step that decided it."""
        rows = _Known.of(spec, known, previous)
        averages = [_weighted_sums(spec, rows, at) for at in range(len(spec.averages))]
        decided_before = ~rows.is_new & rows.decided(spec, rows.old_ends, previous)
        is_decided = rows.decided(spec, rows.ends, now)
        output = _emit(spec, rows, averages, np.flatnonzero(is_decided & ~decided_before))
        return output, filter_rows(rows.with_sums(averages), rows.is_stored(spec, now))

    def next_deadline(self, spec: OverSpec, state: State) -> int | None:
        """When a row is known, or a known one is forgotten."""
        table, watermark = state.tables["rows"], state.watermark
        now, times = BEFORE_ALL if watermark is None else watermark, times_of(spec, table)
        known = _Known.of(spec, filter_rows(table, times <= now), now)
        # Rows before one that waits are stored as long as it waits.
        waits = ~known.decided(spec, known.ends, now)
        ends = known.times[waits | ~known.have(waits)] + spec.within
        due = np.concatenate([times[times > now], ends])
        return int(due.min()) if len(due) else None


@dataclass(frozen=True, slots=True)
class _Known:
    """Known rows, key by key, in order.

    Parameters
    ----------
    table : Table
        With the columns of the state.
    times : array of int64
        Event times.
    is_new : array of bool
        Whether the row was not known in the step before.
    positions : array of int64
        The position of each row in the table.
    begins, old_ends, ends : arrays of int64
        Per row, where the rows of its key begin; behind the last one that was known before; behind the
        last one.
    """

    table: pa.Table
    times: Instants
    is_new: Mask
    positions: Ids
    begins: Ids
    old_ends: Ids
    ends: Ids

    @staticmethod
    def of(spec: OverSpec, table: pa.Table, previous: int) -> _Known:
        """Sort rows by key, event time, and what breaks ties."""
        table, codes, times = in_order(spec, table)
        is_new = times > previous
        first = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
        sizes = np.diff(first, append=len(codes))
        begins, ends = np.repeat(first, sizes), np.repeat(first + sizes, sizes)
        before = np.append(0, np.cumsum(~is_new))
        old_ends = begins + before[ends] - before[begins]
        positions = np.arange(len(codes))
        return _Known(table, times, is_new, positions, begins, old_ends, ends)

    def decided(self, spec: OverSpec, ends: Ids, watermark: int) -> Mask:
        """Which rows have all their values, with the rows of their keys up to ``ends``."""
        decided: Mask = (ends - self.positions > spec.ahead) | (
            self.times + spec.within <= watermark
        )
        return decided

    def have(self, mask: Mask) -> Mask:
        """For each row, whether a row of its key is in the mask."""
        before = np.append(0, np.cumsum(mask))
        found: Mask = before[self.ends] > before[self.begins]
        return found

    def is_stored(self, spec: OverSpec, watermark: int) -> Mask:
        """Which rows wait, or may be read by a row that waits or by a later row."""
        waits = ~self.decided(spec, self.ends, watermark)
        before = np.append(0, np.cumsum(waits))
        waiting = before[self.ends] - before[self.begins]  # the last rows of the key
        recent = self.times + spec.within > watermark
        last = max(spec.back, len(spec.averages) > 0)
        found: Mask = np.where(
            waiting > 0,
            self.ends - self.positions <= waiting + spec.back,
            recent & (self.ends - self.positions <= last),
        )
        return found

    def column(self, name: str) -> pa.Array:
        """A column of the state."""
        return combine_chunks(self.table.column(name))

    def with_sums(self, averages: Sequence[_Average]) -> pa.Table:
        """The rows with the sums of averages."""
        table = self.table
        for at, average in enumerate(averages):
            for name, values in zip(_SUMS, average.sums, strict=True):
                index = table.schema.get_field_index(f"average.{at}.{name}")
                table = table.set_column(index, table.schema.field(index), pa.array(values))
        return table


def _emit(spec: OverSpec, known: _Known, averages: Sequence[_Average], rows: Ids) -> pa.Table:
    """Rows of the output for these known rows."""
    columns, index = stored_columns(spec), pa.array(rows)
    output = [known.column(columns[name]).take(index) for name in spec.input.names]
    for name, of in spec.values:
        if of.function == "ewma":
            output.append(averages[spec.averages.index(of)].values.take(index))
            continue
        other = rows + (of.offset if of.function == "lead" else -of.offset)
        is_there = (known.begins[rows] <= other) & (other < known.ends[rows])
        other = np.where(is_there, other, rows)
        is_there &= np.abs(known.times[rows] - known.times[other]) <= spec.within
        column = known.column(columns[of.column])
        found = column.take(pa.array(other, mask=~is_there))
        if not of.copies:
            found = _difference(name, of, column.take(index), found)
        if of.function == "rate":
            assert of.length is not None
            elapsed = known.times[rows] - known.times[other]
            is_known = np.asarray(found.is_valid()) & (elapsed > 0)
            periods = np.where(is_known, elapsed, 1) / of.length
            found = pa.array(to_doubles(found) / periods, mask=~is_known)
        output.append(found)
    if spec.routes:
        output.append(pa.nulls(len(rows), spec.output.field(LATE).type))
    return pa.table(output, schema=spec.output)


def _difference(name: str, of: RowFunction, value: pa.Array, before: pa.Array) -> pa.Array:
    try:
        return subtract(value, before)
    except pa.ArrowInvalid:
        raise conditions.CHANGE_OVERFLOW.error(
            name=of.column,
            difference_type=type_name(difference_type(value.type)),
            got=f"{name!r}: {of!r}",
        ) from None


@dataclass(frozen=True, slots=True)
class _Average:
    """An average at each row, and the sums that the next rows are added to."""

    sums: list[Floats | Ids]
    values: pa.Array


def _weighted_sums(spec: OverSpec, known: _Known, at: int) -> _Average:
    """Add up values by weights that halve every half-life.

    The mean is the sum of ``x * 2**(t / half_life)``, divided by that of the weights. To fit into a double,
    the weights are relative to the start of a period of 128 half-lives. Each period has its own sums, to
    which those of the period before with a value are carried over. Finite values before that weigh less
    than ``2**-128``.
    """
    of = spec.averages[at]
    assert of.length is not None
    column, times = known.column(stored_columns(spec)[of.column]), known.times
    period = min(_HALF_LIVES * of.length, AFTER_ALL)
    number = times // period
    runs = known.positions == known.begins
    runs[1:] |= np.diff(times) > spec.within
    run = np.cumsum(runs)
    # What is added: the sums at the last row that was known before, then the value of each new row.
    is_last = ~known.is_new & (known.positions == known.old_ends - 1)
    adds = np.flatnonzero(is_last | (known.is_new & np.asarray(column.is_valid())))
    is_sum, run = is_last[adds], np.cumsum(runs)
    stored = [known.column(f"average.{at}.{name}").fill_null(0) for name in _SUMS]
    *sums, of_sums = [np.asarray(of_name) for of_name in stored]
    periods = np.where(is_sum, of_sums[adds], number[adds])
    with np.errstate(all="ignore"):  # infinities, as IEEE 754 has them
        age = (times - number * period)[adds] / of.length
        weights = np.exp2(age - _HALF_LIVES / 2)
        products = to_doubles(column)[adds] * weights
        own = [
            np.where(is_sum, so_far[adds], new)
            for so_far, new in zip(sums[:2], (products, weights), strict=True)
        ]
        is_start = is_sum | (np.diff(run[adds], prepend=-1) != 0)
        is_start[1:] |= np.diff(periods) != 0
        starts = np.flatnonzero(is_start)
        own = _accumulate(own, starts)
        goes_on = run[adds[starts]] == run[adds[starts - 1]]
        goes_on[:1] = False
        decay = -_HALF_LIVES * np.minimum(periods[starts] - periods[starts - 1], _HALF_LIVES)
        sizes = np.diff(starts, append=len(adds))
        carried = []
        for total, so_far in zip(own, sums[2:], strict=True):
            carry = np.where(goes_on, np.ldexp(total[starts - 1], decay), 0.0)
            before = np.where(is_sum[starts], so_far[adds[starts]], 0.0)
            # NaN and infinities have no weight that fades: they go through all later periods.
            lasting = before + total[starts + sizes - 1]
            lasting = np.where(np.isfinite(lasting), 0.0, lasting)
            (stays,) = _accumulate([lasting], np.flatnonzero(~goes_on))
            carry += np.where(goes_on, np.roll(stays, 1), 0.0)
            carry = np.where(is_sum[starts], before, carry)
            carried.append(np.repeat(carry, sizes))
    # A row without a value has the sums of the row before, unless it is behind a gap.
    added = np.zeros(len(times), np.int64)
    added[adds] = 1
    latest = np.cumsum(added) - 1
    has_sums = latest >= 0
    has_sums[has_sums] = run[adds[latest[has_sums]]] == run[has_sums]
    latest = np.where(has_sums, latest, len(adds))
    now = [
        np.where(known.is_new, np.append(new, 0)[latest], so_far)
        for new, so_far in zip((*own, *carried, periods), (*sums, of_sums), strict=True)
    ]
    with np.errstate(all="ignore"):
        weight = now[1] + now[3]
        values = pa.array((now[0] + now[2]) / weight, mask=weight == 0)
    return _Average(now, values)


def _accumulate(columns: Sequence[Floats], starts: Ids) -> list[Floats]:
    """Add up each column one after the other, anew from each start.

    Runs of similar lengths are the rows of a matrix, so that each is added up by itself: a running sum over
    all of them would have the bits of the runs before.
    """
    results = [column.copy() for column in columns]
    if not len(starts):
        return results
    lengths = np.diff(starts, append=len(columns[0]))
    widths = np.frexp(lengths - 1)[1]  # bits: of runs of 2**(w-1) + 1 to 2**w rows
    for width in np.unique(widths[lengths > 1]):
        of = widths == width
        within = np.arange(1 << int(width))
        is_there = within < lengths[of][:, None]
        cells = np.where(is_there, starts[of][:, None] + within, 0)
        for column, result in zip(columns, results, strict=True):
            summed = np.add.accumulate(np.where(is_there, column[cells], 0.0), axis=1)
            result[cells[is_there]] = summed[is_there]
    return results
