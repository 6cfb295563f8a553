"""Pattern matching: the rows of each key in event-time order, and the matches of a pattern in them.

Rows are *released* once the watermark has reached their event time: then all rows before them are known,
and their conditions over earlier rows are evaluated. Conditions over the first row of the match depend on
the start, and are evaluated by each search (`core/anchored.py`). A start is decided once no later row can
change its match: at the latest when the watermark has passed its bound. The state has the rows that are
not released yet, the released ones that a later match may need, and the last ones that a condition reads.
If only the first match of a key is emitted, it also has the keys that matched within the horizon.

Event time alone decides: results do not depend on how the stream is divided into micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, make_structs, take
from streamops.kernel.core import Identity, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes
from streamops.kernel.lag import note_lag
from streamops.kernel.lateness import INSTANT, Lateness, build_late
from streamops.kernel.operator import Core, Table
from streamops.kernel.ordering import ranks
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL, Instants, advance_watermark
from streamops.patterns import conditions
from streamops.patterns.core.expressions import Expression, Initial, Labels, Value, holds, measure
from streamops.patterns.core.scan import Tape
from streamops.patterns.core.search import AnchoredSearch, Conditions, Found, Search, in_parts
from streamops.patterns.core.spec import MATCH_END, MATCH_START, PatternSpec


def row_schema(spec: PatternSpec) -> pa.Schema:
    """Columns of the stored rows."""
    own = [("time", pa.int64()), ("stage", pa.int8()), ("conditions", pa.int64())]
    return pa.schema([*_key_fields(spec), *own, *_value_fields(spec), *_earlier_fields(spec)])


def matched_schema(spec: PatternSpec) -> pa.Schema | None:
    """Columns of the ends of matches, which are stored if only the first match of a key counts."""
    if spec.matches != "first":
        return None
    return pa.schema([*_key_fields(spec), ("time", pa.int64())])


def packed_schema(spec: PatternSpec) -> pa.Schema:
    """Columns of packed rows: conditions are bits, and only routed rows have all their columns."""
    own = [("time", INSTANT), ("conditions", pa.int64())]
    row = [("row", pa.struct(list(spec.row)))] if spec.stragglers == "route" else []
    return pa.schema([*_key_fields(spec), *own, *_value_fields(spec), *row])


def pack(spec: PatternSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The conditions of each row, and the columns that are needed later."""
    rows = conform(rows, spec.input)
    bits, sources = np.zeros(len(rows), np.int64), dict(spec.sources)
    for name, condition in spec.define:
        if isinstance(condition, str):
            holds = combine_chunks(rows.column(sources[condition])).fill_null(False)
            bits |= np.asarray(holds).astype(np.int64) * spec.bits[name]
    columns = [*(rows.column(name) for name in spec.by), rows.column(spec.time), pa.array(bits)]
    columns += [rows.column(name) for name in spec.values]
    if spec.stragglers == "route":
        columns.append(make_structs(rows.select(spec.row.names)))
    return pa.table(columns, schema=packed_schema(spec))


def classify(
    spec: PatternSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """Accepted rows as rows of the state, the side output for all others, and metrics."""
    lateness = Lateness.of(packed.column("time"), previous_watermark)
    accepted, times = lateness.on_time, lateness.times
    missed, side = np.flatnonzero(~accepted), spec.output.empty_table()
    if spec.stragglers == "route" and len(missed):
        rows, of_missed = take(packed, missed), lateness.take(missed)
        late = pa.array(of_missed.times, mask=of_missed.rejected).cast(INSTANT)
        fields = of_missed.fields | {"row": rows.column("row")}
        side = build_late(spec.output, None, fields, filled=_key(spec, rows, late))
    if len(missed):
        packed, times = take(packed, np.flatnonzero(accepted)), times[accepted]
    schema = row_schema(spec)
    filled = {"time": pa.array(times), "stage": pa.array(np.zeros(len(packed), np.int8))}
    filled |= {name: pa.nulls(len(packed), dtype) for name, dtype in _earlier_fields(spec)}
    columns = [filled[name] if name in filled else packed.column(name) for name in schema.names]
    return pa.table(columns, schema=schema), side, lateness.metrics


def timed_out(
    spec: PatternSpec, rows: pa.Table, times: Instants, first: Ids, steps: Ids
) -> pa.Table:
    """The side output for partial matches that ran out of time, with the time of their first row."""
    count = len(first)
    if not count:
        return spec.output.empty_table()
    start = pa.array(times[first]).cast(INSTANT)
    fields = {"reason": pa.repeat("timed_out", count), "steps": pa.array(steps.astype(np.int32))}
    filled = _key(spec, take(rows, first), start)
    return build_late(spec.output, None, fields, filled=filled)


def _key(spec: PatternSpec, rows: pa.Table, time: pa.Array) -> dict[str, pa.Array]:
    """The keys of rows in the side output, and their time as that of a match."""
    keys = {name: rows.column(f"key.{i}") for i, name in enumerate(spec.by)}
    return {**keys, MATCH_START: time, MATCH_END: time}


def _key_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    return [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]


def _value_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    return [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]


def _earlier_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    """Values of earlier rows, which are known once a row is released."""
    sources = dict(spec.sources)
    types = [spec.input.field(sources[text]).type for text, _ in spec.earlier]
    return [(f"earlier.{i}", dtype) for i, dtype in enumerate(types)]


WAITING, OPEN, DECIDED, CONTEXT = range(4)
"""Stages of a stored row: not released; may start a match; only part of matches that start before
it; only read by conditions over earlier rows."""


@dataclass(frozen=True, slots=True)
class PatternMetrics(Metrics):
    """Metrics of a step.

    Parameters
    ----------
    timeouts : int
        Partial matches that ran out of time.
    overflowed : int
        Rows that were dropped because a key had more undecided ones than `max_rows`.
    """

    timeouts: int = 0
    overflowed: int = 0


class PatternCore(Core[PatternSpec]):
    """Pattern matching: the rows of each key in event-time order, and the matches of a pattern in them."""

    STATE = StateFormat("patterns.match", 1)
    TABLES: ClassVar = {"rows": Table(row_schema), "matched": Table(matched_schema)}
    METRICS_TYPE = PatternMetrics
    METRICS: ClassVar = {
        "rows": "rows",
        "rejected": "rejected",
        "too_late": "too_late",
        "results": "results",
        "timeouts": "timeouts",
        "overflowed": "overflowed",
    }
    """Names of the observed metrics, and the fields of :class:`PatternMetrics` that they show."""

    def pack(self, spec: PatternSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """The conditions of each row, and the columns that are needed later."""
        return pack(spec, rows)

    def step(
        self, spec: PatternSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        watermark = advance_watermark(state.watermark, watermark)
        now = BEFORE_ALL if watermark is None else watermark
        arrived, late, counts = classify(spec, packed, state.watermark)
        rows = _Rows.of(spec, concat([state.tables["rows"], arrived])).release(spec, now)
        tape, positions = rows.tape(is_open=now < AFTER_ALL)
        may_start = rows.stages == OPEN
        if spec.matches == "first":
            may_start &= _is_past_horizon(spec, state.tables["matched"], rows)
        resume, variable = spec.resume
        parameters: dict[str, Any] = {
            "resume": resume,
            "variable": variable,
            "horizon": spec.horizon,
        }
        create: Callable[..., Search] = Search
        if spec.anchored:
            create = AnchoredSearch
            parameters["conditions"] = rows.conditions_from(spec, positions)
            parameters["bits"] = sum({spec.bits[name] for name, _ in spec.anchored})
        search = create(
            spec.automaton,
            tape,
            np.append(rows.times, AFTER_ALL)[positions],
            np.append(may_start, False)[positions],
            within=spec.within,
            watermark=spec.bound_at(now),
            **parameters,
        )
        found = search.find(timeouts=spec.timeouts == "route")
        output = _matches(spec, rows, search, found, positions)
        late = concat(
            [late, timed_out(spec, rows.table, rows.times, positions[found.timeouts], found.steps)]
        )
        stored = rows.keep(spec, search, found, positions, spec.bound_at(now))
        stored, overflowed = _limit(spec, stored)
        tables = {"rows": stored}
        if spec.matches == "first":
            last = positions[found.ends - 1]
            tables["matched"] = _remember(spec, state.tables["matched"], rows.table, last, now)
        metrics = PatternMetrics(
            rows=counts.rows,
            rejected=counts.rejected,
            on_time=counts.on_time,
            too_late=counts.too_late,
            results=len(output),
            timeouts=len(found.timeouts),
            overflowed=overflowed,
        )
        return Step(State(watermark, tables), output, late, metrics)

    def adapt(
        self,
        spec: PatternSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the values by name. With a shorter bound, partial matches run out of time in the next step."""
        names, rows = [name for name, _ in stored["values"]], tables["rows"]
        moved = {f"value.{at}": f"value.{names.index(of)}" for at, of in enumerate(spec.values)}
        schema = row_schema(spec)
        columns = [rows.column(moved.get(name, name)) for name in schema.names]
        mapped = {**tables, "rows": pa.table(columns, schema=schema)}
        # Without a bound, no row was final.
        return note_lag(mapped, spec.lag - spec.lag_of(stored), final=stored["within"] is not None)

    def finalize(self, spec: PatternSpec, until: int) -> PatternSpec:
        """No further match begins."""
        return replace(spec, final=until)

    def next_deadline(self, spec: PatternSpec, state: State) -> int | None:
        """When a row is released, the bound of a start passes, or a match is no longer remembered."""
        rows = state.tables["rows"]
        times, waits = _column(rows, "time"), _column(rows, "stage") == WAITING
        due = times[waits]
        if spec.within is not None:
            due = np.concatenate([due, times[~waits] + (spec.within - 1)])
        if spec.matches == "first" and spec.horizon is not None:
            due = np.concatenate(
                [due, _column(state.tables["matched"], "time") + (spec.horizon - 1)]
            )
        return int(due.min()) if len(due) else None

    def check(self, spec: PatternSpec, state: State) -> None:
        """Rows of a key are in order, none is stored for too long, and a key has matched once."""
        rows = state.tables["rows"]
        times, stages = _column(rows, "time"), _column(rows, "stage")
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        details = f"watermark {state.watermark}\n{format_rows(rows)}"
        assert ((times > watermark) == (stages == WAITING)).all(), f"wrong stage: {details}"
        assert np.isin(stages, [WAITING, OPEN, DECIDED, CONTEXT]).all(), f"unknown stage: {details}"
        if spec.within is not None:
            overdue = (stages != WAITING) & (times + spec.within - 1 <= watermark)
            assert not overdue.any(), f"overdue: {details}"
        codes = key_codes(_keys(spec, rows), len(rows))
        order = np.argsort(codes, kind="stable")
        same = np.diff(codes[order]) == 0
        released = (stages[order] != WAITING)[1:]
        assert (np.diff(times[order]) >= 0)[same & released].all(), f"not in order: {details}"
        undecided = (stages == OPEN) | (stages == DECIDED)
        sizes = np.bincount(Groups.of(codes)[0].ids[undecided], minlength=1)
        assert sizes.max() <= spec.max_rows, f"too many: {details}"
        if spec.matches == "first":
            matched = state.tables["matched"]
            details = f"watermark {state.watermark}\n{format_rows(matched)}"
            codes = key_codes(_keys(spec, matched), len(matched))
            assert len(np.unique(codes)) == len(matched), f"a key twice: {details}"
            assert (_until(spec, matched) - 1 > watermark).all(), f"overdue: {details}"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Stored and new rows of all keys, key by key, in the order of matching.

    Parameters
    ----------
    table : Table
        With the columns of the state.
    begins : array of bool
        The first row of each key.
    times, stages, conditions : arrays
        Columns of the table.
    """

    table: pa.Table
    begins: Mask
    times: Instants
    stages: npt.NDArray[np.int8]
    conditions: Ids

    @staticmethod
    def of(spec: PatternSpec, table: pa.Table) -> _Rows:
        """Sort rows by key, event time, and what breaks ties."""
        codes = key_codes(_keys(spec, table), len(table))
        # Released rows are in order, and precede all others of their key.
        keyed = ordered_pair_codes(codes, _column(table, "time"))
        order = np.argsort(keyed, kind="stable")
        tied = np.flatnonzero(np.diff(keyed[order]) == 0)
        if len(tied):
            order = _break_ties(table, keyed, order, np.union1d(tied, tied + 1))
        if (np.diff(order) != 1).any():
            table, codes = take(table, order), codes[order]
        begins = np.diff(codes, prepend=codes[:1] - 1) != 0
        stages = _column(table, "stage").astype(np.int8)
        return _Rows(table, begins, _column(table, "time"), stages, _column(table, "conditions"))

    def release(self, spec: PatternSpec, watermark: int) -> _Rows:
        """Evaluate the conditions of rows that the watermark has reached."""
        new = (self.stages == WAITING) & (self.times <= watermark)
        stages = np.where(new, np.int8(OPEN), self.stages)
        conditions, table = self.conditions.copy(), self.table
        if new.any():
            anchored = dict(spec.anchored)
            # Only them: what precedes a row that waits is not known, and may overflow.
            rows = pa.array(np.flatnonzero(new))
            for name, condition in spec.define:
                if isinstance(condition, Expression) and name not in anchored:
                    values = holds(name, condition, lambda of: self._values(spec, of).take(rows))
                    conditions[new] |= values * np.int64(spec.bits[name])
            table = self._store_earlier(spec, new)
        return _Rows(table, self.begins, self.times, stages, conditions)

    def _store_earlier(self, spec: PatternSpec, new: Mask) -> pa.Table:
        """Values of rows that may be evicted before the conditions that read them are evaluated."""
        table, at = self.table, np.arange(len(new))
        for number, (text, offset) in enumerate(spec.earlier):
            index = table.schema.get_field_index(f"earlier.{number}")
            known = combine_chunks(table.column(index))
            both = pa.concat_arrays([known, self._values(spec, Value(text, offset))])
            column = both.take(pa.array(np.where(new, at + len(new), at)))
            table = table.set_column(index, table.schema.field(index), column)
        return table

    def _values(self, spec: PatternSpec, of: Value) -> pa.Array:
        """A value for each row: its own, or that of the row so many rows before."""
        column = combine_chunks(self.table.column(spec.column_of(of)))
        if not of.offset:
            return column
        row = np.arange(len(column)) - of.offset
        outside = row < np.maximum.accumulate(np.where(self.begins, np.arange(len(row)), 0))
        row = np.maximum(row, 0)
        if spec.within is not None:  # it may have been evicted
            outside |= self.times - self.times[row] >= spec.within
        return column.take(pa.array(row, mask=outside))

    def conditions_from(self, spec: PatternSpec, positions: Ids) -> Conditions:
        """Evaluate the conditions that depend on the first row of the match."""
        earlier = {of: f"earlier.{number}" for number, of in enumerate(spec.earlier)}

        def evaluate_at(at: Ids, starts: Ids) -> Ids:
            rows, first = pa.array(positions[at]), pa.array(positions[starts])

            def values(of: Value) -> pa.Array:
                name = earlier[of.text, of.offset] if of.offset else spec.column_of(of)
                column = combine_chunks(self.table.column(name))
                return column.take(first if isinstance(of, Initial) else rows)

            bits = np.zeros(len(at), np.int64)
            for name, condition in spec.anchored if len(at) else ():
                bits |= holds(name, condition, values) * np.int64(spec.bits[name])
            return bits

        return evaluate_at

    def tape(self, *, is_open: bool) -> tuple[Tape, Ids]:
        """The rows that may be part of matches; and the row at each position, -1 at frontiers."""
        rows = np.flatnonzero((self.stages == OPEN) | (self.stages == DECIDED))
        keys = np.cumsum(self.begins)[rows]
        ends = np.flatnonzero(np.diff(keys, append=-1))
        # A tape has one position at least.
        positions = np.insert(rows, ends + 1, -1) if len(rows) else np.array([-1])
        is_frontier = positions < 0
        bits = np.where(is_frontier, 0, np.append(self.conditions, 0)[positions])
        return Tape(bits, is_frontier, is_open), positions

    def keep(
        self, spec: PatternSpec, search: Search, found: Found, positions: Ids, watermark: int
    ) -> pa.Table:
        """The rows to store."""
        stages = self.stages.copy()
        stored = stages == WAITING
        at, is_row = np.arange(len(positions)), positions >= 0
        needed = at >= found.needed[np.searchsorted(search.frontiers, at)]
        stored[positions[needed & is_row]] = True
        if spec.resume[0] == "to next row":
            stages[positions[is_row]] = DECIDED
            stages[positions[found.undecided]] = OPEN
        if spec.reach and watermark < AFTER_ALL:
            before = stored.copy()
            stored |= self._last(spec, watermark)
            stages[stored & ~before] = CONTEXT
        table = _with_column(self.table, "stage", stages)
        table = _with_column(table, "conditions", self.conditions)
        return table.filter(pa.array(stored)).combine_chunks()

    def _last(self, spec: PatternSpec, watermark: int) -> Mask:
        """The last released rows of each key, as far back as conditions of later rows read."""
        released = np.flatnonzero(self.stages != WAITING)
        keys = np.cumsum(self.begins)[released]
        end = np.searchsorted(keys, keys, "right")
        is_last = np.arange(len(released)) >= end - spec.reach
        if spec.within is not None:
            is_last &= self.times[released] + spec.within - 1 > watermark
        result = np.zeros(len(self.times), np.bool_)
        result[released[is_last]] = True
        return result


def _break_ties(table: pa.Table, keyed: Ids, order: Ids, tied: Ids) -> Ids:
    """Sort rows at these places, which share a key and an event time, by all other columns."""
    rows = order[tied]
    part = take(table, rows)
    waits = _column(part, "stage") == WAITING
    names = [name for name in part.column_names if name.startswith("value.")]
    by = [ranks(combine_chunks(part.column(name))) for name in (*names, "conditions")]
    # Released rows are in order already; their conditions have changed since.
    by = [np.where(waits, column, 0) for column in by]
    order = order.copy()
    order[tied] = rows[np.lexsort([*by[::-1], keyed[rows]])]
    return order


def _matches(
    spec: PatternSpec, rows: _Rows, search: Search, found: Found, positions: Ids
) -> pa.Table:
    """One row per match."""
    first, last = positions[found.starts], positions[found.ends - 1]
    keys = [combine_chunks(rows.table.column(f"key.{i}")) for i in range(len(spec.by))]
    columns = [key.take(pa.array(first)) for key in keys]
    columns += [
        pa.array(rows.times[at]).cast(spec.output.field("match_start").type) for at in (first, last)
    ]
    if spec.resolved:
        values = _values(spec, rows.table)
        parts = []
        for part in in_parts(found.ends - found.starts):
            found_labels = search.label(found.starts[part], found.bounds[part])
            labels = Labels(
                found_labels.match,
                positions[found_labels.row],
                found_labels.variable,
                found_labels.count,
            )
            parts.append(
                [measure(of, labels, values, spec.pattern.variables) for of in spec.resolved]
            )
        if parts:
            columns += [pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True)]
        else:
            columns += [pa.array([], of.type) for of in spec.resolved]
    columns += [pa.nulls(len(first), of.type) for of in list(spec.output)[len(columns) :]]
    return pa.table(columns, schema=spec.output)


def _values(spec: PatternSpec, table: pa.Table) -> pa.Table:
    """The stored columns under their own names, and one more if there are none."""
    names = [f"value.{i}" for i in range(len(spec.values))]
    if not names:
        return table.select(["time"])
    return table.select(names).rename_columns(list(spec.values))


def _until(spec: PatternSpec, matched: pa.Table) -> Instants:
    """From when on a key may match again."""
    times = _column(matched, "time")
    return np.full(len(times), AFTER_ALL) if spec.horizon is None else times + spec.horizon


def _is_past_horizon(spec: PatternSpec, matched: pa.Table, rows: _Rows) -> Mask:
    """Which rows may start a match, as far as the match that their key has had is concerned."""
    if not len(matched):
        return np.ones(len(rows.times), np.bool_)
    pairs = zip(_keys(spec, matched), _keys(spec, rows.table), strict=True)
    keys = [pa.concat_arrays(pair) for pair in pairs]
    codes = key_codes(keys, len(matched) + len(rows.times))
    known, wanted = np.split(codes, [len(matched)])
    order = np.argsort(known)
    at = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(order) - 1)]
    is_past: Mask = (known[at] != wanted) | (rows.times >= _until(spec, matched)[at])
    return is_past


def _remember(
    spec: PatternSpec, matched: pa.Table, rows: pa.Table, last: Ids, watermark: int
) -> pa.Table:
    """Keys with the event time of the last row of their match, as long as rows within its horizon may follow.

    A key matches again only when its horizon has passed, so it is never stored twice.
    """
    ended = take(rows.select(matched.column_names), last)
    every = concat([matched, ended])
    return every.filter(pa.array(_until(spec, every) - 1 > watermark)).combine_chunks()


def _limit(spec: PatternSpec, rows: pa.Table) -> tuple[pa.Table, int]:
    """At most ``max_rows`` undecided rows per key, and the number of rows that were dropped.

    Rows above the watermark do not count: how many there are depends on the micro-batches. Rows that only
    conditions read do not count either, and a dropped row that they read is stored as one.
    """
    stages = _column(rows, "stage").astype(np.int8)
    undecided = np.flatnonzero((stages == OPEN) | (stages == DECIDED))
    if len(undecided) <= spec.max_rows:
        return rows, 0
    groups, _ = Groups.of(key_codes(_keys(spec, rows), len(rows))[undecided])
    sizes = groups.sizes()
    excess = np.maximum(sizes - spec.max_rows, 0)
    if not excess.any():
        return rows, 0
    if spec.when_full == "fail":
        raise conditions.ROWS_FULL.error(
            max_rows=spec.max_rows, got=f"{int(sizes.max()):,} rows of one key"
        )
    # The rows of a key are adjacent, in order.
    begins = np.cumsum(sizes) - sizes
    number = np.arange(len(undecided)) - begins[groups.ids]
    is_dropped = number < excess[groups.ids]
    is_read = number >= sizes[groups.ids] - spec.reach
    stages[undecided[is_dropped]] = CONTEXT
    remaining = np.ones(len(rows), np.bool_)
    remaining[undecided[is_dropped & ~is_read]] = False
    rows = _with_column(rows, "stage", stages).filter(pa.array(remaining))
    return rows.combine_chunks(), int(excess.sum())


def _with_column(table: pa.Table, name: str, values: npt.NDArray[Any]) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), pa.array(values))


def _keys(spec: PatternSpec, table: pa.Table) -> list[pa.Array]:
    return [combine_chunks(table.column(f"key.{i}")) for i in range(len(spec.by))]


def _column(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = np.asarray(combine_chunks(table.column(name)))
    return values
