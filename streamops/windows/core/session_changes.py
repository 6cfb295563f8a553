"""What a step publishes of sessions: those that close, and what corrections make of others.

The value published before is not stored: it is that of the session as it was before the step,
because every change to a published session is itself published.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import concat, rows_differ, take
from streamops.kernel.core import Metrics
from streamops.kernel.groups import Groups, Ids, Mask, first_of, pair_codes
from streamops.kernel.time import Instants
from streamops.windows.core.output import EARLY, LATE, ON_TIME, publish_windows
from streamops.windows.core.segments import Sessions
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.state_rows import estimates, keys_of, merge_states, states_of

__all__ = ["Publication", "SessionTable", "publish"]

_NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class SessionTable:
    """Sessions, and the table of the segments they are made of."""

    table: pa.Table
    sessions: Sessions


@dataclass(frozen=True, slots=True)
class Publication:
    """What a step says.

    Parameters
    ----------
    emitted : Table
    counts : Metrics
    closing : array of int64
        The sessions, after the step, that are on time now and were not before.
    revision, timing : arrays of int64
        To remember of each session after the step.
    """

    emitted: pa.Table
    counts: Metrics
    closing: Ids
    revision: Ids
    timing: Ids


@dataclass(frozen=True, slots=True)
class _Results:
    """Sessions to publish or to take back."""

    keys: list[pa.Array]
    start: Instants
    end: Instants
    values: list[pa.Array]

    @staticmethod
    def of(spec: SessionSpec, of: SessionTable, chosen: Ids) -> _Results:
        """These sessions, in this order, each once."""
        sessions = of.sessions
        position = np.full(len(sessions), -1, np.int64)
        position[chosen] = np.arange(len(chosen))
        members = position[sessions.ids]
        if (members < 0).any():
            rows = np.flatnonzero(members >= 0)
            table, members = take(of.table, rows), members[rows]
        else:
            table = of.table
        first = first_of(members, len(chosen))
        if len(members) == len(chosen):  # a segment each
            states = states_of(take(table, first), spec)
        else:
            states = merge_states(spec, Groups(members, len(chosen)), states_of(table, spec))
        index = pa.array(first)
        keys = [key.take(index) for key in keys_of(table, spec)]
        return _Results(keys, sessions.start[chosen], sessions.end[chosen], estimates(spec, states))

    def take(self, rows: Ids) -> _Results:
        """The results at these positions."""
        index = pa.array(rows)
        return _Results(
            [key.take(index) for key in self.keys],
            self.start[rows],
            self.end[rows],
            [value.take(index) for value in self.values],
        )


def publish(
    spec: SessionSpec,
    before: SessionTable,
    after: SessionTable,
    *,
    follows: Ids,
    prompt: Ids,
    changed_keys: Ids,
    previous_watermark: int | None,
    watermark: int | None,
) -> Publication:
    """What follows from one state of the sessions to the next.

    Parameters
    ----------
    before, after : SessionTable
        Sessions before the step, and with the rows it accepted.
    follows : array of int64
        For each segment of before, the session after it that it is now part of.
    prompt : array of int64
        For each row accepted that is on time, its session.
    changed_keys : array of int64
        The keys of the rows accepted; others can only have closed.
    previous_watermark, watermark : int, optional
        The watermark of the step before, and of this one.
    """
    was_by = _NEVER if previous_watermark is None else previous_watermark
    now_by = _NEVER if watermark is None else watermark
    old, new = before.sessions, after.sessions
    was_published = _some(new, follows[(old.end <= was_by)[old.ids]])
    closing = (new.end <= now_by) & ~was_published
    if not spec.revises:
        results = _Results.of(spec, after, np.flatnonzero(closing))
        none = np.zeros(len(new), np.int64)
        counts = Metrics(results=len(results.start))
        emitted = publish_windows(spec, results)
        return Publication(emitted, counts, np.flatnonzero(closing), none, none)

    # Chosen: what may differ. Of keys without rows that is what closes after it was early.
    was_out = (old.end <= was_by) | spec.is_early
    ends = (old.end > was_by) & (old.end <= now_by)
    ours = np.flatnonzero(was_out & (np.isin(old.codes, changed_keys) | (ends & spec.is_early)))
    is_out = (new.end <= now_by) | spec.is_early
    theirs = np.flatnonzero(is_out & (np.isin(new.codes, changed_keys) | closing))
    removed, current = _Results.of(spec, before, ours), _Results.of(spec, after, theirs)
    match = _matched(old, ours, new, theirs)  # position in `ours` of each of `theirs`, or -1
    stood = np.flatnonzero(match >= 0)

    number, when = _remembered(before, "revision"), _remembered(before, "timing")
    timing = np.zeros(len(new), np.int64)
    np.maximum.at(timing, follows, when[old.ids])
    # A closing row can end a session behind the watermark that no straggler has a part in.
    tardy = (new.end <= was_by) & ~_some(new, prompt) & ~_some(new, follows)
    late = tardy | (was_published & (new.end <= was_by))
    timing[theirs] = np.select([late, new.end <= now_by], [LATE, ON_TIME], EARLY)[theirs]
    same = np.zeros(len(theirs), np.bool_)
    same[stood] = ~rows_differ(removed.take(match[stood]).values, current.take(stood).values)
    if spec.is_early:  # re-emit an unchanged value: it went from early to on time
        turns_on_time = (when[ours[match[stood]]] == EARLY) & (timing[theirs[stood]] != EARLY)
        same[stood] &= ~turns_on_time

    # A session goes on from the highest revision among those that it replaces.
    unchanged = ~was_out
    unchanged |= ~np.isin(np.arange(len(old)), ours)
    unchanged[ours[match[same]]] = True
    raised = number + ~unchanged
    revision = np.zeros(len(new), np.int64)
    np.maximum.at(revision, follows, raised[old.ids])
    replaces = _some(new, follows[was_out[old.ids]])
    revision[tardy] = 1  # only stragglers made it
    timing[theirs[same]] = when[ours[match[same]]]

    absorbed = np.setdiff1d(np.arange(len(ours)), match[stood])
    again, first = stood[~same[stood]], np.flatnonzero(match < 0)
    back = match[again]
    changes = [
        (removed, absorbed, number[ours], when[ours], DELETE),
        (removed, back, number[ours], when[ours], PREIMAGE),
        (current, again, revision[theirs], timing[theirs], POSTIMAGE),
        (current, first, revision[theirs], timing[theirs], INSERT),
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
    anew = int(np.count_nonzero(replaces[theirs[first]]))
    counts = Metrics(results=len(first) - anew, corrections=len(again) + anew)
    return Publication(concat(emitted), counts, np.flatnonzero(closing), revision, timing)


def _matched(old: Sessions, ours: Ids, new: Sessions, theirs: Ids) -> Ids:
    """For each of ``theirs``, the position in ``ours`` of the same window; -1 if there is none."""
    names = [np.concatenate([getattr(old, n)[ours], getattr(new, n)[theirs]]) for n in _WINDOW]
    # Numbered in order of first appearance, so those of `ours` have the lowest numbers.
    groups, _ = Groups.of(pair_codes(pair_codes(names[0], names[1]), names[2]))
    found = groups.ids[len(ours) :]
    return np.where(found < len(ours), found, -1)


_WINDOW = ("codes", "start", "end")


def _some(sessions: Sessions, members: Ids) -> Mask:
    """The sessions that are named at least once."""
    result = np.zeros(len(sessions), np.bool_)
    result[members] = True
    return result


def _remembered(of: SessionTable, name: str) -> Ids:
    """What is stored of each session in this column of its segments; 0 where nothing is."""
    result = np.zeros(len(of.sessions), np.int64)
    if name in of.table.column_names:
        np.maximum.at(result, of.sessions.ids, np.asarray(of.table.column(name)))
    return result
