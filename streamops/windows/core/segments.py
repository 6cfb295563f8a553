"""Segments and sessions: what rows of one key add up to where their intervals touch.

A row at ``t`` lasts from ``t`` to ``t + gap``, both included where it comes to touching: events
exactly one gap apart are one session. A *segment* is what is stored of rows that touch: from the
first of them to the end of the one that lasts longest. Where nothing cuts sessions, a segment
is a session. A closing row, or the greatest length, cuts a chain of segments that touch into
several sessions; then rows stay apart while a cut may still come between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes, running_max
from streamops.kernel.time import Instants, format_duration
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.state_rows import micros, state_schema

__all__ = ["UNCUT", "Bounds", "Segments", "Sessions", "segment_schema"]

UNCUT = -(1 << 62)
"""The ``cut`` of a segment without a closing row."""


def segment_schema(spec: SessionSpec) -> pa.Schema:
    """Columns of a table of segments."""
    own = [("start", pa.int64()), ("end", pa.int64())]
    if spec.until is not None:
        own.append(("cut", pa.int64()))
    if spec.max_length is not None:
        own.append(("anchor", pa.int64()))
    if spec.revises:
        own.append(("revision", pa.int32()))
    if spec.is_early:
        own.append(("timing", pa.int8()))
    return state_schema(spec, *own)


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of the keys of a shard, in any order.

    Parameters
    ----------
    codes : array of int64
        The key of each, as a number.
    start, end : arrays of int64
        First event; end of the event that lasts longest.
    cut : array of int64
        Time of its closing row, which is its last; or ``UNCUT``.
    anchor : array of int64
        Where the lengths of its sessions are measured from: the start, unless the chain began
        before it. Segments of one key with one anchor are of one chain.
    """

    codes: Ids
    start: Instants
    end: Instants
    cut: Instants
    anchor: Instants

    @staticmethod
    def of(table: pa.Table, codes: Ids) -> Segments:
        """The segments of a table."""
        start, end = micros(table, "start"), micros(table, "end")
        names = table.column_names
        cut = micros(table, "cut") if "cut" in names else np.full(len(table), UNCUT)
        anchor = micros(table, "anchor") if "anchor" in names else start
        return Segments(codes, start, end, cut, anchor)

    def append(self, other: Segments) -> Segments:
        """These, and the others after them."""
        return Segments(
            *(
                np.concatenate([getattr(self, name), getattr(other, name)])
                for name in ("codes", "start", "end", "cut", "anchor")
            )
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where sessions lie. Of one key, no two overlap.

    Parameters
    ----------
    codes, start : arrays of int64
        Key and start of each session.
    extends_until : array of int64
        The last event time at which a row would still be part of it.
    """

    codes: Ids
    start: Instants
    extends_until: Instants

    def touched_by(self, codes: Ids, start: Instants, end: Instants) -> Mask:
        """Whether each of these intervals, both ends included, lies in a session or touches one."""
        count = len(self.codes)
        if not count:
            return np.zeros(len(codes), np.bool_)
        keys = np.concatenate([self.codes, codes])
        begins, ends = np.split(
            ordered_pair_codes(keys, np.concatenate([self.start, end])), [count]
        )
        order = np.argsort(begins, kind="stable")
        # The last session that begins before the interval ends: the others are over before it.
        nearest = np.searchsorted(begins[order], ends, side="right") - 1
        found = order[np.maximum(nearest, 0)]
        touched: Mask = (nearest >= 0) & (self.codes[found] == codes)
        return touched & (self.extends_until[found] >= start)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions, and the segments each is made of. Those of a chain are in order, side by side.

    Parameters
    ----------
    ids : array of int64
        The session of each segment.
    codes, start, end : arrays of int64
        Key and window of each session.
    extends_until : array of int64
        The last event time at which a row would still be part of the session.
    anchor : array of int64
        Where the chain that the session belongs to begins.
    """

    ids: Ids
    codes: Ids
    start: Instants
    end: Instants
    extends_until: Instants
    anchor: Instants

    def __len__(self) -> int:
        return len(self.start)

    def lasting(self, ends: Instants) -> Instants:
        """Per session, the greatest of these ends of its segments and of those before it.

        The sessions of a chain are forgotten in their order: an earlier one can reach beyond the
        closing row of a later one, which says that it does not.
        """
        begins = np.ones(len(self), np.bool_)
        begins[1:] = (np.diff(self.codes) != 0) | (np.diff(self.anchor) != 0)
        return running_max(Groups(self.ids, len(self)).greatest(ends), begins)

    def published(self, watermark: int | None) -> Bounds:
        """Those that are on time."""
        over = self.end <= (UNCUT if watermark is None else watermark)
        return Bounds(self.codes[over], self.start[over], self.extends_until[over])

    @staticmethod
    def of_state(spec: SessionSpec, segments: Segments) -> Sessions:
        """The sessions of segments that come from a state."""
        if spec.cuts:
            return Sessions.of(spec, segments)
        codes, start, end = segments.codes, segments.start, segments.end
        return Sessions(np.arange(len(start)), codes, start, end, end, start)  # one each

    @staticmethod
    def of(spec: SessionSpec, segments: Segments) -> Sessions:
        """The sessions of these segments, and of rows."""
        order = np.argsort(ordered_pair_codes(segments.codes, segments.start))
        codes, start, end, anchor = (
            column[order]
            for column in (segments.codes, segments.start, segments.end, segments.anchor)
        )
        begins = np.ones(len(order), np.bool_)
        begins[1:] = codes[1:] != codes[:-1]
        if spec.until is not None:
            cut = np.maximum(segments.cut[order], start.min(initial=0) - 1)
            latest = running_max(cut, begins)[:-1]
            # A closing row lies between two events if it came with the first, or after it.
            begins[1:] |= (latest >= start[:-1]) & (latest < start[1:])
        is_separate = start[1:] > running_max(end, begins)[:-1]
        # What links two segments can be forgotten before them; then one anchor says that they
        # are one chain. No row comes between them any more.
        begins[1:] |= is_separate & (anchor[1:] != anchor[:-1])
        chain, heads = np.cumsum(begins) - 1, np.flatnonzero(begins)
        ends = extends_until = np.maximum.reduceat(end, heads) if len(heads) else end
        if spec.until is not None and len(heads):
            closed = np.maximum.reduceat(cut, heads)
            ends = np.where(closed >= start[heads], closed + 1, ends)
            extends_until = np.where(closed >= start[heads], closed, extends_until)
        if spec.max_length is None:
            return _sessions(order, begins, codes, start[heads], ends, extends_until, start[heads])
        anchors = np.minimum.reduceat(anchor, heads) if len(heads) else start
        number = (start - anchors[chain]) // spec.max_length
        if spec.when_longer == "fail" and number.any():
            raise _too_long(spec, int((ends - anchors).max()))
        begins[1:] |= number[1:] != number[:-1]
        heads = np.flatnonzero(begins)
        chain = chain[heads]
        first = anchors[chain] + number[heads] * spec.max_length
        last = first + spec.max_length
        return _sessions(
            order,
            begins,
            codes,
            first,
            np.minimum(ends[chain], last),
            np.minimum(extends_until[chain], last - 1),
            anchors[chain],
        )


def _sessions(
    order: Ids,
    begins: Mask,
    codes: Ids,
    start: Instants,
    end: Instants,
    extends_until: Instants,
    anchor: Instants,
) -> Sessions:
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(begins) - 1
    return Sessions(ids, codes[begins], start, end, extends_until, anchor)


def _too_long(spec: SessionSpec, length: int) -> CapacityError:
    longest = format_duration(spec.max_length or 0)
    return CapacityError(
        "SESSION_TOO_LONG",
        "a session is longer than `max_length`",
        where="windows.session",
        got=f"a session of {format_duration(length)}",
        expected=f"at most {longest}, as when_longer='fail' wants it",
        fix="when_longer='split', or a longer max_length",
    )
