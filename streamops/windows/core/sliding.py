"""Sliding windows: for each event at ``t``, the aggregate over ``(t - size, t]`` of its key.

There is one result per key and event time: events at the same instant have the same window. It is
published on time, once the operator's watermark reaches ``t``. A row is a *straggler* if its event time
is at or below the watermark of the step before, and *too late* if it is below by the allowed lateness
or more. A straggler at ``s`` creates or changes the result at ``s``, and changes the results of its key
in ``[s, s + size)``.

A timestamp ``t`` is stored as long as a window that contains it can change: its last window ends at
``t + size - 1``, and can change until the watermark is ``retention`` past its end.

With early results, a result is published in every step that changes it, and again once it is on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    integers,
    key_codes,
    rows_differ,
    take,
)
from streamops.kernel.core import Metrics, State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.operator import Core, Table, checkpointed
from streamops.kernel.time import BEFORE_ALL, advance_watermark
from streamops.windows.core.spec import DURATION, WindowSpec
from streamops.windows.core.tables import (
    EARLY,
    LATE,
    ON_TIME,
    classify_lateness,
    find_usable,
    keys_of,
    number_keys,
    result_rows,
    revision_schema,
)
from streamops.windows.core.timestamps import KeyedRows, Timestamps, timestamp_schema

Revisions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingSpec(WindowSpec):
    """Parameters of sliding windows: ``size`` is the length of a window, which ends with an event."""

    size: int = checkpointed(metadata=DURATION)

    def __post_init__(self) -> None:
        self.refuse_contradictions()

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The event time, under its own name."""
        return (self.time,)

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column, also the event time."""
        return {self.time: (0, self.time), **super(SlidingSpec, self).origins}

    @property
    def event_retention(self) -> int:
        """How long after an event the last of its windows can change."""
        return self.size - 1 + self.retention


class SlidingCore(Core[SlidingSpec]):
    """Sliding windows: for each event at ``t``, the aggregate over ``(t - size, t]`` of its key."""

    STATE = StateFormat("windows.sliding", 1)
    TABLES: ClassVar = {
        "timestamps": Table(timestamp_schema),
        "revisions": Table(
            lambda spec: revision_schema(spec, "timestamp") if spec.revises else None
        ),
    }

    def step(
        self, spec: SlidingSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        rows, times, late, counts = _classify(spec, packed, previous_watermark)

        stored = state.tables["timestamps"]
        revisions = state.tables.get("revisions", revision_schema(spec, "timestamp").empty_table())
        # Number the keys of all tables of this step together.
        keys = [
            keys_of(stored, spec),
            [combine_chunks(rows.column(name)) for name in spec.by],
            keys_of(revisions, spec),
        ]
        codes = number_keys(keys, [len(stored), len(rows), len(revisions)])
        timestamps, was, arrived = Timestamps.of(
            spec,
            KeyedRows(stored, codes[0], integers(stored, "timestamp")),
            KeyedRows(rows, codes[1], times),
        )
        was_by = BEFORE_ALL if previous_watermark is None else previous_watermark
        now_by = BEFORE_ALL if watermark is None else watermark
        number, timing = np.zeros(len(timestamps), np.int32), np.full(len(timestamps), ON_TIME)
        known = timestamps.find(codes[2], integers(revisions, "timestamp"))
        number[known] = integers(revisions, "revision")
        prompt = (timestamps.times > was_by) & (timestamps.times <= now_by)
        stale = np.unique(arrived[times <= was_by])
        touched = timestamps.seen_from(spec.size, stale) & (timestamps.times <= was_by)
        now = np.full(len(timestamps), LATE)  # the timing of what this step publishes
        if spec.is_early:
            timing[known] = integers(revisions, "timing")
            timing[timestamps.times > was_by] = EARLY
            now[timestamps.times > was_by] = ON_TIME
            now[timestamps.times > now_by] = EARLY
            # Also open results, and early results that are on time now.
            touched |= prompt | (now == EARLY) & timestamps.seen_from(spec.size, np.unique(arrived))
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

    def next_deadline(self, spec: SlidingSpec, state: State) -> int | None:
        """When the next result is on time, or the next row of state can be evicted."""
        timestamp = integers(state.tables["timestamps"], "timestamp")
        is_open = timestamp > (BEFORE_ALL if state.watermark is None else state.watermark)
        due = np.where(is_open, timestamp, timestamp + spec.event_retention)
        if spec.revises:
            revised = integers(state.tables["revisions"], "timestamp")
            due = np.concatenate([due, revised + spec.retention])
        return int(due.min()) if len(due) else None

    def check(self, spec: SlidingSpec, state: State) -> None:
        """Timestamps are unique per key, and none is stored for too long."""
        table = state.tables["timestamps"]
        timestamp = integers(table, "timestamp")
        codes = key_codes(keys_of(table, spec), len(table))
        details = f"watermark {state.watermark}\n{table.to_pylist()}"
        assert Groups.of(pair_codes(codes, timestamp))[0].count == len(table), (
            f"a timestamp twice: {details}"
        )
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        assert (timestamp + spec.event_retention > watermark).all(), f"overdue: {details}"
        if spec.revises:
            revisions = state.tables["revisions"]
            revised = integers(revisions, "timestamp")
            details = f"watermark {state.watermark}\n{revisions.to_pylist()}"
            assert (integers(revisions, "revision") > 0).all(), f"a revision below 1: {details}"
            assert (revised + spec.retention > watermark).all(), f"overdue: {details}"
            assert spec.is_early or (revised <= watermark).all(), (
                f"revised before it was published: {details}"
            )


@dataclass(frozen=True, slots=True)
class _Published:
    """Revision and timing of the last publication of each timestamp."""

    number: Revisions
    timing: Ids


@dataclass(frozen=True, slots=True)
class _Update:
    """Rows to publish, the publications after them, and metrics."""

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
    """Publish results that are on time now, and changes of published results.

    The published value is not stored. It is computed from the timestamps before the step, because
    every change to a published result is published.

    Parameters
    ----------
    was : array of int64
        The new position of each stored timestamp.
    prompt, touched : arrays of bool
        Timestamps whose results are on time now; whose published results may have changed, or have
        been early until now.
    now : array of int64
        The timing of a result that is published now.
    """
    chosen = np.flatnonzero(prompt | touched)
    low = timestamps.oldest(spec.size, chosen)
    columns = timestamps.values(spec, spec.size, low, chosen)
    about = timestamps.about(spec, chosen)
    after = _Published(before.number.copy(), before.timing.copy())
    if not touched.any():
        emitted = result_rows(spec, [*about, *columns], after.number[chosen])
        return _Update(emitted, after, Metrics(results=len(chosen)))

    existed = np.zeros(len(timestamps), np.bool_)
    existed[was] = True
    old = np.flatnonzero((touched & existed)[chosen])  # positions in `chosen`, as below
    values = timestamps.values_before(spec, spec.size, stored, was, low[old], chosen[old])
    differs = rows_differ(values, [column.take(pa.array(old)) for column in columns])
    differs |= prompt[chosen[old]]  # re-emit an unchanged value: its timing changed to on time
    again, back = old[differs], np.flatnonzero(differs)
    first = np.flatnonzero((touched & ~existed)[chosen])
    after.number[chosen[first]] = now[chosen[first]] == LATE  # only stragglers made it
    after.number[chosen[again]] += 1
    for anew in (chosen[first], chosen[again]):
        after.timing[anew] = now[anew]

    def rows(
        positions: Ids, values: list[pa.Array], which: Ids, at: _Published, change: str
    ) -> pa.Table:
        index, position, found = pa.array(which), pa.array(positions), chosen[positions]
        filled = [*(a.take(position) for a in about), *(v.take(index) for v in values)]
        return result_rows(spec, filled, at.number[found], change, at.timing[found])

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
    """The accepted rows and their event times, the side output, and metrics."""
    arrived = find_usable(spec, packed)
    found = classify_lateness(spec, arrived, (arrived.times,), previous_watermark)
    arrived = arrived.where(found.accepted)
    return arrived.rows, arrived.times, found.late, found.counts


def _revisions(
    spec: SlidingSpec, timestamps: Timestamps, published: _Published, watermark: int
) -> pa.Table:
    """Revisions above 0 of results that can still change."""
    rows = np.flatnonzero((published.number > 0) & (timestamps.times + spec.retention > watermark))
    results = take(timestamps.table.select(range(len(spec.by) + 1)), rows)
    columns = [*results.columns, pa.array(published.number[rows])]
    if spec.is_early:
        columns.append(pa.array(published.timing[rows]).cast(pa.int8()))
    return pa.table(columns, schema=revision_schema(spec, "timestamp"))
