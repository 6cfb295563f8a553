"""Rows, spans and sessions: what the intervals of the rows of a key add up to.

The interval of a row is ``[t, t + gap]``, where both ends touch other intervals: events exactly one gap
apart are one session. A *span* is stored for rows whose intervals touch: from the first row to the
latest end. Without cuts, a span is a session. A closing row or the maximum length cuts a chain of
spans that touch into several sessions; rows then stay separate as long as a cut may still arrive
between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, integers, timestamp_micros
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes, running_max
from streamops.kernel.lateness import Arrivals
from streamops.kernel.time import BEFORE_ALL, Instants, format_duration
from streamops.windows import conditions
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.tables import Classified, classify_lateness, find_usable, state_schema


def span_schema(spec: SessionSpec) -> pa.Schema:
    """Columns of a table of spans."""
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
class Spans:
    """Spans of the keys of a shard, in any order.

    Parameters
    ----------
    codes : array of int64
        Key number.
    start, end : arrays of int64
        First event; latest end of an event.
    cut : array of int64
        Time of the closing row, which is its last row; ``BEFORE_ALL`` if there is none.
    anchor : array of int64
        The instant from which the lengths of sessions are measured: the start, unless the chain began
        before it. Spans of one key with the same anchor belong to one chain.
    """

    codes: Ids
    start: Instants
    end: Instants
    cut: Instants
    anchor: Instants

    @staticmethod
    def of(table: pa.Table, codes: Ids) -> Spans:
        """Read the spans of a table."""
        start, end = integers(table, "start"), integers(table, "end")
        names = table.column_names
        cut = integers(table, "cut") if "cut" in names else np.full(len(table), BEFORE_ALL)
        anchor = integers(table, "anchor") if "anchor" in names else start
        return Spans(codes, start, end, cut, anchor)

    def append(self, other: Spans) -> Spans:
        """Concatenate the spans."""
        return Spans(
            *(
                np.concatenate([getattr(self, name), getattr(other, name)])
                for name in ("codes", "start", "end", "cut", "anchor")
            )
        )


@dataclass(frozen=True, slots=True)
class Intervals:
    """Usable rows, their intervals from event time to the end of their gap, and which rows are closing."""

    usable: Arrivals
    end: Instants
    closes: Mask

    @staticmethod
    def of(spec: SessionSpec, rows: pa.Table) -> Intervals:
        """The intervals of usable rows. The others are in the side output of ``usable``."""
        invalid = []
        if spec.gap_column is not None:
            gaps, known = timestamp_micros(rows.column(spec.gap_column))
            invalid.append(("gap_out_of_range", ~known | (gaps <= 0) | (gaps > spec.gap)))
        usable = find_usable(spec, rows, invalid)
        gap: int | Instants = spec.gap
        if spec.gap_column is not None:
            gap, _ = timestamp_micros(usable.rows.column(spec.gap_column))
        closes = np.zeros(len(usable.rows), np.bool_)
        if spec.until is not None:
            closes = np.asarray(combine_chunks(usable.rows.column(spec.until)).fill_null(False))
        return Intervals(usable, usable.times + gap, closes)

    @property
    def rows(self) -> pa.Table:
        """The rows."""
        return self.usable.rows

    @property
    def start(self) -> Instants:
        """Their event times."""
        return self.usable.times

    def __len__(self) -> int:
        return len(self.end)

    def where(self, mask: Mask) -> Intervals:
        """Select rows by a mask."""
        if mask.all():
            return self
        return Intervals(self.usable.where(mask), self.end[mask], self.closes[mask])

    def spans(self, codes: Ids) -> Spans:
        """One span per row, given the key numbers."""
        cut = np.where(self.closes, self.start, BEFORE_ALL)
        return Spans(codes, self.start, self.end, cut, self.start)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Intervals of sessions, which do not overlap within a key.

    ``extends_until`` is the last event time at which a row would still extend the session.
    """

    codes: Ids
    start: Instants
    extends_until: Instants

    def touched_by(self, codes: Ids, start: Instants, end: Instants) -> Mask:
        """Whether each of these closed intervals overlaps or touches a session."""
        count = len(self.codes)
        if not count:
            return np.zeros(len(codes), np.bool_)
        keys = np.concatenate([self.codes, codes])
        begins, ends = np.split(
            ordered_pair_codes(keys, np.concatenate([self.start, end])), [count]
        )
        order = np.argsort(begins, kind="stable")
        # The last session that begins before the end of the interval. Others end before that one.
        nearest = np.searchsorted(begins[order], ends, side="right") - 1
        found = order[np.maximum(nearest, 0)]
        touched: Mask = (nearest >= 0) & (self.codes[found] == codes)
        return touched & (self.extends_until[found] >= start)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions and their spans. The sessions of a chain are adjacent and in order.

    Parameters
    ----------
    ids : array of int64
        The session of each span.
    codes, start, end : arrays of int64
        Key number and window of each session.
    extends_until : array of int64
        The last event time at which a row would still extend the session.
    anchor : array of int64
        Start of the chain of the session.
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
        """The latest end of the spans of each session and of the sessions before it in its chain.

        The sessions of a chain are evicted in order: an earlier one can last longer than the closing
        row of a later one.
        """
        begins = np.ones(len(self), np.bool_)
        begins[1:] = (np.diff(self.codes) != 0) | (np.diff(self.anchor) != 0)
        return running_max(Groups(self.ids, len(self)).greatest(ends), begins)

    def published(self, watermark: int | None) -> Bounds:
        """Bounds of the sessions that are on time."""
        over = self.end <= (BEFORE_ALL if watermark is None else watermark)
        return Bounds(self.codes[over], self.start[over], self.extends_until[over])

    @staticmethod
    def of_state(spec: SessionSpec, spans: Spans) -> Sessions:
        """The sessions of stored spans."""
        if spec.cuts:
            return Sessions.of(spec, spans)
        codes, start, end = spans.codes, spans.start, spans.end
        return Sessions(
            np.arange(len(start)), codes, start, end, end, start
        )  # one session per span

    @staticmethod
    def of(spec: SessionSpec, spans: Spans) -> Sessions:
        """The sessions of spans, which may be single rows."""
        order = np.argsort(ordered_pair_codes(spans.codes, spans.start))
        codes, start, end, anchor = (
            column[order] for column in (spans.codes, spans.start, spans.end, spans.anchor)
        )
        begins = np.ones(len(order), np.bool_)
        begins[1:] = codes[1:] != codes[:-1]
        if spec.until is not None:
            cut = np.maximum(spans.cut[order], start.min(initial=0) - 1)
            latest = running_max(cut, begins)[:-1]
            # A closing row lies between two events if it is at the first event or after it.
            begins[1:] |= (latest >= start[:-1]) & (latest < start[1:])
        is_separate = start[1:] > running_max(end, begins)[:-1]
        # The link between two spans can be evicted before them. Then a common anchor shows that
        # they are one chain. No row can arrive between them any more.
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
    return conditions.SESSION_TOO_LONG.error(
        longest=longest, got=f"a session of {format_duration(length)}"
    )


def classify_rows(
    spec: SessionSpec,
    arrived: Intervals,
    codes: Ids,
    published: Bounds,
    previous_watermark: int | None,
    final: Bounds | None = None,
) -> Classified:
    """Classify rows by their own intervals, and by the published sessions that they would change.

    ``codes`` are the key numbers of the rows. ``final`` are published sessions that cannot be corrected.
    """
    on_time, lost = None, None
    if previous_watermark is not None:
        on_time = arrived.end > previous_watermark
        # Only rows behind the watermark can touch a published session.
        near = np.flatnonzero(on_time & (arrived.start <= previous_watermark))
        if len(near):
            last = np.where(arrived.closes[near], arrived.start[near], arrived.end[near])
            on_time[near] = ~published.touched_by(codes[near], arrived.start[near], last)
        lost = arrived.start <= spec.settled
        if final is not None:
            last = np.where(arrived.closes, arrived.start, arrived.end)
            lost |= final.touched_by(codes, arrived.start, last)
    interval = arrived.start, arrived.end
    return classify_lateness(spec, arrived.usable, interval, previous_watermark, on_time, lost)
