"""Find matches in a sequence of rows: test each start, choose among overlapping matches, collect their rows.

A start is *decided* once no row behind the frontier can change its match. A scan computes where the
preferred path from every start ends. It does not know the bound on time, which differs from start to
start: where the preferred path ends beyond the bound and a less preferred one does not, the path is
followed row by row if chosen matches do not overlap. If they do, or if absence may discard them, paths
are followed all at once, in time that is linear up to a logarithm (`core/jumps.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from streamops.kernel.groups import Ids, Mask
from streamops.kernel.time import Instants
from streamops.patterns.core.automaton import ACCEPT, NO_VARIABLE, Automaton, Test
from streamops.patterns.core.expressions import Labels
from streamops.patterns.core.scan import NEVER, UNKNOWN, Scan, Tape, trace

Resume = Literal["past last row", "to next row", "to first", "to last", "past horizon"]
"""Where the search continues after a match."""

_INSIDE = ("to first", "to last")
_OVERLAPPING = (*_INSIDE, "to next row")

_FEW = 16
"""With fewer matches at a time than this, a loop over one of them is faster than NumPy over all."""

_ROWS_AT_ONCE = 1 << 22

_ROWS_PER_POSITION = 32
"""If paths have more rows than so many times the tape, jumps are faster than following each of them."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the rows up to the frontiers decide.

    Parameters
    ----------
    starts, ends, bounds : arrays of int
        Of each match, sorted by start: position of the first row, position behind the last row, and the
        first position that is beyond the bound on time.
    timeouts, steps : arrays of int
        Starts of partial matches that ran out of time, and the number of steps that each reached.
    undecided : array of int
        Starts whose match depends on rows behind the frontier.
    needed : array of int
        By key: the first position that later matches may need; the frontier if there is none.
    """

    starts: Ids
    ends: Ids
    bounds: Ids
    timeouts: Ids
    steps: Ids
    undecided: Ids
    needed: Ids


@dataclass(frozen=True, slots=True)
class Starts:
    """Starts that match or are undecided, sorted.

    ``end`` and ``resume`` are unknown where ``walk`` is set: the path must be followed.
    """

    start: Ids
    end: Ids
    bound: Ids
    resume: Ids
    walk: Mask
    undecided: Mask


class Search:
    """The search for matches on one tape.

    Parameters
    ----------
    automaton : Automaton
    tape : Tape
    times : array of int64
        Event time of each position; AFTER_ALL at frontiers.
    may_start : array of bool
        Positions at which a match may start.
    within : int, optional
        The bound on the time from the first to the last row, exclusive.
    watermark : int
        No row up to here is missing.
    resume, variable : str, int
        Where the search continues after a match, and the variable that this refers to.
    horizon : int, optional
        How far behind the last row of a match the search continues, "past horizon". None if it does not.
    """

    def __init__(
        self,
        automaton: Automaton,
        tape: Tape,
        times: Instants,
        may_start: Mask,
        *,
        within: int | None,
        watermark: int,
        resume: Resume = "past last row",
        variable: int = NO_VARIABLE,
        horizon: int | None = None,
    ) -> None:
        self.automaton, self.tape, self.times, self.may_start = automaton, tape, times, may_start
        self.within, self.watermark = within, watermark
        self.resume, self.variable, self.horizon = resume, variable, horizon
        self.frontiers = np.flatnonzero(tape.is_frontier)
        self.tests = tape.tests(automaton)
        self.scan = Scan.of(automaton, tape, self.tests)
        self.earliest = self.scan.earliest()
        self.paths = _Paths(automaton)

    def find(self, *, timeouts: bool = False) -> Found:
        """Find the matches that are decided, and with ``timeouts`` also partial matches."""
        starts = self._starts()
        if self.resume == "to next row":
            chosen = np.flatnonzero(~starts.undecided)
            needed = self._first_of_keys(starts.start[starts.undecided])
        else:
            chosen, needed = self._choose(starts)
        found = Found(
            starts.start[chosen],
            starts.end[chosen],
            starts.bound[chosen],
            *(np.zeros(0, np.int64), np.zeros(0, np.int64)),
            starts.start[starts.undecided],
            needed,
        )
        if not timeouts:
            return found
        late, steps = self._timeouts(found, starts.resume[chosen])
        return Found(
            found.starts, found.ends, found.bounds, late, steps, found.undecided, found.needed
        )

    def label(self, starts: Ids, bounds: Ids) -> Labels:
        """The rows of decided matches, by position, and their variables."""
        match, position, variable = self.paths.follow(self, starts, bounds)
        rows = np.flatnonzero(variable != NO_VARIABLE)
        rows = rows[np.argsort(match[rows], kind="stable")]
        return Labels(match[rows], position[rows], variable[rows], len(starts))

    def _starts(self) -> Starts:
        """Every start that matches or may still match, whatever precedes it."""
        start = np.flatnonzero(self.may_start & (self.earliest[:, 0] < NEVER))
        bound, is_open = self._bounds(start)
        end = self.scan.preferred(self.earliest)[start].astype(np.int64)
        matches = self.earliest[start, 0] <= bound
        undecided = is_open & (end == UNKNOWN)
        walk = matches & ~undecided & (end > bound)
        resume = end.copy()
        if self.automaton.absent or self.resume in _OVERLAPPING:
            # More paths than those of chosen matches, or paths that overlap: not one by one.
            traced = walk
            if self.resume in _INSIDE:
                traced = matches & ~undecided
            limit = np.minimum(end, bound)[traced]
            end[traced], resume[traced] = self._trace(start[traced], limit)
            walk = np.zeros_like(walk)
        if self.automaton.absent:
            matches &= undecided | ~self._is_broken(end, bound)
            undecided |= matches & is_open
        keep = np.flatnonzero(matches | undecided)
        start, end, bound, resume = (column[keep] for column in (start, end, bound, resume))
        walk, undecided = walk[keep], undecided[keep]
        if self.resume == "past horizon":
            known = ~(walk | undecided)
            resume[known] = self._past_horizon(end[known])
        return Starts(start, end, bound, resume, walk, undecided)

    def _bounds(self, starts: Ids) -> tuple[Ids, Mask]:
        """The first position beyond the bound on time of each start, and whether rows may follow."""
        end = self.frontiers[np.searchsorted(self.frontiers, starts)]
        if self.within is None:
            return end, np.full(len(starts), self.tape.is_open)
        deadline = self.times[starts] + self.within
        bound = self._first_at(deadline, starts + 1, end)
        return bound, (deadline - 1 > self.watermark) & self.tape.is_open

    def _past_horizon(self, ends: Ids) -> Ids:
        """The first position that is a horizon after the last row of each match."""
        frontier: Ids = self.frontiers[np.searchsorted(self.frontiers, ends)]
        if self.horizon is None:
            return frontier
        return self._first_at(self.times[ends - 1] + self.horizon, ends, frontier)

    def _first_at(self, times: Instants, low: Ids, high: Ids) -> Ids:
        """The first position from `low` on whose row has this time or a later one; `high` if none has."""
        for _ in range(int(np.max(high - low, initial=0)).bit_length()):
            middle = (low + high) >> 1
            is_inside = (self.times[middle] < times) & (low < high)
            low = np.where(is_inside, middle + 1, low)
            high = np.where(is_inside, high, np.maximum(middle, low))
        return low

    def _is_broken(self, ends: Ids, bounds: Ids) -> Mask:
        """Whether a row that must not follow follows each match, before its bound."""
        if not self.automaton.absent:
            return np.zeros(len(ends), np.bool_)
        forbidden = (self.tape.bits & self.automaton.absent) != 0
        at = np.flatnonzero(forbidden | self.tape.is_frontier)
        following: Mask = at[np.minimum(np.searchsorted(at, ends), len(at) - 1)] < bounds
        return following

    def _trace(self, starts: Ids, bounds: Ids) -> tuple[Ids, Ids]:
        """The end of the matches of many starts, and where the search continues."""
        if (bounds - starts).sum() <= _ROWS_PER_POSITION * len(self.tape):
            end, marked = self._follow(starts, bounds)
        else:
            end, marked = trace(
                self.automaton,
                self.tests,
                self.earliest,
                starts,
                bounds,
                variable=self.variable,
                first=self.resume == "to first",
            )
        # If the match has no such row, or if it is its first one: at the next row.
        return end, np.maximum(marked, starts + 1) if self.resume in _INSIDE else end

    def _follow(self, starts: Ids, bounds: Ids) -> tuple[Ids, Ids]:
        """The end of matches, and the row of the variable, from their paths."""
        end, marked = np.empty_like(starts), np.full_like(starts, -1)
        for part in in_parts(bounds - starts):
            match, position, variable = self.paths.follow(self, starts[part], bounds[part])
            count = np.bincount(match, minlength=part.stop - part.start)
            end[part] = starts[part] + count
            its = variable == self.variable
            match, position = match[its], position[its]
            if self.resume == "to first":
                match, position = match[::-1], position[::-1]  # the last assignment wins
            marked[part.start + match] = position
        return end, marked

    def _choose(self, starts: Starts) -> tuple[Ids, Ids]:
        """One match after the other in every key, all keys at once."""
        needed = self.frontiers.copy()
        key = np.searchsorted(self.frontiers, starts.start)
        first = np.flatnonzero(np.diff(key, prepend=-1))
        limit = np.append(first, len(key))[1:]
        following = np.searchsorted(starts.start, starts.resume)  # unless the path must be followed
        chosen = np.zeros(len(key), np.bool_)
        at = first
        while len(at) >= _FEW:
            stop = starts.undecided[at]
            needed[key[at[stop]]] = starts.start[at[stop]]
            at, limit = at[~stop], limit[~stop]
            chosen[at] = True
            walk = at[starts.walk[at]]
            if len(walk):
                end, _ = self._follow(starts.start[walk], starts.bound[walk])
                resume = self._past_horizon(end) if self.resume == "past horizon" else end
                following[walk] = np.searchsorted(starts.start, resume)
                starts.end[walk], starts.resume[walk] = end, resume
            at = following[at]
            at, limit = at[at < limit], limit[at < limit]
        for one, end in zip(at.tolist(), limit.tolist(), strict=True):
            number = self._choose_one(starts, following, chosen, one, end)
            if number < end:
                needed[key[number]] = starts.start[number]
        return np.flatnonzero(chosen), needed

    def _choose_one(
        self, starts: Starts, following: Ids, chosen: Mask, first: int, limit: int
    ) -> int:
        """The matches of one key, up to a start that is undecided, which is returned, or to the end."""
        start, bound = starts.start[first:limit].tolist(), starts.bound[first:limit].tolist()
        ahead, walk = following[first:limit].tolist(), starts.walk[first:limit].tolist()
        undecided = starts.undecided[first:limit].tolist()
        number, path = 0, list[int]()
        while number < len(start) and not undecided[number]:
            path.append(number)
            if not walk[number]:
                number = ahead[number] - first
                continue
            variables = self.paths.follow_one(self, start[number], 0, bound[number])
            end = resume = start[number] + len(variables)
            if self.resume == "past horizon":
                resume = int(self._past_horizon(np.array([end]))[0])
            starts.end[first + number], starts.resume[first + number] = end, resume
            number = bisect_left(start, resume, number)
        chosen[first + np.array(path, np.int64)] = True
        return first + number

    def _first_of_keys(self, positions: Ids) -> Ids:
        """The first of these positions in every key; the frontier if there is none."""
        result = self.frontiers.copy()
        key = np.searchsorted(self.frontiers, positions)
        result[key[::-1]] = positions[::-1]  # the first one is written last
        return result

    def _timeouts(self, found: Found, resume: Ids) -> tuple[Ids, Ids]:
        """Partial matches that were alive at their bound, and the steps that they reached."""
        begins = np.zeros(len(self.tape), np.bool_)
        for transition in self.automaton.transitions[0]:
            begins |= self.tests[transition.test]
        begins &= self.may_start
        if self.resume != "to next row":
            covered = np.zeros(len(begins) + 1, np.int64)
            np.add.at(covered, found.starts, 1)
            np.add.at(covered, resume, -1)
            begins &= np.cumsum(covered[:-1]) == 0
        starts = np.flatnonzero(begins)
        if self.resume != "to next row":
            starts = starts[starts < found.needed[np.searchsorted(self.frontiers, starts)]]
        bounds, is_open = self._bounds(starts)
        everywhere = np.ones(len(self.automaton.transitions), np.bool_)
        latest = -self.scan.earliest(everywhere, latest=True)[starts, 0].astype(np.int64)
        missed = ~is_open & (self.earliest[starts, 0] > bounds) & (latest >= bounds)
        starts, bounds = starts[missed], bounds[missed]
        steps = np.ones(len(starts), np.int64)
        for step in range(2, self.automaton.count + 1):
            if len(starts):
                reached = self.scan.earliest(np.array(self.automaton.steps) >= step)
                steps += reached[starts, 0] <= bounds
        return starts, steps


def in_parts(sizes: Ids) -> Iterator[slice]:
    """Slices of matches with few enough rows together, because matches may overlap."""
    rows = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = rows[start - 1] if start else 0
        stop = max(int(np.searchsorted(rows, before + _ROWS_AT_ONCE, "right")), start + 1)
        yield slice(start, stop)
        start = stop


class _Paths:
    """The transitions of an automaton as arrays: by state and preference."""

    def __init__(self, automaton: Automaton) -> None:
        self.width = max(map(len, automaton.transitions))
        self.transitions = automaton.transitions
        shape = (len(automaton.transitions), self.width)
        self.test, self.target = np.full(shape, -1), np.full(shape, ACCEPT)
        self.variable = np.full(shape, NO_VARIABLE)
        for state, transitions in enumerate(automaton.transitions):
            for at, transition in enumerate(transitions):
                self.test[state, at], self.target[state, at] = transition.test, transition.target
                self.variable[state, at] = transition.variable

    def follow(self, search: Search, starts: Ids, bounds: Ids) -> tuple[Ids, Ids, Ids]:
        """Follow the preferred path from each start, to an end up to its bound, which exists.

        Returns
        -------
        match, position, variable : arrays of int
            The rows of the paths. The rows of a match are in order.
        """
        lanes, position = np.arange(len(starts)), starts.copy()
        state = np.zeros(len(starts), np.int64)
        found: list[tuple[Ids, Ids, Ids]] = []
        while len(lanes) >= _FEW:
            behind = np.minimum(position + 1, len(search.tape) - 1)
            following = np.full(len(lanes), ACCEPT)
            variable = np.full(len(lanes), NO_VARIABLE)
            is_free = np.ones(len(lanes), np.bool_)
            for at in range(self.width):
                target = self.target[state, at]
                ends = target == ACCEPT
                passes = search.tests[self.test[state, at], position]
                leads = search.earliest[behind, np.maximum(target, 0)] <= bounds[lanes]
                takes = is_free & (ends | passes & leads)
                following = np.where(takes, target, following)
                variable = np.where(takes, self.variable[state, at], variable)
                is_free &= ~takes
            goes_on = following != ACCEPT
            lanes, position, state = lanes[goes_on], position[goes_on], following[goes_on]
            found.append((lanes, position, variable[goes_on]))
            position = position + 1
        for lane, at, number in zip(*map(np.ndarray.tolist, (lanes, position, state)), strict=True):
            rest = self.follow_one(search, at, number, int(bounds[lane]))
            rows = np.arange(at, at + len(rest))
            found.append((np.full(len(rest), lane), rows, np.array(rest, np.int64)))
        columns = zip(*found, strict=True) if found else ([np.zeros(0, np.int64)] for _ in range(3))
        match, rows, variables = (np.concatenate(column) for column in columns)
        return match, rows, variables

    def follow_one(self, search: Search, position: int, state: int, bound: int) -> list[int]:
        """The variables of the rows on the rest of one path, which exists."""
        tests, earliest, variables = search.tests, search.earliest, list[int]()
        options = iter(self.transitions[state])
        while True:
            test, target, variable = next(options)
            if target == ACCEPT:
                return variables
            if tests[test, position] and earliest[position + 1, target] <= bound:
                variables.append(variable)
                position += 1
                options = iter(self.transitions[target])


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
