"""Functions per key: the rows of a shard in columns, the calls in Python.

With event time, a row waits until the watermark reaches it. The rows of a key are then processed in
the order of time, `order_by` and all other columns, so the output does not depend on micro-batches. Rows
are converted to Python once per step and column, not once per key: that is where the time of a group of
its own is lost.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
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
from streamops.kernel.errors import FunctionError
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.hashing import xxhash64
from streamops.kernel.lateness import INSTANT, Arrivals, Lateness, build_late
from streamops.kernel.operator import Core, Table
from streamops.kernel.ordering import ranks
from streamops.kernel.placement import ByKey, key_names
from streamops.kernel.time import BEFORE_ALL, MAX_INSTANT, MIN_INSTANT, Instants, advance_watermark
from streamops.kernel.values import field_converter, is_mutable, record_values
from streamops.process import conditions
from streamops.process.core.calls import Batch, Calls, Failure, call_keys
from streamops.process.core.spec import PerKeySpec
from streamops.process.core.values import (
    converters,
    from_values,
    make_rows,
    row_type,
    settler,
    state_type,
    to_rows,
    to_values,
)


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


def accept(
    spec: PerKeySpec, packed: pa.Table, previous: int | None
) -> tuple[pa.Table, pa.Table, ProcessMetrics]:
    """The rows to process, the side output, and metrics."""
    invalid = []
    for field in packed.schema:
        if pa.types.is_timestamp(field.type) and field.name != spec.time:
            times, _ = timestamp_micros(packed.column(field.name))
            outside = (times < MIN_INSTANT) | (times > MAX_INSTANT)
            invalid.append(("timestamp_out_of_range", outside))  # Python has no such instants
    has_time = spec.time is not None
    column = packed.column(spec.time) if has_time else pa.array(np.zeros(len(packed), np.int64))
    lateness = Lateness.of(column, previous, invalid=invalid)
    filled = [name for name in (*spec.by, spec.time) if name is not None]
    arrived = Arrivals.classify(spec.output, packed, lateness, filled=filled)
    on_time = arrived.lateness.on_time
    arrived = arrived.accept(on_time, routed=~on_time & (spec.stragglers == "route"))
    metrics = ProcessMetrics(**asdict(arrived.metrics))
    return arrived.rows, arrived.late, metrics if has_time else replace(metrics, on_time=0)


def build_failures(
    spec: PerKeySpec, failures: Sequence[Failure], keys: pa.Table, rows: pa.Table
) -> pa.Table:
    """Rows and timers for which a function raised an exception, as side output."""
    of_rows = [failure for failure in failures if failure.row >= 0]
    of_timers = [failure for failure in failures if failure.row < 0]
    late = [spec.output.empty_table()]
    if of_rows:
        failed = take(rows, np.array([failure.row for failure in of_rows]))
        names = [name for name in (*spec.by, spec.time) if name is not None]
        filled = {name: failed.column(name) for name in names}
        late.append(build_late(spec.output, failed, _reasons(of_rows), filled=filled))
    if of_timers:
        index = pa.array([failure.key for failure in of_timers])
        filled = {name: keys.column(name).take(index) for name in spec.by}
        times = pa.array([failure.time for failure in of_timers], pa.int64()).cast(INSTANT)
        filled |= {str(spec.time): times}
        late.append(build_late(spec.output, None, _reasons(of_timers), filled=filled))
    return concat(late)


def _reasons(failures: Sequence[Failure]) -> dict[str, pa.Array]:
    return {"reason": pa.array([failure.reason for failure in failures], pa.string())}


_STATE, TIMER = "state.", "timer"


def _key_fields(spec: PerKeySpec) -> list[tuple[str, pa.DataType]]:
    return [(f"key.{at}", field.type) for at, field in enumerate(spec.keys)]


def key_schema(spec: PerKeySpec) -> pa.Schema:
    """Columns of the keys with their state."""
    fields = [(_STATE + field.name, field.type) for field in spec.state]
    return pa.schema([*_key_fields(spec), *fields])


def timer_schema(spec: PerKeySpec) -> pa.Schema:
    """Columns of the timers."""
    return pa.schema([*_key_fields(spec), (TIMER, pa.int64())])


def row_schema(spec: PerKeySpec) -> pa.Schema:
    """Columns of rows that wait."""
    rows = sorted(spec.input, key=lambda field: field.name) if spec.time is not None else spec.keys
    return pa.schema([pa.field(field.name, field.type) for field in rows])


def packed_schema(spec: PerKeySpec) -> pa.Schema:
    """The columns of packed rows. Those that wait are stored by name."""
    return row_schema(spec) if spec.time is not None else spec.input


def keys_of(spec: PerKeySpec, table: pa.Table) -> list[pa.Array]:
    """Key columns of a table of the state, which come first."""
    return [combine_chunks(table.column(at)) for at in range(len(spec.by))]


def read_tables(spec: PerKeySpec, state: State) -> dict[str, pa.Table]:
    """The tables of a state, with the columns of this spec: columns may have been added."""
    wanted = {"keys": key_schema(spec), "timers": timer_schema(spec), "rows": row_schema(spec)}
    tables = {name: _evolve(spec, state.tables[name], wanted[name], name) for name in wanted}
    if spec.on_timer is None and len(tables["timers"]):
        _refuse_state(f"{len(tables['timers'])} timers", "no on_timer", "pass `on_timer` as before")
    return tables


def _evolve(spec: PerKeySpec, table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    if table.schema.equals(schema):
        return table
    for column in table.schema:
        position = schema.get_field_index(column.name)
        field = column.name.removeprefix(_STATE)
        if position < 0 and name == "keys":
            fix = f"declare {field!r} again; a field that is no longer assigned may stay null"
            _refuse_state(f"the field {field!r}", "a state without it", fix)
        if position >= 0 and schema.field(position).type != column.type:
            wanted = schema.field(position).type
            fix = f"declare {field!r} as before, and add a field for the new type"
            _refuse_state(f"{field!r} of type {column.type}", f"type {wanted}", fix)
    added = [f for f in schema if f.name not in table.column_names]
    for column in added:
        field = column.name.removeprefix(_STATE)
        if name == "keys" and not spec.state.field(field).nullable:
            fix = f"declare {field!r} without NOT NULL: it is null for stored keys"
            _refuse_state(f"no field {field!r}", "one that is NOT NULL", fix)
    nulls = null_table(schema, len(table))
    columns = [table.column(f.name) if f not in added else nulls.column(f.name) for f in schema]
    return pa.table(columns, schema=schema)


def _refuse_state(stored: str, given: str, fix: str) -> None:
    raise conditions.STATE_PARAMETERS.error(remedy=fix, stored=stored, got=given)


@dataclass(slots=True)
class States:
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

    @property
    def _type(self) -> Any:
        return state_type(tuple(self.spec.state))

    def load(self, keys: Ids | None = None) -> list[Any]:
        """New objects with the states of all keys, or of these."""
        positions = self.positions if keys is None else self.positions[keys]
        made = self._type
        if not self.spec.state.names:
            return [made() for _ in positions]
        is_new = positions < 0
        columns = []
        for field, value in zip(self.spec.state, self.spec.initial_values, strict=True):
            column = combine_chunks(self.stored.column(_STATE + field.name))
            # Initial values go through Arrow, too: no two keys share a list.
            initial = from_values([value], field, what="state")
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
        values = (
            [get(s) for s in batch.states] if len(names) > 1 else [(get(s),) for s in batch.states]
        )
        given = zip(spec.state, spec.initial_values, strict=True)
        first = tuple(field_converter(field)(value) for field, value in given)
        # As text, -0.0 is not 0.0, which is not the same to a function, and NaN is NaN.
        text = repr(first)
        has_nan = "nan" in text
        changed = [
            at
            for at, value in enumerate(values)
            if (value != first and not has_nan) or repr(value) != text
        ]
        columns = list(zip(*(values[at] for at in changed), strict=True)) or [()] * len(names)
        arrays = [
            from_values(list(column), field, what="state")
            for column, field in zip(columns, spec.state, strict=True)
        ]
        index = pa.array(np.array(changed, np.int64))
        return pa.table([*(key.take(index) for key in keys), *arrays], schema=schema)


class Ignored:
    """What a function yields for a row that only counts, as ``ignored``."""

    __slots__ = ()


IGNORED = Ignored()


class PerKeyCore(Core[PerKeySpec]):
    """Functions per key: the rows of a shard in columns, the calls in Python."""

    STATE = StateFormat("process.per_key", 1)
    TABLES: ClassVar = {
        "keys": Table(key_schema),
        "timers": Table(timer_schema),
        "rows": Table(row_schema, ByKey(key=key_names)),
    }
    METRICS_TYPE = ProcessMetrics
    METRICS: ClassVar = {
        "rows": "rows",
        "rejected": "rejected",
        "on_time": "on_time",
        "too_late": "too_late",
        "results": "results",
        "failed": "failed",
        "ignored": "ignored",
    }
    """Names of the observed metrics, and the fields that they show."""

    def pack(self, spec: PerKeySpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """The rows: what a function reads of them is not known."""
        return conform(rows, packed_schema(spec))

    def step(
        self, spec: PerKeySpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch."""
        (packed,) = inputs
        tables = read_tables(spec, state)
        accepted, side, metrics = accept(spec, packed, state.watermark)
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
        timers, _ = timestamp_micros(tables["timers"].column(TIMER))
        if not len(released) and not (timers <= mark).any():
            return Step(State(watermark, tables), spec.output.empty_table(), side, metrics)
        with _without_garbage_collection():
            tables, output, failed, called = _call(spec, tables, released, times, timers, mark)
        if len(tables["keys"]) > spec.limit:
            count = f"{len(tables['keys']):,} keys in one shard"
            raise conditions.KEYS_FULL.error(limit=spec.limit, got=count)
        late = concat([side, failed])
        return Step(State(watermark, tables), output, late, metrics + called)

    def next_deadline(self, spec: PerKeySpec, state: State) -> int | None:
        """The next watermark that releases a row, or at which a timer fires."""
        if spec.time is None:
            return None
        times = timestamp_micros(state.tables["rows"].column(spec.time))[0]
        timers = timestamp_micros(state.tables["timers"].column(TIMER))[0]
        least = [int(part.min()) for part in (times, timers) if len(part)]
        return min(least, default=None)

    def check(self, spec: PerKeySpec, state: State) -> None:
        """Keys and timers are stored once, and nothing is overdue."""
        printed = {name: format_rows(table) for name, table in state.tables.items()}
        for name in ("keys", "timers"):
            table = state.tables[name]
            columns = keys_of(spec, table) + ([table.column(TIMER)] if name == "timers" else [])
            groups, _ = Groups.of(key_codes(columns, len(table)))
            assert groups.count == len(table), f"{name} stored twice: {printed}"
        deadline = self.next_deadline(spec, state)
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
        for pieces in zip(*(keys_of(spec, part) for part in parts), strict=True)
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
    states = States(spec, stored, of_stored, touched)
    read = released.select(spec.input.names)
    mutable = [field.name for field in spec.result if is_mutable(field.type)]
    convert = converters(spec.result, what="output", only=mutable)
    by_position = [(spec.result.names.index(name), made) for name, made in convert.items()]
    batch = Batch(
        keys=_key_values(spec, key_columns, len(touched)),
        rows=to_rows(read),
        times=times.tolist(),
        starts=np.searchsorted(of_rows, np.arange(len(touched) + 1)).tolist(),
        states=states.load(),
        timers=_timers_by_key(slot[of_timers], timers, len(touched)),
        reload=states.reload,
        reload_rows=lambda start, end: to_rows(read.slice(start, end - start)),
        settle=settler(list(spec.state)),
        to_tuple=partial(_to_tuple, spec, by_position),
        keeps_tuples=not mutable,
        hashes=lambda key: int(np.uint64(xxhash64([c.slice(key, 1) for c in key_columns])[0])),
        watermark=mark,
    )
    calls = call_keys(spec, batch)

    table = pa.table(key_columns, names=spec.by) if spec.by else null_table(pa.schema([]), 0)
    output, ignored = _output(spec, calls, table)
    failed = build_failures(spec, calls.failures, table, released)
    metrics = ProcessMetrics(results=len(output), failed=len(calls.failures), ignored=ignored)
    is_untouched = np.ones(len(stored), np.bool_)
    is_untouched[states.positions[states.positions >= 0]] = False
    new = states.store(batch, key_columns, key_schema(spec))
    untouched = tables["timers"].filter(pa.array(slot[of_timers] < 0))
    counts = np.array([len(item) for item in batch.timers], np.int64)
    index = pa.array(np.repeat(np.arange(len(touched)), counts))
    pending = pa.array([time for item in batch.timers for time in item], pa.int64())
    set_timers = pa.table(
        [*(column.take(index) for column in key_columns), pending], schema=timer_schema(spec)
    )
    after = {
        "keys": concat([stored.filter(pa.array(is_untouched)), new]),
        "timers": concat([untouched, set_timers]),
        "rows": tables["rows"],
    }
    return after, output, failed, metrics


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
    return [ordered[a:b] for a, b in pairwise(bounds)]


def _key_values(spec: PerKeySpec, columns: list[pa.Array], count: int) -> list[Any]:
    made = row_type(spec.by, "Key")
    if not columns:
        return [made()] * count
    return make_rows(made, zip(*map(to_values, columns), strict=True))


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
    names = spec.result.names
    try:
        columns = list(zip(*yielded, strict=True)) or [()] * len(names)
    except (TypeError, ValueError):
        columns = []
    if len(columns) != len(names) or any(len(row) != len(names) for row in yielded[:1]):
        sizes = sorted({len(row) for row in yielded})
        raise _bad_row(spec, f"rows of {' or '.join(map(str, sizes))} values")
    arrays = [
        pa.array(values, field.type)  # converted when they were yielded
        if is_mutable(field.type)
        else from_values(values, field, what="output")
        for values, field in zip(columns, spec.result, strict=True)
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
    columns += [pa.nulls(len(of_key), of.type) for of in list(spec.output)[len(columns) :]]
    return pa.table(columns, schema=spec.output)


def _to_tuple(
    spec: PerKeySpec, convert: Sequence[tuple[int, Callable[[Any], Any]]], row: Any
) -> Any:
    """What a function yielded, as a tuple without values that the function can change later."""
    names = spec.result.names
    if type(row) is Ignored:
        return row
    if isinstance(row, Mapping):
        if unknown := sorted(map(str, row.keys() - {*names})):
            raise _bad_row(spec, f"a dict with {', '.join(map(repr, unknown))}")
        values = [row.get(name) for name in names]
    elif type(row) in (tuple, list):
        values = list(row)
    elif (found := record_values(row, names)) is not None:
        values = list(found)
    else:
        raise _bad_row(spec, f"a value of type {type(row).__name__}")
    if len(values) == len(names):
        for at, to_stored in convert:
            values[at] = to_stored(values[at])
    return tuple(values)


def _bad_row(spec: PerKeySpec, got: str) -> FunctionError:
    names = spec.result.names
    return conditions.OUTPUT_ROW.error(names=", ".join(names), number=len(names), got=got)
