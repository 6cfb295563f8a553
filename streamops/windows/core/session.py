"""Session windows: bursts of activity per key, ended by silence, by a closing row or by length.

A session is published on time, once the operator's watermark reaches its end. The lateness of a row
depends on its own ``[t, t + gap)``: a row behind the watermark can still join an open session. A row that
would extend a published session is a straggler, too, because only a correction can accept it.

The published value is not stored. It is computed from the spans before the step, because every
change to a published session is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import combine_chunks, concat, integers, key_codes, rows_differ, take
from streamops.kernel.core import Identity, Metrics, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Mask, first_of, pair_codes
from streamops.kernel.operator import Table
from streamops.kernel.time import BEFORE_ALL, advance_watermark
from streamops.windows.core.aggregating import WindowCore
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.spans import (
    Bounds,
    Intervals,
    Sessions,
    Spans,
    classify_rows,
    span_schema,
)
from streamops.windows.core.spec import is_corrected
from streamops.windows.core.tables import (
    EARLY,
    LATE,
    ON_TIME,
    Results,
    estimate_values,
    key_fields,
    keys_of,
    merge_states,
    number_keys,
    publish_windows,
    states_of,
    update_states,
)


def _published_schema(spec: SessionSpec) -> pa.Schema:
    bounds = [("start", pa.int64()), ("extends_until", pa.int64())]
    return pa.schema([*key_fields(spec), *bounds])


class SessionCore(WindowCore[SessionSpec]):
    """Session windows: bursts of activity per key, ended by silence, by a closing row or by length."""

    STATE = StateFormat("windows.session", 1)
    # Published sessions cannot change any more, but rows can still touch them.
    TABLES: ClassVar = {
        "spans": Table(span_schema),
        "published": Table(lambda spec: None if spec.corrects else _published_schema(spec)),
    }

    def step(
        self, spec: SessionSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        arrived = Intervals.of(spec, packed)
        stored, bounds_before = state.tables["spans"], state.tables.get("published")

        # Number the keys of all tables of this step together.
        keys = [
            keys_of(stored, spec),
            [combine_chunks(arrived.rows.column(name)) for name in spec.by],
        ]
        sizes = [len(stored), len(arrived)]
        if bounds_before is not None:
            keys.append(keys_of(bounds_before, spec))
            sizes.append(len(bounds_before))
        codes_of = number_keys(keys, sizes)
        before = Spans.of(stored, codes_of[0])
        sessions = Sessions.of_state(spec, before)
        bounds = final = None
        if bounds_before is not None:
            edges = integers(bounds_before, "start"), integers(bounds_before, "extends_until")
            bounds = Bounds(codes_of[2], *edges)
        if spec.corrects:  # those of the table were published before the stragglers corrected them
            bounds, final = sessions.published(previous_watermark), bounds
        assert bounds is not None, "published sessions are stored, or can be corrected"
        classified = classify_rows(spec, arrived, codes_of[1], bounds, previous_watermark, final)
        codes, arrived = codes_of[1][classified.accepted], arrived.where(classified.accepted)

        table, after, into, prompt = stored, sessions, np.arange(len(stored)), codes[:0]
        if len(arrived):
            both = before.append(arrived.spans(codes))
            after = Sessions.of(spec, both)
            prompt = after.ids[len(stored) :][classified.on_time[classified.accepted]]
            settled = BEFORE_ALL if watermark is None else spec.settled_by(watermark)
            table, after, into = _join(spec, stored, arrived, both, after, settled)
        changes = publish(
            spec,
            SessionTable(stored, sessions),
            SessionTable(table, after),
            into=into,
            prompt=prompt,
            changed_keys=codes,
            previous_watermark=previous_watermark,
            watermark=watermark,
        )
        return Step(
            State(watermark, _next_tables(spec, table, after, changes, bounds_before, watermark)),
            changes.emitted,
            classified.late,
            classified.counts + changes.counts,
        )

    def convert(
        self,
        spec: SessionSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """The tables in the layout of the parameters."""
        found = dict(tables)
        spans, schema = found["spans"], span_schema(spec)
        if is_corrected(stored["stragglers"]) and not spec.corrects:
            found["published"] = _published_spans(spec, spans, found.get("published"), watermark)
        columns = {name: spans.column(name) for name in spans.column_names}
        columns = {"revision": pa.array(np.zeros(len(spans), np.int32))} | columns
        sessions = Sessions.of_state(spec, _spans(spec, spans))
        is_open = (sessions.end > (BEFORE_ALL if watermark is None else watermark))[sessions.ids]
        revision = np.asarray(columns["revision"])
        if spec.turned == "off":
            columns["revision"] = pa.array((revision + is_open).astype(np.int32))
        if spec.turned == "on":
            published = np.where(revision > 0, LATE, ON_TIME)
            columns["timing"] = pa.array(np.where(is_open, EARLY, published).astype(np.int8))
        # The states of aggregates that are unknown have a column more.
        states = [name for name in spans.column_names if name.startswith("agg.")]
        names = [name for name in schema.names if not name.startswith("agg.")] + states
        found["spans"] = pa.table({name: columns[name] for name in names})
        return found

    def next_deadline(self, spec: SessionSpec, state: State) -> int | None:
        """When the next session closes, or the next row of state can be evicted."""
        table = state.tables["spans"]
        sessions = Sessions.of_state(spec, _spans(spec, table))
        is_open = sessions.end > (BEFORE_ALL if state.watermark is None else state.watermark)
        due = np.where(
            is_open, sessions.end, sessions.lasting(integers(table, "end")) + spec.retention
        )
        if not spec.corrects:
            due = np.append(
                due, integers(state.tables["published"], "extends_until") + spec.retention
            )
        return int(due.min()) if len(due) else None

    def check(self, spec: SessionSpec, state: State) -> None:
        """Spans are merged where possible, and none is stored for too long."""
        table = state.tables["spans"]
        spans = _spans(spec, table)
        sessions = Sessions.of(spec, spans)
        details = f"watermark {state.watermark}\n{format_rows(table)}"
        assert (spans.start < spans.end).all(), f"an empty span: {details}"
        assert spec.cuts or len(sessions) == len(table), f"spans that touch: {details}"
        group_ids = Groups.of(pair_codes(spans.codes, spans.start))[0]
        assert group_ids.count == len(table), f"an event time twice: {details}"
        assert _alive(spec, table, sessions, state.watermark).all(), f"overdue: {details}"
        if not spec.corrects and state.watermark is not None:
            extends_until = integers(state.tables["published"], "extends_until")
            assert (extends_until > spec.settled_by(state.watermark)).all(), (
                f"overdue: {extends_until}"
            )


def _published_spans(
    spec: SessionSpec, table: pa.Table, before: pa.Table | None, watermark: int | None
) -> pa.Table:
    """The bounds of published sessions, of stored spans and in a table."""
    sessions = Sessions.of_state(spec, _spans(spec, table))
    closing = np.flatnonzero(sessions.end <= (BEFORE_ALL if watermark is None else watermark))
    before = _published_schema(spec).empty_table() if before is None else before
    return _bounds(spec, table, sessions, closing, before, watermark)


def _spans(spec: SessionSpec, table: pa.Table) -> Spans:
    return Spans.of(table, key_codes(keys_of(table, spec), len(table)))


def _join(
    spec: SessionSpec,
    stored: pa.Table,
    arrived: Intervals,
    both: Spans,
    sessions: Sessions,
    settled: int,
) -> tuple[pa.Table, Sessions, Ids]:
    """Merge the stored spans and the rows of each session into as few spans as possible.

    Parameters
    ----------
    both : Spans
        The stored spans, followed by those of the rows.
    sessions : Sessions
        The sessions of ``both``.
    settled : int
        Every row that is accepted later has a later event time.

    Returns
    -------
    spans : Table
        ``revision`` and ``timing`` are not filled in yet.
    sessions : Sessions
        The sessions of these spans.
    into : array of int64
        The span that each stored span became, or became a part of.
    """
    group_ids = sessions.ids
    touched = np.isin(sessions.ids, sessions.ids[len(stored) :])
    if spec.cuts:
        # A closing row can still arrive between two events after `settled`: they stay separate. So
        # does a session without new rows: merged in another order, its sums could round differently.
        earliest = both.start.min() - 1
        group_ids = pair_codes(
            group_ids, np.where(touched & (both.start <= settled), earliest, both.start)
        )
    groups, first = Groups.of(group_ids)
    old, new = groups.ids[: len(stored)], groups.ids[len(stored) :]
    # Aggregate the rows, then merge the result with the stored states.
    fresh, heads = Groups.of(new)
    states = zip(states_of(stored, spec), update_states(spec, fresh, arrived.rows), strict=True)
    members = Groups(np.concatenate([old, new[heads]]), groups.count)
    aggregates = merge_states(spec, members, [pa.concat_arrays(pieces) for pieces in states])

    keys = zip(keys_of(stored, spec), (arrived.rows.column(name) for name in spec.by), strict=True)
    index = pa.array(first)
    columns = [pa.concat_arrays([a, combine_chunks(b)]).take(index) for a, b in keys]
    start, end = groups.least(both.start), groups.greatest(both.end)
    own = {"start": start, "end": end, "cut": groups.greatest(both.cut)}
    # The start of a chain that can still grow backwards is not fixed yet.
    anchor = np.where(start <= settled, sessions.anchor[sessions.ids[first]], start)
    own["anchor"] = np.where(touched[first], anchor, both.anchor[first])
    nothing = np.zeros(groups.count, np.int64)
    schema = span_schema(spec)
    between = schema.names[len(columns) : len(schema) - len(aggregates)]
    filled = [pa.array(own.get(name, nothing)).cast(schema.field(name).type) for name in between]
    table = pa.table([*columns, *filled, *aggregates], schema=schema)
    return table, replace(sessions, ids=sessions.ids[first]), old


def _alive(spec: SessionSpec, table: pa.Table, sessions: Sessions, watermark: int | None) -> Mask:
    """The spans of sessions that are open, or that can still be changed or extended."""
    if watermark is None:
        return np.ones(len(table), np.bool_)
    alive = sessions.end > watermark
    if spec.corrects or spec.cuts:
        alive |= sessions.lasting(integers(table, "end")) > spec.settled_by(watermark)
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
    for name, values in (("revision", changes.revision), ("timing", changes.timing[sessions.ids])):
        if name in table.column_names:
            field = table.schema.field(name)
            filled = pa.array(values).cast(field.type)
            table = table.set_column(table.schema.get_field_index(name), field, filled)
    tables = {}
    if bounds_before is not None:
        closing = changes.closing[:0] if spec.corrects else changes.closing
        bounds = _bounds(spec, table, sessions, closing, bounds_before, watermark)
        if len(bounds) or not spec.corrects:
            tables["published"] = bounds
    alive = _alive(spec, table, sessions, watermark)
    if not alive.all():
        if spec.max_length is not None and watermark is not None:
            table = _keep_anchor(table, sessions, ~alive, spec.settled_by(watermark))
        table = table.filter(pa.array(alive)).combine_chunks()
    return {"spans": table} | tables


def _keep_anchor(table: pa.Table, sessions: Sessions, evicted: Mask, settled: int) -> pa.Table:
    """Store the anchor in chains whose first spans are evicted."""
    chains = pair_codes(sessions.codes, sessions.anchor)[sessions.ids]
    # A span that begins after `settled` may still be cut off and start a chain of its own.
    known = np.isin(chains, chains[evicted]) & (integers(table, "start") <= settled)
    anchor = np.where(known, sessions.anchor[sessions.ids], integers(table, "anchor"))
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
    """The bounds of published sessions that a row could still touch."""
    if watermark is None:
        return bounds_before
    rows = first_of(sessions.ids, len(sessions))[closing]
    index = pa.array(rows)
    keys = [key.take(index) for key in keys_of(table, spec)]
    bounds = [pa.array(sessions.start[closing]), pa.array(sessions.extends_until[closing])]
    both = concat([bounds_before, pa.table([*keys, *bounds], schema=bounds_before.schema)])
    alive = integers(both, "extends_until") > spec.settled_by(watermark)
    return both if alive.all() else both.filter(pa.array(alive)).combine_chunks()


@dataclass(frozen=True, slots=True)
class SessionTable:
    """Sessions and the table of their spans."""

    table: pa.Table
    sessions: Sessions


@dataclass(frozen=True, slots=True)
class Publication:
    """The output of a step, and what the state needs of it.

    Parameters
    ----------
    emitted : Table
    counts : Metrics
    closing : array of int64
        The sessions after the step that this step closes.
    revision : array of int64
        The revision of each span after the step.
    timing : array of int64
        The timing of each session after the step.
    """

    emitted: pa.Table
    counts: Metrics
    closing: Ids
    revision: Ids
    timing: Ids


def _results(spec: SessionSpec, source: SessionTable, chosen: Ids) -> Results:
    """The results of these sessions, in this order."""
    sessions, table = source.sessions, source.table
    position = np.full(len(sessions), -1, np.int64)
    position[chosen] = np.arange(len(chosen))
    members = position[sessions.ids]
    if (members < 0).any():
        rows = np.flatnonzero(members >= 0)
        table, members = take(table, rows), members[rows]
    first = first_of(members, len(chosen))
    if len(members) == len(chosen):  # one session per span
        states = states_of(take(table, first), spec)
    else:
        states = merge_states(spec, Groups(members, len(chosen)), states_of(table, spec))
    index = pa.array(first)
    keys = [key.take(index) for key in keys_of(table, spec)]
    start, end = sessions.start[chosen], sessions.end[chosen]
    return Results(keys, start, end, estimate_values(spec, states))


def publish(
    spec: SessionSpec,
    before: SessionTable,
    after: SessionTable,
    *,
    into: Ids,
    prompt: Ids,
    changed_keys: Ids,
    previous_watermark: int | None,
    watermark: int | None,
) -> Publication:
    """Publish sessions that close, and changes of published sessions.

    Parameters
    ----------
    before, after : SessionTable
        The sessions before the step, and with the accepted rows.
    into : array of int64
        The span in ``after`` of each span in ``before``.
    prompt : array of int64
        The session of each accepted row that is on time.
    changed_keys : array of int64
        The keys of the accepted rows. Sessions of other keys can only close.
    previous_watermark, watermark : int, optional
        The watermarks of the step before and of this one.
    """
    was_by = BEFORE_ALL if previous_watermark is None else previous_watermark
    now_by = BEFORE_ALL if watermark is None else watermark
    old, new = before.sessions, after.sessions
    follows = new.ids[into]
    was_published = _mask_of(new, follows[(old.end <= was_by)[old.ids]])
    closing = (new.end <= now_by) & ~was_published
    if not spec.revises:
        results = _results(spec, after, np.flatnonzero(closing))
        counts = Metrics(results=len(results.start))
        emitted = publish_windows(spec, results)
        none = np.zeros(len(new.ids), np.int64), np.zeros(len(new), np.int64)
        return Publication(emitted, counts, np.flatnonzero(closing), *none)

    # Compare only what may differ: keys with rows, and early sessions that close.
    was_early = spec.is_early and spec.turned != "on"
    was_out = (old.end <= was_by) | was_early
    ends = (old.end > was_by) & (old.end <= now_by)
    old_rows = np.flatnonzero(was_out & (np.isin(old.codes, changed_keys) | (ends & was_early)))
    is_out = (new.end <= now_by) | spec.is_early
    is_new = np.isin(new.codes, changed_keys) | closing
    if spec.turned == "on":  # publish all open sessions
        is_new |= ~was_published
    new_rows = np.flatnonzero(is_out & is_new)
    removed, current = _results(spec, before, old_rows), _results(spec, after, new_rows)
    match = _match_windows(
        old, old_rows, new, new_rows
    )  # position in `old_rows` per entry of `new_rows`, or -1
    matched = np.flatnonzero(match >= 0)

    numbers = _stored_column(before, "revision")
    number, when = _greatest(old, numbers), _greatest(old, _stored_column(before, "timing"))
    timing = np.zeros(len(new), np.int64)
    np.maximum.at(timing, follows, when[old.ids])
    # A closing row can end a session behind the watermark that contains no straggler.
    tardy = (new.end <= was_by) & ~_mask_of(new, prompt) & ~_mask_of(new, follows)
    late = tardy | (was_published & (new.end <= was_by))
    timing[new_rows] = np.select([late, new.end <= now_by], [LATE, ON_TIME], EARLY)[new_rows]
    same = np.zeros(len(new_rows), np.bool_)
    same[matched] = ~rows_differ(removed.take(match[matched]).values, current.take(matched).values)
    if spec.is_early:  # re-emit an unchanged value: its timing changed to on time
        turns_on_time = (when[old_rows[match[matched]]] == EARLY) & (
            timing[new_rows[matched]] != EARLY
        )
        same[matched] &= ~turns_on_time

    # A session continues the highest revision of the sessions that it replaces.
    unchanged = ~was_out
    unchanged |= ~np.isin(np.arange(len(old)), old_rows)
    unchanged[old_rows[match[same]]] = True
    revisions = np.zeros(len(new.ids), np.int64)
    np.maximum.at(revisions, into, numbers + ~unchanged[old.ids])
    revision = _greatest(new, revisions)
    replaces = _mask_of(new, follows[was_out[old.ids]])
    revision[tardy] = 1  # it consists of stragglers only
    # A row can leave an open session before its first result: it does not take the revision with it.
    revisions = np.where(is_out[new.ids], revision[new.ids], revisions)
    timing[new_rows[same]] = when[old_rows[match[same]]]

    absorbed = np.setdiff1d(np.arange(len(old_rows)), match[matched])
    again, first = matched[~same[matched]], np.flatnonzero(match < 0)
    back = match[again]
    changes = [
        (removed, absorbed, number[old_rows], when[old_rows], DELETE),
        (removed, back, number[old_rows], when[old_rows], PREIMAGE),
        (current, again, revision[new_rows], timing[new_rows], POSTIMAGE),
        (current, first, revision[new_rows], timing[new_rows], INSERT),
    ]
    emitted = [
        publish_windows(
            spec,
            results.take(rows),
            counted[rows].astype(np.int32),
            change,
            stage[rows],
        )
        for results, rows, counted, stage, change in changes
    ]
    if spec.turned == "off":  # take back what was early
        taken = np.flatnonzero(old.end > was_by)
        deletes = _results(spec, before, taken), (number[taken] - 1).astype(np.int32)
        emitted.insert(0, publish_windows(spec, *deletes, DELETE))
    anew = int(np.count_nonzero(replaces[new_rows[first]]))
    counts = Metrics(results=len(first) - anew, corrections=len(again) + anew)
    return Publication(concat(emitted), counts, np.flatnonzero(closing), revisions, timing)


def _match_windows(old: Sessions, old_rows: Ids, new: Sessions, new_rows: Ids) -> Ids:
    """The position in ``old_rows`` of the same window as each of ``new_rows``, or -1."""
    key, start, end = (
        np.concatenate([getattr(old, name)[old_rows], getattr(new, name)[new_rows]])
        for name in ("codes", "start", "end")
    )
    # Groups are numbered in order of first appearance, so `old_rows` have the lowest numbers.
    groups, _ = Groups.of(pair_codes(pair_codes(key, start), end))
    found = groups.ids[len(old_rows) :]
    return np.where(found < len(old_rows), found, -1)


def _mask_of(sessions: Sessions, members: Ids) -> Mask:
    """A mask of the sessions with at least one member."""
    result = np.zeros(len(sessions), np.bool_)
    result[members] = True
    return result


def _stored_column(source: SessionTable, name: str) -> Ids:
    """A column of the spans; 0 without the column."""
    if name not in source.table.column_names:
        return np.zeros(len(source.table), np.int64)
    return np.asarray(source.table.column(name)).astype(np.int64)


def _greatest(sessions: Sessions, values: Ids) -> Ids:
    """The greatest value of the spans of each session."""
    result = np.zeros(len(sessions), np.int64)
    np.maximum.at(result, sessions.ids, values)
    return result
