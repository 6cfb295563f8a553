"""Sliding windows: for each event at ``t`` the aggregate over ``(t - size, t]`` of its key.

One result for each key and event time: events of the same instant have the same window. It is
*on time* once the operator's watermark has reached ``t``; then it is published. A row is a
*straggler* if its event time is not above the watermark of the step before, and *too late* if
it lies the allowed lateness or more below it. A straggler at ``s`` makes or changes the result at
``s``, and changes those of its key in ``[s, s + size)``.

Timestamps are stored while a window that can still be computed reaches back to them. Every window
ends above ``watermark - retention`` from then on, so the last one that a timestamp at ``t`` can be in
ends at ``t + size - 1``, and the timestamp is forgotten once that is not above it.

Where results come early, one is published in every step that changes it, and once more when it is
on time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    key_codes,
    rows_differ,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.windows.core.output import EARLY, LATE, ON_TIME, deliver, result_rows
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.state_rows import key_fields, keys_of, micros, number_keys, usable_times
from streamops.windows.core.timestamps import Timed, Timestamps, timestamp_schema

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

Revisions = npt.NDArray[np.int32]

STATE = StateFormat("windows.sliding", 2)

_BEGINNING, _END = -(1 << 62), 1 << 62


def layout(spec: SlidingSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    tables = {"timestamps": timestamp_schema(spec)}
    return tables | {"revisions": _revision_schema(spec)} if spec.revises else tables


def empty(spec: SlidingSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: SlidingSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows as they are: few share a key and an instant."""
    return conform(rows, spec.input)


def step(
    spec: SlidingSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
) -> Step:
    """One micro-batch: see the module's docstring."""
    (packed,) = inputs
    previous_watermark = state.watermark
    watermark = max((w for w in (previous_watermark, watermark) if w is not None), default=None)
    rows, times, late, counts = _classify(spec, packed, previous_watermark)

    stored = state.tables["timestamps"]
    revisions = state.tables.get("revisions", _revision_schema(spec).empty_table())
    # One numbering of the keys for all that is compared in this step.
    keys = [
        keys_of(stored, spec),
        [combine_chunks(rows.column(name)) for name in spec.by],
        keys_of(revisions, spec),
    ]
    codes = number_keys(keys, [len(stored), len(rows), len(revisions)])
    timestamps, was, arrived = Timestamps.of(
        spec, Timed(stored, codes[0], micros(stored, "timestamp")), Timed(rows, codes[1], times)
    )
    was_by = _BEGINNING if previous_watermark is None else previous_watermark
    now_by = _BEGINNING if watermark is None else watermark
    number, timing = np.zeros(len(timestamps), np.int32), np.full(len(timestamps), ON_TIME)
    known = timestamps.find(codes[2], micros(revisions, "timestamp"))
    number[known] = micros(revisions, "revision")
    prompt = (timestamps.times > was_by) & (timestamps.times <= now_by)
    stale = np.unique(arrived[times <= was_by])
    touched = timestamps.seen_from(spec, stale) & (timestamps.times <= was_by)
    now = np.full(len(timestamps), LATE)  # what is published now, of those that are touched
    if spec.is_early:
        timing[known] = micros(revisions, "timing")
        timing[timestamps.times > was_by] = EARLY
        now[timestamps.times > was_by] = ON_TIME
        now[timestamps.times > now_by] = EARLY
        # What is open, and what is on time now and was early.
        touched |= prompt | (now == EARLY) & timestamps.seen_from(spec, np.unique(arrived))
    before = _Published(number, timing)
    update = _publish(
        spec, timestamps, stored, was, prompt=prompt, touched=touched, before=before, now=now
    )
    counts += update.counts

    tables = {"timestamps": timestamps.table}
    if spec.revises:
        tables["revisions"] = _revisions(spec, timestamps, update.published, now_by)
    alive = timestamps.times + spec.event_retention > now_by
    if not alive.all():
        tables["timestamps"] = timestamps.table.filter(pa.array(alive)).combine_chunks()
    return Step(State(watermark, tables), update.emitted, late, counts)


def finish(spec: SlidingSpec, state: State) -> pa.Table:
    """Every result that is not on time yet."""
    return step(spec, state, [spec.input.empty_table()], _END).output


def run(spec: SlidingSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result. Nothing is late; what cannot be placed is delivered where rows are."""
    only = step(spec, empty(spec), inputs, _END)
    return concat([only.output, only.late])


def next_deadline(spec: SlidingSpec, state: State) -> int | None:
    """The first result that is not on time, or the first timestamp something can be forgotten."""
    timestamp = micros(state.tables["timestamps"], "timestamp")
    is_open = timestamp > (_BEGINNING if state.watermark is None else state.watermark)
    due = np.where(is_open, timestamp, timestamp + spec.event_retention)
    if spec.revises:
        revised = micros(state.tables["revisions"], "timestamp")
        due = np.concatenate([due, revised + spec.retention])
    return int(due.min()) if len(due) else None


def check(spec: SlidingSpec, state: State) -> None:
    """Each timestamp is there once per key, and none is stored beyond its time."""
    table = state.tables["timestamps"]
    timestamp = micros(table, "timestamp")
    codes = key_codes(keys_of(table, spec), len(table))
    details = f"watermark {state.watermark}\n{table.to_pylist()}"
    assert Groups.of(pair_codes(codes, timestamp))[0].count == len(table), (
        f"a timestamp twice: {details}"
    )
    watermark = _BEGINNING if state.watermark is None else state.watermark
    assert (timestamp + spec.event_retention > watermark).all(), f"overdue: {details}"
    if spec.revises:
        revisions = state.tables["revisions"]
        revised = micros(revisions, "timestamp")
        details = f"watermark {state.watermark}\n{revisions.to_pylist()}"
        assert (micros(revisions, "revision") > 0).all(), f"a revision of nothing: {details}"
        assert (revised + spec.retention > watermark).all(), f"overdue: {details}"
        assert spec.is_early or (revised <= watermark).all(), (
            f"revised before it was published: {details}"
        )


@dataclass(frozen=True, slots=True)
class _Published:
    """What was last published of each timestamp: its revision, and when that was."""

    number: Revisions
    timing: Ids


@dataclass(frozen=True, slots=True)
class _Update:
    """Rows to publish, what is published of each timestamp from now on, and how many there were."""

    emitted: pa.Table
    published: _Published
    counts: Metrics


def _publish(
    spec: SlidingSpec,
    timestamps: Timestamps,
    stored: pa.Table,
    was: Ids,
    *,
    prompt: Mask,
    touched: Mask,
    before: _Published,
    now: Ids,
) -> _Update:
    """What is published: results that are on time now, and those that may have been published.

    The value published before is not stored: it is that of the timestamps as they were before the
    step, because every change to a published result is itself published.

    Parameters
    ----------
    was : array of int64
        Where each stored timestamp is now.
    prompt, touched : arrays of bool
        Timestamps whose results are on time now; whose results may have changed since they were
        published, or have been early till now.
    before : _Published
    now : array of int64
        When a result is that is published now.
    """
    chosen = np.flatnonzero(prompt | touched)
    low = timestamps.oldest(spec, chosen)
    columns = timestamps.values(spec, low, chosen)
    about = timestamps.about(spec, chosen)
    after = _Published(before.number.copy(), before.timing.copy())
    if not touched.any():
        emitted = result_rows(spec, [*about, *columns], after.number[chosen])
        return _Update(emitted, after, Metrics(results=len(chosen)))

    stood = np.zeros(len(timestamps), np.bool_)
    stood[was] = True
    old = np.flatnonzero((touched & stood)[chosen])  # positions in `chosen`, as all below
    values = timestamps.values_before(spec, stored, was, low[old], chosen[old])
    differs = rows_differ(values, [column.take(pa.array(old)) for column in columns])
    differs |= prompt[chosen[old]]  # re-emit an unchanged value: it went from early to on time
    again, back = old[differs], np.flatnonzero(differs)
    first = np.flatnonzero((touched & ~stood)[chosen])
    after.number[chosen[first]] = now[chosen[first]] == LATE  # only stragglers made it
    after.number[chosen[again]] += 1
    for anew in (chosen[first], chosen[again]):
        after.timing[anew] = now[anew]

    def rows(
        positions: Ids, values: list[pa.Array], which: Ids, at: _Published, change: str
    ) -> pa.Table:
        index, position, their = pa.array(which), pa.array(positions), chosen[positions]
        filled = [*(a.take(position) for a in about), *(v.take(index) for v in values)]
        return result_rows(spec, filled, at.number[their], change, at.timing[their])

    emitted = [rows(first, columns, first, after, INSERT)]
    if spec.retracts:
        emitted.append(rows(again, values, back, before, PREIMAGE))
    emitted.append(rows(again, columns, again, after, POSTIMAGE))
    ready = np.flatnonzero((prompt & ~touched)[chosen])
    emitted.append(rows(ready, columns, ready, after, INSERT))
    counts = Metrics(results=len(first) + len(ready), corrections=len(again))
    return _Update(concat(emitted), after, counts)


def _classify(
    spec: SlidingSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, Ids, pa.Table, Metrics]:
    """The rows accepted and their event times; late rows to deliver; the count of all."""
    times, valid = usable_times(spec, packed)
    pieces, total = [spec.output.empty_table()], len(packed)
    if not valid.all():
        if spec.routes:
            bad = np.flatnonzero(~valid)
            present = timestamp_micros(packed.column(spec.time))[1][bad]
            reason = np.where(present, "time_out_of_range", "null_time")
            pieces.append(deliver(spec, take(packed, bad), None, reason, None))
        good = np.flatnonzero(valid)
        packed, times = take(packed, good), times[good]
    counts = Metrics(rows=total, rejected=total - len(packed))
    if previous_watermark is None:
        return packed, times, concat(pieces), counts + Metrics(on_time=len(packed))
    on_time, too_late = (
        times > previous_watermark,
        times <= previous_watermark - spec.allowed_lateness,
    )
    counts += Metrics(
        on_time=int(on_time.sum()),
        stragglers=int((~on_time & ~too_late).sum()),
        too_late=int(too_late.sum()),
    )
    accepted = ~too_late if spec.corrects else on_time
    if not accepted.all():
        late = np.flatnonzero(~accepted)
        if spec.routes:
            reason = np.where(too_late[late], "too_late", "straggler")
            missed = (times[late],)
            pieces.append(deliver(spec, take(packed, late), missed, reason, previous_watermark))
        good = np.flatnonzero(accepted)
        packed, times = take(packed, good), times[good]
    return packed, times, concat(pieces), counts


def _revision_schema(spec: SlidingSpec) -> pa.Schema:
    """Columns of the table of revisions: one row per result that was published again."""
    own = [("timestamp", pa.int64()), ("revision", pa.int32())]
    return pa.schema([*key_fields(spec), *own, *([("timing", pa.int8())] if spec.is_early else [])])


def _revisions(
    spec: SlidingSpec, timestamps: Timestamps, published: _Published, watermark: int
) -> pa.Table:
    """The revisions above 0 of results that can still change."""
    rows = np.flatnonzero((published.number > 0) & (timestamps.times + spec.retention > watermark))
    results = take(timestamps.table.select(range(len(spec.by) + 1)), rows)
    columns = [*results.columns, pa.array(published.number[rows])]
    if spec.is_early:
        columns.append(pa.array(published.timing[rows]).cast(pa.int8()))
    return pa.table(columns, schema=_revision_schema(spec))
