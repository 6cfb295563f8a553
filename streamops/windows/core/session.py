"""Session windows: bursts of activity per key, ended by silence, by a closing row, by length.

A session is *on time* once the operator's watermark has reached its end: then it is published.
The lateness of a row is classified on its own ``[t, t + gap)``: a row behind the watermark can
still join a session that is open. One that would become part of a session already published is
a straggler as well, whatever its own interval says, because only a correction could let it in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    key_codes,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Mask, first_of, pair_codes
from streamops.kernel.time import Instants
from streamops.windows.core.output import deliver
from streamops.windows.core.segments import UNCUT, Bounds, Segments, Sessions, segment_schema
from streamops.windows.core.session_changes import Publication, SessionTable, publish
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.state_rows import (
    key_fields,
    keys_of,
    merge_states,
    micros,
    number_keys,
    states_of,
    update_states,
    usable_times,
)

__all__ = [
    "STATE",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("windows.session", 2)

_BEGINNING, _END = -(1 << 62), 1 << 62


def layout(spec: SessionSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    tables = {"segments": segment_schema(spec)}
    if not spec.corrects:
        # What was published and can no longer change, but can still be touched.
        bounds = [("start", pa.int64()), ("extends_until", pa.int64())]
        tables["published"] = pa.schema([*key_fields(spec), *bounds])
    return tables


def empty(spec: SessionSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: SessionSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows as they are: each is classified by itself."""
    return conform(rows, spec.input)


def step(
    spec: SessionSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
) -> Step:
    """One micro-batch: see the module's docstring."""
    (packed,) = inputs
    previous_watermark = state.watermark
    watermark = max((w for w in (previous_watermark, watermark) if w is not None), default=None)
    arrived, rejected = Arrivals.of(spec, packed)
    stored, bounds_before = state.tables["segments"], state.tables.get("published")

    # One numbering of the keys for all that is compared in this step.
    keys = [keys_of(stored, spec), [combine_chunks(arrived.rows.column(name)) for name in spec.by]]
    keys += [keys_of(bounds_before, spec)] if bounds_before is not None else []
    sizes = [
        len(stored),
        len(arrived),
        *([len(bounds_before)] if bounds_before is not None else []),
    ]
    codes_of = number_keys(keys, sizes)
    before = Segments.of(stored, codes_of[0])
    sessions = Sessions.of_state(spec, before)
    if bounds_before is None:
        bounds = sessions.published(previous_watermark)
    else:
        bounds = Bounds(
            codes_of[2], micros(bounds_before, "start"), micros(bounds_before, "extends_until")
        )
    classified = classify_rows(spec, arrived, codes_of[1], bounds, previous_watermark)
    codes, arrived = codes_of[1][classified.accepted], arrived.where(classified.accepted)

    table, after, follows, prompt = stored, sessions, sessions.ids, codes[:0]
    if len(arrived):
        both = before.append(arrived.segments(codes))
        after = Sessions.of(spec, both)
        follows, prompt = np.split(after.ids, [len(stored)])
        prompt = prompt[classified.on_time[classified.accepted]]
        settled = UNCUT if watermark is None else watermark - spec.retention
        table, after = _join(spec, stored, arrived, both, after, settled)
    changes = publish(
        spec,
        SessionTable(stored, sessions),
        SessionTable(table, after),
        follows=follows,
        prompt=prompt,
        changed_keys=codes,
        previous_watermark=previous_watermark,
        watermark=watermark,
    )
    counts = Metrics(rows=len(packed), rejected=len(packed) - len(codes_of[1]))
    return Step(
        State(watermark, _next_tables(spec, table, after, changes, bounds_before, watermark)),
        changes.emitted,
        concat([rejected, classified.late]),
        counts + classified.counts + changes.counts,
    )


def finish(spec: SessionSpec, state: State) -> pa.Table:
    """Every session that is still open."""
    return step(spec, state, [spec.input.empty_table()], _END).output


def run(spec: SessionSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result. Nothing is late; what cannot be placed is delivered where rows are."""
    only = step(spec, empty(spec), inputs, _END)
    return concat([only.output, only.late])


def next_deadline(spec: SessionSpec, state: State) -> int | None:
    """The first end of an open session, or the first moment something can be forgotten."""
    table = state.tables["segments"]
    sessions = Sessions.of_state(spec, _segments(spec, table))
    is_open = sessions.end > (_BEGINNING if state.watermark is None else state.watermark)
    due = np.where(is_open, sessions.end, sessions.lasting(micros(table, "end")) + spec.retention)
    if not spec.corrects:
        due = np.append(due, micros(state.tables["published"], "extends_until") + spec.retention)
    return int(due.min()) if len(due) else None


def check(spec: SessionSpec, state: State) -> None:
    """Segments that need not be apart are one, and none is stored beyond its time."""
    table = state.tables["segments"]
    segments = _segments(spec, table)
    sessions = Sessions.of(spec, segments)
    details = f"watermark {state.watermark}\n{table.to_pylist()}"
    assert (segments.start < segments.end).all(), f"an empty segment: {details}"
    assert spec.cuts or len(sessions) == len(table), f"segments that touch: {details}"
    group_ids = Groups.of(pair_codes(segments.codes, segments.start))[0]
    assert group_ids.count == len(table), f"an event time twice: {details}"
    assert _alive(spec, table, sessions, state.watermark).all(), f"overdue: {details}"
    if not spec.corrects and state.watermark is not None:
        extends_until = micros(state.tables["published"], "extends_until")
        assert (extends_until + spec.retention > state.watermark).all(), f"overdue: {extends_until}"


def _segments(spec: SessionSpec, table: pa.Table) -> Segments:
    return Segments.of(table, key_codes(keys_of(table, spec), len(table)))


def _join(
    spec: SessionSpec,
    stored: pa.Table,
    arrived: Arrivals,
    both: Segments,
    sessions: Sessions,
    settled: int,
) -> tuple[pa.Table, Sessions]:
    """Segments and rows of a session become as few segments as they can.

    Parameters
    ----------
    both : Segments
        The stored ones, and below them the rows.
    sessions : Sessions
        Of ``both``.
    settled : int
        No row that is still to come has this event time or an earlier one.

    Returns
    -------
    segments : Table
        Its columns ``revision`` and ``timing`` are not filled yet.
    sessions : Sessions
        The same, of these segments.
    """
    group_ids = sessions.ids
    touched = np.isin(sessions.ids, sessions.ids[len(stored) :])
    if spec.cuts:
        # A closing row can still come between two events after `settled`: they stay separate. So
        # does a session without new rows: joined otherwise, its sums could have other last bits.
        earliest = both.start.min() - 1
        group_ids = pair_codes(
            group_ids, np.where(touched & (both.start <= settled), earliest, both.start)
        )
    groups, first = Groups.of(group_ids)
    old, new = groups.ids[: len(stored)], groups.ids[len(stored) :]
    # Rows are aggregated among themselves, then merged with what was there.
    fresh, heads = Groups.of(new)
    states = zip(states_of(stored, spec), update_states(spec, fresh, arrived.rows), strict=True)
    members = Groups(np.concatenate([old, new[heads]]), groups.count)
    aggregates = merge_states(spec, members, [pa.concat_arrays(pieces) for pieces in states])

    keys = zip(keys_of(stored, spec), (arrived.rows.column(name) for name in spec.by), strict=True)
    index = pa.array(first)
    columns = [pa.concat_arrays([a, combine_chunks(b)]).take(index) for a, b in keys]
    start, end = groups.least(both.start), groups.greatest(both.end)
    own = {"start": start, "end": end, "cut": groups.greatest(both.cut)}
    # A chain that can still grow backwards has no fixed beginning yet.
    anchor = np.where(start <= settled, sessions.anchor[sessions.ids[first]], start)
    own["anchor"] = np.where(touched[first], anchor, both.anchor[first])
    nothing = np.zeros(groups.count, np.int64)
    schema = segment_schema(spec)
    between = schema.names[len(columns) : len(schema) - len(aggregates)]
    filled = [pa.array(own.get(name, nothing)).cast(schema.field(name).type) for name in between]
    table = pa.table([*columns, *filled, *aggregates], schema=schema)
    return table, replace(sessions, ids=sessions.ids[first])


def _alive(spec: SessionSpec, table: pa.Table, sessions: Sessions, watermark: int | None) -> Mask:
    """The segments of sessions that are open, or that can still be changed or prolonged."""
    if watermark is None:
        return np.ones(len(table), np.bool_)
    alive = sessions.end > watermark
    if spec.corrects or spec.cuts:
        alive |= sessions.lasting(micros(table, "end")) + spec.retention > watermark
    return alive[sessions.ids]


def _next_tables(
    spec: SessionSpec,
    table: pa.Table,
    sessions: Sessions,
    changes: Publication,
    bounds_before: pa.Table | None,
    watermark: int | None,
) -> dict[str, pa.Table]:
    """The tables of the state after the step."""
    for name, values in (("revision", changes.revision), ("timing", changes.timing)):
        if name in table.column_names:
            field = table.schema.field(name)
            filled = pa.array(values[sessions.ids]).cast(field.type)
            table = table.set_column(table.schema.get_field_index(name), field, filled)
    tables = {}
    if bounds_before is not None:
        tables["published"] = _bounds(
            spec, table, sessions, changes.closing, bounds_before, watermark
        )
    alive = _alive(spec, table, sessions, watermark)
    if not alive.all():
        if spec.max_length is not None and watermark is not None:
            table = _keep_anchor(table, sessions, ~alive, watermark - spec.retention)
        table = table.filter(pa.array(alive)).combine_chunks()
    return {"segments": table} | tables


def _keep_anchor(table: pa.Table, sessions: Sessions, leaving: Mask, settled: int) -> pa.Table:
    """Chains whose beginning is forgotten remember where it was."""
    chains = pair_codes(sessions.codes, sessions.anchor)[sessions.ids]
    # What begins after `settled` may still be cut off, and then begins a chain of its own.
    known = np.isin(chains, chains[leaving]) & (micros(table, "start") <= settled)
    anchor = np.where(known, sessions.anchor[sessions.ids], micros(table, "anchor"))
    position = table.schema.get_field_index("anchor")
    return table.set_column(position, table.schema.field(position), pa.array(anchor))


def _bounds(
    spec: SessionSpec,
    table: pa.Table,
    sessions: Sessions,
    closing: Ids,
    bounds_before: pa.Table,
    watermark: int | None,
) -> pa.Table:
    """Where published sessions lie that a row could still touch."""
    if watermark is None:
        return bounds_before
    rows = first_of(sessions.ids, len(sessions))[closing]
    index = pa.array(rows)
    keys = [key.take(index) for key in keys_of(table, spec)]
    bounds = [pa.array(sessions.start[closing]), pa.array(sessions.extends_until[closing])]
    both = concat([bounds_before, pa.table([*keys, *bounds], schema=bounds_before.schema)])
    alive = micros(both, "extends_until") + spec.retention > watermark
    return both if alive.all() else both.filter(pa.array(alive)).combine_chunks()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows that can be placed: each lasts from ``start`` to ``end``.

    Parameters
    ----------
    rows : Table
    start, end : arrays of int64
        Event time; event time and gap.
    closes : array of bool
        Whether the row ends its session.
    """

    rows: pa.Table
    start: Instants
    end: Instants
    closes: Mask

    @staticmethod
    def of(spec: SessionSpec, rows: pa.Table) -> tuple[Arrivals, pa.Table]:
        """The rows that can be placed; those that cannot, as they are delivered."""
        times, valid = usable_times(spec, rows)
        gaps = np.full(len(rows), spec.gap)
        usable = valid
        if spec.gap_column is not None:
            gaps, known = timestamp_micros(rows.column(spec.gap_column))
            usable = valid & known & (gaps > 0) & (gaps <= spec.gap)
        closes = np.zeros(len(rows), np.bool_)
        if spec.until is not None:
            closes = np.asarray(combine_chunks(rows.column(spec.until)).fill_null(False))
        arrived = Arrivals(rows, times, times + gaps, closes)
        if usable.all():
            return arrived, spec.output.empty_table()
        bad = ~usable
        rejected = spec.output.empty_table()
        if spec.routes:
            present = timestamp_micros(rows.column(spec.time))[1]
            reason = np.select(
                [~present[bad], ~valid[bad]],
                ["null_time", "time_out_of_range"],
                "gap_out_of_range",
            )
            rejected = deliver(spec, take(rows, np.flatnonzero(bad)), None, reason, None)
        return arrived.where(usable), rejected

    def __len__(self) -> int:
        return len(self.start)

    def where(self, mask: Mask) -> Arrivals:
        """Those of the mask."""
        if mask.all():
            return self
        return Arrivals(
            take(self.rows, np.flatnonzero(mask)),
            self.start[mask],
            self.end[mask],
            self.closes[mask],
        )

    def segments(self, codes: Ids) -> Segments:
        """Each as a segment by itself, given the keys as numbers."""
        cut = np.where(self.closes, self.start, UNCUT)
        return Segments(codes, self.start, self.end, cut, self.start)


@dataclass(frozen=True, slots=True)
class Classified:
    """How rows were classified.

    Parameters
    ----------
    on_time, accepted : arrays of bool
        Not late; part of the result.
    late : Table
        The others, as they are delivered.
    counts : Metrics
    """

    on_time: Mask
    accepted: Mask
    late: pa.Table
    counts: Metrics


def classify_rows(
    spec: SessionSpec,
    arrived: Arrivals,
    codes: Ids,
    published: Bounds,
    previous_watermark: int | None,
) -> Classified:
    """Classify rows by their own intervals, and by the published sessions that they would change.

    Parameters
    ----------
    codes : array of int64
        The key of each row.
    published : Bounds
        Sessions that are on time.
    previous_watermark : int, optional
        The watermark of the step before.
    """
    nothing = spec.output.empty_table()
    if previous_watermark is None:
        everything = np.ones(len(arrived), np.bool_)
        return Classified(everything, everything, nothing, Metrics(on_time=len(arrived)))
    too_late = arrived.end <= previous_watermark - spec.allowed_lateness
    on_time = arrived.end > previous_watermark
    # Only rows behind the watermark can lie so far back that something published is there.
    near = np.flatnonzero(on_time & (arrived.start <= previous_watermark))
    if len(near):
        last = np.where(arrived.closes[near], arrived.start[near], arrived.end[near])
        on_time[near] = ~published.touched_by(codes[near], arrived.start[near], last)
    accepted = ~too_late if spec.corrects else on_time
    late = np.flatnonzero(~accepted)
    counts = Metrics(
        on_time=int(on_time.sum()),
        stragglers=int((~on_time & ~too_late).sum()),
        too_late=int(too_late.sum()),
    )
    if spec.routes and len(late):
        reason = np.where(too_late[late], "too_late", "straggler")
        interval = arrived.start[late], arrived.end[late]
        nothing = deliver(spec, take(arrived.rows, late), interval, reason, previous_watermark)
    return Classified(on_time, accepted, nothing, counts)
