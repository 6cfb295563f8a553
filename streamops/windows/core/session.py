"""Session windows: bursts of activity per key, ended by silence, by a closing row, by length.

A session is *on time* once the operator's watermark has reached its end: then it is published.
The lateness of a row is judged on its own ``[t, t + gap)``: a row behind the watermark can
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
from streamops.kernel.contract import Counts, State, StateFormat
from streamops.kernel.core import SideName, Step
from streamops.kernel.groups import Groups, Ids, Mask, first_of, pair_codes
from streamops.kernel.time import Instants
from streamops.windows.core.output import deliver
from streamops.windows.core.segments import UNCUT, Bounds, Sessions, Stretches, stretch_schema
from streamops.windows.core.session_changes import Publication, Told, publish
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.state_rows import (
    key_fields,
    keys_of,
    merged,
    micros,
    numbered,
    placed,
    states_of,
    updated,
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

STATE = StateFormat("windows.session", 1)

_BEGINNING, _END = -(1 << 62), 1 << 62


def layout(spec: SessionSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    tables = {"stretches": stretch_schema(spec)}
    if not spec.corrects:
        # What was published and can no longer change, but can still be touched.
        bounds = [("start", pa.int64()), ("reach", pa.int64())]
        tables["published"] = pa.schema([*key_fields(spec), *bounds])
    return tables


def empty(spec: SessionSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: SessionSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows as they are: each is judged by itself."""
    return conform(rows, spec.input)


def step(
    spec: SessionSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
) -> Step:
    """One micro-batch: see the module's docstring."""
    (packed,) = inputs
    judged_by = state.watermark
    watermark = max((w for w in (judged_by, watermark) if w is not None), default=None)
    came, rejected = Arrivals.of(spec, packed)
    kept, gone = state.tables["stretches"], state.tables.get("published")

    # One numbering of the keys for all that is compared in this step.
    keys = [keys_of(kept, spec), [combine_chunks(came.rows.column(name)) for name in spec.by]]
    keys += [keys_of(gone, spec)] if gone is not None else []
    sizes = [len(kept), len(came), *([len(gone)] if gone is not None else [])]
    codes_of = numbered(keys, sizes)
    before = Stretches.of(kept, codes_of[0])
    sessions = Sessions.kept(spec, before)
    if gone is None:
        bounds = sessions.published(judged_by)
    else:
        bounds = Bounds(codes_of[2], micros(gone, "start"), micros(gone, "reach"))
    verdict = judge(spec, came, codes_of[1], bounds, judged_by)
    codes, came = codes_of[1][verdict.accepted], came.where(verdict.accepted)

    table, after, follows, prompt = kept, sessions, sessions.ids, codes[:0]
    if len(came):
        both = before.below(came.stretches(codes))
        after = Sessions.of(spec, both)
        follows, prompt = np.split(after.ids, [len(kept)])
        prompt = prompt[verdict.on_time[verdict.accepted]]
        settled = UNCUT if watermark is None else watermark - spec.retention
        table, after = _joined(spec, kept, came, both, after, settled)
    told = publish(
        spec,
        Told(kept, sessions),
        Told(table, after),
        follows=follows,
        prompt=prompt,
        came=codes,
        judged_by=judged_by,
        watermark=watermark,
    )
    counts = Counts(rows=len(packed), rejected=len(packed) - len(codes_of[1]))
    return Step(
        State(watermark, _kept(spec, table, after, told, gone, watermark)),
        told.emitted,
        concat([rejected, verdict.late]),
        counts + verdict.counts + told.counts,
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
    table = state.tables["stretches"]
    sessions = Sessions.kept(spec, _stretches(spec, table))
    is_open = sessions.end > (_BEGINNING if state.watermark is None else state.watermark)
    due = np.where(is_open, sessions.end, sessions.lasting(micros(table, "end")) + spec.retention)
    if not spec.corrects:
        due = np.append(due, micros(state.tables["published"], "reach") + spec.retention)
    return int(due.min()) if len(due) else None


def check(spec: SessionSpec, state: State) -> None:
    """Stretches that need not be apart are one, and none is kept beyond its time."""
    table = state.tables["stretches"]
    stretches = _stretches(spec, table)
    sessions = Sessions.of(spec, stretches)
    shown = f"watermark {state.watermark}\n{table.to_pylist()}"
    assert (stretches.start < stretches.end).all(), f"an empty stretch: {shown}"
    assert spec.cuts or len(sessions) == len(table), f"stretches that touch: {shown}"
    apart = Groups.of(pair_codes(stretches.codes, stretches.start))[0]
    assert apart.count == len(table), f"an event time twice: {shown}"
    assert _alive(spec, table, sessions, state.watermark).all(), f"overdue: {shown}"
    if not spec.corrects and state.watermark is not None:
        reach = micros(state.tables["published"], "reach")
        assert (reach + spec.retention > state.watermark).all(), f"overdue: {reach}"


def _stretches(spec: SessionSpec, table: pa.Table) -> Stretches:
    return Stretches.of(table, key_codes(keys_of(table, spec), len(table)))


def _joined(
    spec: SessionSpec,
    kept: pa.Table,
    came: Arrivals,
    both: Stretches,
    sessions: Sessions,
    settled: int,
) -> tuple[pa.Table, Sessions]:
    """Stretches and rows of a session become as few stretches as they can.

    Parameters
    ----------
    both : Stretches
        The kept ones, and below them the rows.
    sessions : Sessions
        Of ``both``.
    settled : int
        No row that is still to come has this event time or an earlier one.

    Returns
    -------
    stretches : Table
        Its columns ``revision`` and ``timing`` are not filled yet.
    sessions : Sessions
        The same, of these stretches.
    """
    apart = sessions.ids
    touched = np.isin(sessions.ids, sessions.ids[len(kept) :])
    if spec.cuts:
        # A closing row can still come between two events after `settled`: they stay apart. So
        # does a session without new rows: joined otherwise, its sums could have other last bits.
        earliest = both.start.min() - 1
        apart = pair_codes(apart, np.where(touched & (both.start <= settled), earliest, both.start))
    groups, first = Groups.of(apart)
    old, new = groups.ids[: len(kept)], groups.ids[len(kept) :]
    # Rows are aggregated among themselves, then merged with what was there.
    fresh, heads = Groups.of(new)
    states = zip(states_of(kept, spec), updated(spec, fresh, came.rows), strict=True)
    members = Groups(np.concatenate([old, new[heads]]), groups.count)
    aggregates = merged(spec, members, [pa.concat_arrays(pieces) for pieces in states])

    keys = zip(keys_of(kept, spec), (came.rows.column(name) for name in spec.by), strict=True)
    index = pa.array(first)
    columns = [pa.concat_arrays([a, combine_chunks(b)]).take(index) for a, b in keys]
    start, end = groups.least(both.start), groups.greatest(both.end)
    own = {"start": start, "end": end, "cut": groups.greatest(both.cut)}
    # A chain that can still grow backwards has no fixed beginning yet.
    anchor = np.where(start <= settled, sessions.anchor[sessions.ids[first]], start)
    own["anchor"] = np.where(touched[first], anchor, both.anchor[first])
    nothing = np.zeros(groups.count, np.int64)
    schema = stretch_schema(spec)
    between = schema.names[len(columns) : len(schema) - len(aggregates)]
    filled = [pa.array(own.get(name, nothing)).cast(schema.field(name).type) for name in between]
    table = pa.table([*columns, *filled, *aggregates], schema=schema)
    return table, replace(sessions, ids=sessions.ids[first])


def _alive(spec: SessionSpec, table: pa.Table, sessions: Sessions, watermark: int | None) -> Mask:
    """The stretches of sessions that are open, or that can still be changed or prolonged."""
    if watermark is None:
        return np.ones(len(table), np.bool_)
    alive = sessions.end > watermark
    if spec.corrects or spec.cuts:
        alive |= sessions.lasting(micros(table, "end")) + spec.retention > watermark
    return alive[sessions.ids]


def _kept(
    spec: SessionSpec,
    table: pa.Table,
    sessions: Sessions,
    told: Publication,
    gone: pa.Table | None,
    watermark: int | None,
) -> dict[str, pa.Table]:
    """The tables of the state after the step."""
    for name, values in (("revision", told.revision), ("timing", told.timing)):
        if name in table.column_names:
            field = table.schema.field(name)
            filled = pa.array(values[sessions.ids]).cast(field.type)
            table = table.set_column(table.schema.get_field_index(name), field, filled)
    tables = {}
    if gone is not None:
        tables["published"] = _bounds(spec, table, sessions, told.closing, gone, watermark)
    alive = _alive(spec, table, sessions, watermark)
    if not alive.all():
        if spec.max_length is not None and watermark is not None:
            table = _anchored(table, sessions, ~alive, watermark - spec.retention)
        table = table.filter(pa.array(alive)).combine_chunks()
    return {"stretches": table} | tables


def _anchored(table: pa.Table, sessions: Sessions, leaving: Mask, settled: int) -> pa.Table:
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
    gone: pa.Table,
    watermark: int | None,
) -> pa.Table:
    """Where published sessions lie that a row could still touch."""
    if watermark is None:
        return gone
    rows = first_of(sessions.ids, len(sessions))[closing]
    index = pa.array(rows)
    keys = [key.take(index) for key in keys_of(table, spec)]
    bounds = [pa.array(sessions.start[closing]), pa.array(sessions.reach[closing])]
    both = concat([gone, pa.table([*keys, *bounds], schema=gone.schema)])
    alive = micros(both, "reach") + spec.retention > watermark
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
        times, valid = placed(spec, rows)
        gaps = np.full(len(rows), spec.gap)
        usable = valid
        if spec.gap_column is not None:
            gaps, known = timestamp_micros(rows.column(spec.gap_column))
            usable = valid & known & (gaps > 0) & (gaps <= spec.gap)
        closes = np.zeros(len(rows), np.bool_)
        if spec.until is not None:
            closes = np.asarray(combine_chunks(rows.column(spec.until)).fill_null(False))
        came = Arrivals(rows, times, times + gaps, closes)
        if usable.all():
            return came, spec.output.empty_table()
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
        return came.where(usable), rejected

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

    def stretches(self, codes: Ids) -> Stretches:
        """Each as a stretch by itself, given the keys as numbers."""
        cut = np.where(self.closes, self.start, UNCUT)
        return Stretches(codes, self.start, self.end, cut, self.start)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How rows were judged.

    Parameters
    ----------
    on_time, accepted : arrays of bool
        Not late; part of the result.
    late : Table
        The others, as they are delivered.
    counts : Counts
    """

    on_time: Mask
    accepted: Mask
    late: pa.Table
    counts: Counts


def judge(
    spec: SessionSpec, came: Arrivals, codes: Ids, published: Bounds, judged_by: int | None
) -> Verdict:
    """Judge rows by their own intervals, and by the published sessions that they would change.

    Parameters
    ----------
    codes : array of int64
        The key of each row.
    published : Bounds
        Sessions that are on time.
    judged_by : int, optional
        The watermark of the step before.
    """
    nothing = spec.output.empty_table()
    if judged_by is None:
        everything = np.ones(len(came), np.bool_)
        return Verdict(everything, everything, nothing, Counts(on_time=len(came)))
    too_late = came.end <= judged_by - spec.allowed_lateness
    on_time = came.end > judged_by
    # Only rows behind the watermark can lie so far back that something published is there.
    near = np.flatnonzero(on_time & (came.start <= judged_by))
    if len(near):
        last = np.where(came.closes[near], came.start[near], came.end[near])
        on_time[near] = ~published.touched_by(codes[near], came.start[near], last)
    accepted = ~too_late if spec.corrects else on_time
    late = np.flatnonzero(~accepted)
    counts = Counts(
        on_time=int(on_time.sum()),
        stragglers=int((~on_time & ~too_late).sum()),
        too_late=int(too_late.sum()),
    )
    if spec.routes and len(late):
        reason = np.where(too_late[late], "too_late", "straggler")
        interval = came.start[late], came.end[late]
        nothing = deliver(spec, take(came.rows, late), interval, reason, judged_by)
    return Verdict(on_time, accepted, nothing, counts)
