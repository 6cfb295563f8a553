"""Functions per key: the rows of a shard in columns, the calls in Python.

With event time, a row waits until the watermark reaches it. The rows of a key are then processed in
the order of time, `order_by` and all other columns, so the output does not depend on micro-batches. Rows
are converted to Python once per step and column, not once per key: that is where the time of a group of
its own is lost.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    key_codes,
    null_table,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.errors import CapacityError, FunctionError, StateFormatError
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.hashing import xxhash64
from streamops.kernel.ordering import ranks
from streamops.kernel.placement import ByKey, Placement, key_names
from streamops.kernel.time import (
    AFTER_ALL,
    BEFORE_ALL,
    MAX_INSTANT,
    MIN_INSTANT,
    Instants,
    advance_watermark,
)
from streamops.process.core.calls import Batch, Calls, Failure, call_keys
from streamops.process.core.spec import INSTANT, PerKeySpec
from streamops.process.core.values import from_values, row_type, state_type, to_rows, to_values

STATE = StateFormat("process.per_key", 1)

_STATE, _TIMER = "state.", "timer"
_BY = ByKey()
PLACEMENT = Placement({"keys": _BY, "timers": _BY, "rows": ByKey(key=key_names)})


@dataclass(frozen=True, slots=True)
class ProcessMetrics(Metrics):
    """Metrics of functions per key.

    Parameters
    ----------
    failed : int
        Rows and timers for which a function raised an exception, with ``errors="route"``.
    ignored : int
        Outputs that count and have no row, such as commands that were repeated.
    """

    failed: int = 0
    ignored: int = 0


METRICS_TYPE = ProcessMetrics
METRICS = {
    "rows": "rows",
    "rejected": "rejected",
    "on_time": "on_time",
    "too_late": "too_late",
    "results": "results",
    "failed": "failed",
}
"""Names of the observed metrics, and the fields that they show."""


class Ignored:
    """What a function yields for a row that only counts, as ``ignored``."""

    __slots__ = ()


IGNORED = Ignored()


def layout(spec: PerKeySpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables: keys with their state, timers, and rows that wait."""
    keys = [(f"key.{at}", field.type) for at, field in enumerate(spec.keys)]
    fields = [(_STATE + field.name, field.type) for field in spec.state]
    rows = sorted(spec.input, key=lambda field: field.name) if spec.time is not None else spec.keys
    return {
        "keys": pa.schema([*keys, *fields]),
        "timers": pa.schema([*keys, (_TIMER, pa.int64())]),
        "rows": pa.schema([pa.field(field.name, field.type) for field in rows]),
    }


def pack(spec: PerKeySpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows: what a function reads of them is not known."""
    return conform(rows, _input(spec))


def step(
    spec: PerKeySpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
) -> Step:
    """Process one micro-batch."""
    (packed,) = inputs
    tables = _read(spec, state)
    accepted, side, metrics = _accept(spec, packed, state.watermark)
    if spec.time is None:
        released, waiting = accepted, tables["rows"]
        times = np.zeros(len(released), np.int64)
        mark = BEFORE_ALL
    else:
        watermark = advance_watermark(state.watermark, watermark)
        mark = BEFORE_ALL if watermark is None else watermark
        rows = concat([tables["rows"], accepted])
        times, _ = timestamp_micros(rows.column(spec.time))
        due = times <= mark
        released, times = take(rows, np.flatnonzero(due)), times[due]
        waiting = take(rows, np.flatnonzero(~due))
    tables = {**tables, "rows": waiting}
    timers, _ = timestamp_micros(tables["timers"].column(_TIMER))
    if not len(released) and not (timers <= mark).any():
        return Step(State(watermark, tables), spec.output.empty_table(), side, metrics)
    with _without_garbage_collection():
        tables, output, failed, called = _call(spec, tables, released, times, timers, mark)
    _refuse_full(spec, tables["keys"])
    late = concat([side, failed])
    return Step(State(watermark, tables), output, late, metrics + called)


def finish(spec: PerKeySpec, state: State) -> pa.Table:
    """The output of all rows that still wait, and of all timers."""
    if spec.time is None:
        return spec.output.empty_table()
    return step(spec, state, [_input(spec).empty_table()], AFTER_ALL).output


def run(spec: PerKeySpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result, and the side output. Nothing is late, and all timers fire."""
    only = step(spec, State.empty(layout(spec)), inputs, None if spec.time is None else AFTER_ALL)
    return concat([only.output, only.late])


def next_deadline(spec: PerKeySpec, state: State) -> int | None:
    """The next watermark that releases a row, or at which a timer fires."""
    if spec.time is None:
        return None
    times = timestamp_micros(state.tables["rows"].column(spec.time))[0]
    timers = timestamp_micros(state.tables["timers"].column(_TIMER))[0]
    least = [int(part.min()) for part in (times, timers) if len(part)]
    return min(least, default=None)


def check(spec: PerKeySpec, state: State) -> None:
    """Keys and timers are stored once, and nothing is overdue."""
    printed = {name: table.to_pylist() for name, table in state.tables.items()}
    for name in ("keys", "timers"):
        table = state.tables[name]
        columns = _keys_of(spec, table) + ([table.column(_TIMER)] if name == "timers" else [])
        groups, _ = Groups.of(key_codes(columns, len(table)))
        assert groups.count == len(table), f"{name} stored twice: {printed}"
    deadline = next_deadline(spec, state)
    mark = BEFORE_ALL if state.watermark is None else state.watermark
    assert deadline is None or deadline > mark, f"overdue at {mark}: {printed}"
    assert len(state.tables["keys"]) <= spec.limit, f"too many keys: {printed}"


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the collector of cyclic garbage: it would visit a million new rows again and again.

    Measured on 1,000,000 rows of 100,000 keys: conversion to Python takes a quarter of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _input(spec: PerKeySpec) -> pa.Schema:
    """The columns of packed rows. Those that wait are stored by name."""
    return layout(spec)["rows"] if spec.time is not None else spec.input


def _read(spec: PerKeySpec, state: State) -> dict[str, pa.Table]:
    """The tables of a state, with the columns of this spec: columns may have been added."""
    wanted = layout(spec)
    tables = {name: _evolve(spec, state.tables[name], wanted[name], name) for name in wanted}
    if spec.on_timer is None and len(tables["timers"]):
        _refuse_state(
            spec, f"{len(tables['timers'])} timers", "no on_timer", "pass `on_timer` as before"
        )
    return tables


def _evolve(spec: PerKeySpec, table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    if table.schema.equals(schema):
        return table
    for column in table.schema:
        position = schema.get_field_index(column.name)
        field = column.name.removeprefix(_STATE)
        if position < 0 and name == "keys":
            fix = f"declare {field!r} again; a field that is no longer assigned may stay null"
            _refuse_state(spec, f"the field {field!r}", "a state without it", fix)
        if position >= 0 and schema.field(position).type != column.type:
            wanted = schema.field(position).type
            fix = f"declare {field!r} as before, and add a field for the new type"
            _refuse_state(spec, f"{field!r} of type {column.type}", f"type {wanted}", fix)
    added = [f for f in schema if f.name not in table.column_names]
    for column in added:
        field = column.name.removeprefix(_STATE)
        if name == "keys" and not spec.state.field(field).nullable:
            fix = f"declare {field!r} without NOT NULL: it is null for stored keys"
            _refuse_state(spec, f"no field {field!r}", "one that is NOT NULL", fix)
    nulls = null_table(schema, len(table))
    columns = [table.column(f.name) if f not in added else nulls.column(f.name) for f in schema]
    return pa.table(columns, schema=schema)


def _refuse_state(spec: PerKeySpec, stored: str, given: str, fix: str) -> None:
    raise StateFormatError(
        "STATE_PARAMETERS",
        "this checkpoint was written with another state",
        where=spec.operator,
        got=given,
        expected=f"{stored}, as written; fields that may be null can be added",
        fix=f"{fix}; or start from a new checkpoint",
    )


def _accept(
    spec: PerKeySpec, packed: pa.Table, previous: int | None
) -> tuple[pa.Table, pa.Table, ProcessMetrics]:
    """The rows to process, the side output, and metrics."""
    empty = spec.output.empty_table()
    reason = np.full(len(packed), "", "U32")
    for field in packed.schema:
        if not pa.types.is_timestamp(field.type):
            continue
        times, present = timestamp_micros(packed.column(field.name))
        is_time = field.name == spec.time
        # Python has no such instants. Of several reasons, that of the event time counts.
        outside = (times < MIN_INSTANT) | (times > MAX_INSTANT)
        unset = np.ones(len(packed), np.bool_) if is_time else reason == ""
        name = "time_out_of_range" if is_time else "timestamp_out_of_range"
        reason[outside & unset] = name
        if is_time:
            reason[~present] = "null_time"
    rejected = np.flatnonzero(reason != "")
    side = empty
    if len(rejected):
        rows = take(packed, rejected)
        side = _side_output(spec, rows, reason[rejected], None)
        usable = take(packed, np.flatnonzero(reason == ""))
    else:
        usable = packed
    if spec.time is None:
        return usable, side, ProcessMetrics(rows=len(packed), rejected=len(rejected))
    late = 0
    if previous is not None:
        times, _ = timestamp_micros(usable.column(spec.time))
        is_late = times <= previous
        late = int(is_late.sum())
        if late:
            rows = take(usable, np.flatnonzero(is_late))
            if spec.stragglers == "route":
                reasons = np.full(late, "too_late")
                side = concat([side, _side_output(spec, rows, reasons, previous)])
            usable = take(usable, np.flatnonzero(~is_late))
    metrics = ProcessMetrics(
        rows=len(packed), rejected=len(rejected), on_time=len(usable), too_late=late
    )
    return usable, side, metrics


def _side_output(
    spec: PerKeySpec,
    rows: pa.Table,
    reason: npt.NDArray[np.str_],
    watermark: int | None,
    times: pa.Array | None = None,
) -> pa.Table:
    """Rows of the side output, in the output schema. Without a side output, no row.

    ``times`` are those of timers, whose rows are null.
    """
    field, count = spec.side_output, len(rows)
    if field is None:
        return spec.output.empty_table()
    if times is None:
        columns = [combine_chunks(rows.column(f.name)) for f in spec.input]
        row = pa.StructArray.from_arrays(columns, fields=list(spec.input))
    else:
        row = pa.nulls(count, field.type.field("row").type)
    values: dict[str, Any] = {"reason": pa.array(reason, pa.string()), "row": row}
    if watermark is not None and spec.time is not None:
        micros, _ = timestamp_micros(rows.column(spec.time))
        values["lateness"] = pa.array(watermark - micros).cast(pa.duration("us"))
        values["watermark"] = pa.repeat(pa.scalar(watermark).cast(INSTANT), count)
    tag = pa.StructArray.from_arrays(
        [values.get(part.name, pa.nulls(count, part.type)) for part in field.type],
        fields=list(field.type),
    )
    filled: dict[str, Any] = {name: rows.column(name) for name in spec.by} | {field.name: tag}
    if spec.time is not None:
        filled[spec.time] = rows.column(spec.time) if times is None else times
    return pa.table(
        [filled.get(f.name, pa.nulls(count, f.type)) for f in spec.output], schema=spec.output
    )


def _call(
    spec: PerKeySpec,
    tables: Mapping[str, pa.Table],
    released: pa.Table,
    times: Instants,
    timers: Instants,
    mark: int,
) -> tuple[dict[str, pa.Table], pa.Table, pa.Table, ProcessMetrics]:
    """Call the functions of all keys with rows or due timers: new tables, output, failures."""
    stored = tables["keys"]
    parts = [stored, tables["timers"], released.select(spec.by)]
    keys = [
        pa.concat_arrays(pieces)
        for pieces in zip(*(_keys_of(spec, part) for part in parts), strict=True)
    ]
    sizes = [len(stored), len(tables["timers"]), len(released)]
    groups, firsts = Groups.of(key_codes(keys, sum(sizes)))
    of_stored, of_timers, of_rows = np.split(groups.ids, np.cumsum(sizes)[:-1])
    is_touched = np.zeros(groups.count, np.bool_)
    is_touched[of_rows] = True
    is_touched[of_timers[timers <= mark]] = True
    touched = np.flatnonzero(is_touched)
    slot = np.full(groups.count, -1, np.int64)
    slot[touched] = np.arange(len(touched))

    order = _order(spec, released, slot[of_rows], times)
    released, times, of_rows = take(released, order), times[order], slot[of_rows][order]
    key_columns = [key.take(pa.array(firsts[touched])) for key in keys]
    states = _States(spec, stored, of_stored, touched)
    batch = Batch(
        keys=_key_values(spec, key_columns, len(touched)),
        rows=to_rows(released.select(spec.input.names)),
        times=times.tolist(),
        starts=np.searchsorted(of_rows, np.arange(len(touched) + 1)).tolist(),
        states=states.load(),
        timers=_timers_by_key(slot[of_timers], timers, len(touched)),
        reload=states.reload,
        hashes=lambda key: int(np.uint64(xxhash64([c.slice(key, 1) for c in key_columns])[0])),
        watermark=mark,
    )
    calls = call_keys(spec, batch)

    table = pa.table(key_columns, names=spec.by) if spec.by else null_table(pa.schema([]), 0)
    output, ignored = _output(spec, calls, table)
    failed = _failures(spec, calls.failures, table, released)
    metrics = ProcessMetrics(results=len(output), failed=len(calls.failures), ignored=ignored)
    schemas = layout(spec)
    is_kept = np.ones(len(stored), np.bool_)
    is_kept[states.positions[states.positions >= 0]] = False
    new = states.store(batch, key_columns, schemas["keys"])
    untouched = tables["timers"].filter(pa.array(slot[of_timers] < 0))
    counts = np.array([len(item) for item in batch.timers], np.int64)
    index = pa.array(np.repeat(np.arange(len(touched)), counts))
    pending = pa.array([time for item in batch.timers for time in item], pa.int64())
    set_timers = pa.table(
        [*(column.take(index) for column in key_columns), pending], schema=schemas["timers"]
    )
    after = {
        "keys": concat([stored.filter(pa.array(is_kept)), new]),
        "timers": concat([untouched, set_timers]),
        "rows": tables["rows"],
    }
    return after, output, failed, metrics


@dataclass(slots=True)
class _States:
    """The stored states of the keys that are called."""

    spec: PerKeySpec
    stored: pa.Table
    of_stored: Ids
    touched: Ids

    @property
    def positions(self) -> Ids:
        """The row of each key in the stored table, or -1."""
        found = np.full(max(int(self.touched.max(initial=-1)) + 1, 1), -1, np.int64)
        inside = self.of_stored < len(found)
        found[self.of_stored[inside]] = np.flatnonzero(inside)
        positions: Ids = found[self.touched]
        return positions

    def load(self, keys: Ids | None = None) -> list[Any]:
        """New objects with the states of all keys, or of these."""
        positions = self.positions if keys is None else self.positions[keys]
        made = state_type(tuple(self.spec.state.names))
        if not self.spec.state.names:
            return [made() for _ in positions]
        is_new = positions < 0
        columns = []
        for field, value in zip(self.spec.state, self.spec.initial_values, strict=True):
            column = combine_chunks(self.stored.column(_STATE + field.name))
            # Initial values go through Arrow, too: no two keys share a list.
            initial = from_values([value], field, where=self.spec.operator, what="state")
            both = pa.concat_arrays([column, initial])
            index = np.where(is_new, len(column), positions)
            columns.append(to_values(both.take(pa.array(index))))
        return list(map(made, *columns))

    def reload(self, key: int) -> Any:
        """A new object with the state of one key."""
        return self.load(np.array([key]))[0]

    def store(self, batch: Batch, keys: list[pa.Array], schema: pa.Schema) -> pa.Table:
        """The states after the calls. A state that is as the initial one is not stored."""
        names, spec = self.spec.state.names, self.spec
        if not names:
            return schema.empty_table()
        get = attrgetter(*names)
        values = [get(s) for s in batch.states] if len(names) > 1 else [(get(s),) for s in batch.states]
        made = state_type(tuple(names))
        first = get(self._initial(made)) if len(names) > 1 else (get(self._initial(made)),)
        changed = [at for at, value in enumerate(values) if value != first]
        columns = list(zip(*(values[at] for at in changed), strict=True)) or [()] * len(names)
        arrays = [
            from_values(list(column), field, where=spec.operator, what="state")
            for column, field in zip(columns, spec.state, strict=True)
        ]
        index = pa.array(np.array(changed, np.int64))
        return pa.table([*(key.take(index) for key in keys), *arrays], schema=schema)

    def _initial(self, made: Any) -> Any:
        pairs = zip(self.spec.state, self.spec.initial_values, strict=True)
        return made(*(to_values(pa.array([value], field.type))[0] for field, value in pairs))


def _order(spec: PerKeySpec, rows: pa.Table, slots: Ids, times: Instants) -> Ids:
    """The order of processing: by key, time, the tie-break, and all other columns."""
    if spec.time is None:
        return np.argsort(slots, kind="stable")
    order = np.lexsort((times, slots))
    slots, times = slots[order], times[order]
    same = (slots[1:] == slots[:-1]) & (times[1:] == times[:-1])
    if not same.any():
        return order
    tied = np.zeros(len(order), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    positions = np.flatnonzero(tied)
    rest = sorted({*rows.column_names} - {*spec.by, spec.time, *spec.order_by})
    ties = take(rows.select([*spec.order_by, *rest]), order[positions])
    by = [ranks(combine_chunks(column)) for column in ties.columns]
    again = np.lexsort((*reversed(by), times[positions], slots[positions]))
    order[positions] = order[positions[again]]
    return order


def _timers_by_key(slots: Ids, timers: Instants, count: int) -> list[list[int]]:
    """The sorted timers of each key."""
    mine = slots >= 0
    slots, timers = slots[mine], timers[mine]
    if not len(slots):
        return [[] for _ in range(count)]
    order = np.lexsort((timers, slots))
    bounds = np.searchsorted(slots[order], np.arange(count + 1)).tolist()
    ordered = timers[order].tolist()
    return [ordered[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def _key_values(spec: PerKeySpec, columns: list[pa.Array], count: int) -> list[Any]:
    made = row_type(spec.by, "Key")
    if not columns:
        return [made()] * count
    return list(map(made._make, zip(*map(to_values, columns), strict=True)))


def _keys_of(spec: PerKeySpec, table: pa.Table) -> list[pa.Array]:
    """Key columns of a table of the state, which come first."""
    return [combine_chunks(table.column(at)) for at in range(len(spec.by))]


def _output(spec: PerKeySpec, calls: Calls, keys: pa.Table) -> tuple[pa.Table, int]:
    """The rows that the functions yielded, and the number of those that were ignored."""
    yielded, times = calls.output, calls.times
    of_key = np.repeat(np.arange(len(calls.counts)), np.array(calls.counts, np.int64))
    ignored = 0
    types = set(map(type, yielded))
    if Ignored in types:
        chosen = [at for at, row in enumerate(yielded) if type(row) is not Ignored]
        ignored = len(yielded) - len(chosen)
        yielded, times = [yielded[at] for at in chosen], [times[at] for at in chosen]
        of_key = of_key[np.array(chosen, np.int64)]
    names = spec.columns.names
    if any(not issubclass(type_, tuple | list) for type_ in types - {Ignored}):
        yielded = [_as_tuple(spec, row) for row in yielded]
    try:
        columns = list(zip(*yielded, strict=True)) or [()] * len(names)
    except (TypeError, ValueError):
        columns = []
    if len(columns) != len(names) or any(len(row) != len(names) for row in yielded[:1]):
        sizes = sorted({len(row) for row in yielded})
        raise _bad_row(spec, f"rows of {' or '.join(map(str, sizes))} values")
    arrays = [
        from_values(list(values), field, where=spec.operator, what="output")
        for values, field in zip(columns, spec.columns, strict=True)
    ]
    return _table(spec, keys, of_key, times, arrays), ignored


def _table(
    spec: PerKeySpec, keys: pa.Table, of_key: Ids, times: Sequence[int], arrays: list[pa.Array]
) -> pa.Table:
    index = pa.array(of_key)
    columns = [combine_chunks(column).take(index) for column in keys.columns]
    if spec.time is not None:
        columns.append(pa.array(times, pa.int64()).cast(INSTANT))
    columns += arrays
    if spec.side_output is not None:
        columns.append(pa.nulls(len(of_key), spec.side_output.type))
    return pa.table(columns, schema=spec.output)


def _as_tuple(spec: PerKeySpec, row: Any) -> Any:
    if isinstance(row, tuple | list):
        return row
    if not isinstance(row, Mapping):
        raise _bad_row(spec, f"a value of type {type(row).__name__}")
    names = spec.columns.names
    if unknown := sorted(row.keys() - {*names}):
        raise _bad_row(spec, f"a dict with {', '.join(map(repr, unknown))}")
    return tuple(row.get(name) for name in names)


def _bad_row(spec: PerKeySpec, got: str) -> FunctionError:
    names = spec.columns.names
    return FunctionError(
        "OUTPUT_ROW",
        "the function did not yield a row of the output",
        where=spec.operator,
        got=got,
        expected=f"a tuple of {len(names)}, or a dict: {', '.join(names)}",
        fix=f"yield ({', '.join(names)},)",
    )


def _failures(
    spec: PerKeySpec, failures: Sequence[Failure], keys: pa.Table, rows: pa.Table
) -> pa.Table:
    """Rows and timers for which a function raised an exception, as side output."""
    of_rows = [failure for failure in failures if failure.row >= 0]
    of_timers = [failure for failure in failures if failure.row < 0]
    late = [spec.output.empty_table()]
    if of_rows:
        failed = take(rows, np.array([failure.row for failure in of_rows]))
        late.append(_side_output(spec, failed, _reasons(of_rows), None))
    if of_timers:
        failed = take(keys, np.array([failure.key for failure in of_timers]))
        if not spec.by:
            failed = pa.table({"": pa.nulls(len(of_timers))})
        times = pa.array([failure.time for failure in of_timers], pa.int64()).cast(INSTANT)
        late.append(_side_output(spec, failed, _reasons(of_timers), None, times))
    return concat(late)


def _reasons(failures: Sequence[Failure]) -> npt.NDArray[np.str_]:
    return np.array([failure.reason for failure in failures], dtype=np.str_)


def _refuse_full(spec: PerKeySpec, keys: pa.Table) -> None:
    if len(keys) > spec.limit:
        raise CapacityError(
            "KEYS_FULL",
            "there are more keys than `max_keys`",
            where=spec.operator,
            got=f"{len(keys):,} keys in one shard",
            expected=f"at most {spec.limit:,} there: max_keys, divided by shards",
            fix="raise max_keys, which a checkpoint survives; or forget keys: a state equal to the initial "
            "one is not stored",
        )
