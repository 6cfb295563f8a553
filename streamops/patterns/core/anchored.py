"""The matches of patterns whose conditions refer to the first row of the match.

What a row satisfies then depends on the start, so that each start has a tape of its own: the rows from the
start on, with a frontier where its bound is. The tapes of many starts are one tape for the search, which
is vectorised over all of them. A tape begins with a few rows, and only if these do not decide its start,
it is made four times as long, up to the bound: the cost of a start is that of the rows that decide it.

Which starts have a tape at all is found on the rows of the shard, as if those conditions did not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamops.kernel.groups import Ids, Mask
from streamops.kernel.time import Instants
from streamops.patterns.core.automaton import Automaton, Test
from streamops.patterns.core.measures import Labels
from streamops.patterns.core.scan import UNKNOWN, Tape
from streamops.patterns.core.search import Found, Search, Starts, in_parts

Conditions = Callable[[Ids, Ids], Ids]
"""From positions of rows, and of the first rows of their matches, to bits of conditions."""

_FIRST_ROWS = 16
_GROWTH = 4


class _Tapes(NamedTuple):
    """The tapes of some starts as one tape: a section for each."""

    search: Search
    begins: Ids
    frontiers: Ids


class AnchoredSearch(Search):
    """The search for matches if bits of conditions depend on the first row of the match.

    Parameters
    ----------
    automaton, tape, times, may_start
        As those of :class:`Search`; the tape has no such bits.
    conditions : callable
        The bits that depend on the first row.
    bits : int
        All bits that it may return.
    """

    def __init__(
        self,
        automaton: Automaton,
        tape: Tape,
        times: Instants,
        may_start: Mask,
        *,
        conditions: Conditions,
        bits: int,
        **parameters: Any,
    ) -> None:
        # As if a row satisfied them where they are required, and did not where they are forbidden.
        tests = tuple(Test(of.required & ~bits, of.forbidden & ~bits) for of in automaton.tests)
        relaxed = replace(automaton, tests=tests, absent=automaton.absent & ~bits)
        super().__init__(relaxed, tape, times, may_start, **parameters)
        self.exact, self.conditions = automaton, conditions
        self.ends = self.timed_out = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.with_timeouts = False

    def find(self, *, timeouts: bool = False) -> Found:
        """Find the matches that are decided, and with ``timeouts`` also partial matches."""
        self.with_timeouts = timeouts
        return super().find(timeouts=timeouts)

    def label(self, starts: Ids, bounds: Ids) -> Labels:
        """The rows of decided matches, by position, and their variables."""
        known, ends = self.ends
        tapes = self._tapes(starts, ends[np.searchsorted(known, starts)] - starts, is_open=False)
        found = tapes.search.label(tapes.begins, tapes.frontiers)
        position = found.row - tapes.begins[found.match] + starts[found.match]
        return Labels(found.match, position, found.variable, found.count)

    def _candidates(self) -> tuple[Ids, Ids, Mask]:
        """Starts that may match, or run out of time, with their bounds and whether rows may follow."""
        start = np.flatnonzero(self.may_start)
        bound, is_open = self._bounds(start)
        earliest = self.earliest[start, 0]
        keep = (earliest <= bound) | is_open & (earliest == UNKNOWN)
        if self.with_timeouts:
            everywhere = np.ones(len(self.automaton.transitions), np.bool_)
            latest = -self.scan.earliest(everywhere, latest=True)[start, 0].astype(np.int64)
            keep |= ~is_open & (latest >= bound)
        return start[keep], bound[keep], is_open[keep]

    def _starts(self) -> Starts:
        """Every start that matches or may still match, whatever precedes it."""
        start, bound, is_open = self._candidates()
        end, steps = np.zeros_like(start), np.zeros_like(start)
        undecided = np.zeros(len(start), np.bool_)
        size = bound - start
        length = np.minimum(size, _FIRST_ROWS)
        pending = np.arange(len(start))
        while len(pending):
            undecided[pending] = False
            # Behind a frontier that is closer than the bound there are rows, which are not looked at yet.
            waits = is_open[pending] | (length[pending] < size[pending])
            for among, may_follow in ((pending[waits], True), (pending[~waits], False)):
                for part in in_parts(length[among]):
                    which = among[part]
                    tapes = self._tapes(start[which], length[which], is_open=may_follow)
                    found = tapes.search.find(timeouts=self.with_timeouts)
                    matched = np.searchsorted(tapes.begins, found.starts)
                    end[which[matched]] = start[which[matched]] + found.ends - found.starts
                    undecided[which[np.searchsorted(tapes.begins, found.undecided)]] = True
                    steps[which[np.searchsorted(tapes.begins, found.timeouts)]] = found.steps
            pending = pending[undecided[pending] & (length[pending] < size[pending])]
            length = np.minimum(size, length * _GROWTH)
        late = np.flatnonzero(steps)
        self.timed_out = start[late], steps[late]
        keep = np.flatnonzero((end > 0) | undecided)
        start, end, bound = start[keep], end[keep], bound[keep]
        undecided = undecided[keep]
        end[undecided] = UNKNOWN
        self.ends = start, end
        resume, decided = end.copy(), ~undecided
        if self.resume == "past horizon":
            resume[decided] = self._past_horizon(end[decided])
        elif self.resume in ("to first", "to last"):
            resume[decided] = self._inside(start[decided], end[decided])
        return Starts(start, end, bound, resume, np.zeros(len(start), np.bool_), undecided)

    def _inside(self, starts: Ids, ends: Ids) -> Ids:
        """The first or last row of the variable, or the next row if there is none, or it is the first one."""
        resume = starts + 1
        for part in in_parts(ends - starts):
            labels = self.label(starts[part], ends[part]).only(frozenset([self.variable]))
            match, position = labels.match, labels.row
            if self.resume == "to first":
                match, position = match[::-1], position[::-1]  # the last assignment wins
            resume[part.start + match] = np.maximum(position, starts[part][match] + 1)
        return resume

    def _timeouts(self, found: Found, resume: Ids) -> tuple[Ids, Ids]:
        """Partial matches that were alive at their bound, and the steps that they reached."""
        starts, steps = self.timed_out
        if self.resume == "to next row":
            return starts, steps
        change = np.zeros(len(self.tape) + 1, np.int64)
        np.add.at(change, found.starts, 1)
        np.add.at(change, resume, -1)
        is_free = np.cumsum(change)[starts] == 0
        is_free &= starts < found.needed[np.searchsorted(self.frontiers, starts)]
        return starts[is_free], steps[is_free]

    def _tapes(self, starts: Ids, sizes: Ids, *, is_open: bool) -> _Tapes:
        """The tapes of starts, each with so many rows."""
        frontiers = np.cumsum(sizes + 1) - 1
        begins = frontiers - sizes
        of = np.repeat(np.arange(len(starts)), sizes + 1)
        positions = starts[of] + np.arange(len(of)) - begins[of]
        is_frontier = np.zeros(len(of), np.bool_)
        is_frontier[frontiers] = True
        rows = np.flatnonzero(~is_frontier)
        bits = np.zeros(len(of), np.int64)
        own = self.conditions(positions[rows], starts[of[rows]])
        bits[rows] = self.tape.bits[positions[rows]] | own
        may_start = np.zeros(len(of), np.bool_)
        may_start[begins] = True
        search = Search(
            self.exact,
            Tape(bits, is_frontier, is_open),
            np.zeros(len(of), np.int64),
            may_start,
            within=None,
            watermark=self.watermark,
            resume="to next row",
        )
        return _Tapes(search, begins, frontiers)
