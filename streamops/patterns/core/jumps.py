"""Find where matches end, for many starts at once, each with its own time bound.

A transition is possible if the earliest end behind it is within the bound, so that where a path leads
from a row is a function of the state and of the bound. As a function of the bound it is constant between
a few values. Two rows together are such a function as well, and so are 4, 8, 16 rows: each is composed of
two shorter ones. A path then needs one jump per power of two, and not one step per row (pointer doubling).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamops.kernel.groups import Ids, Mask
from streamops.patterns.core.automaton import ACCEPT, Automaton
from streamops.patterns.core.scan import NEVER, Positions

_PIECES_AT_ONCE = 1 << 20

_UNMARKED = -1


def trace(
    automaton: Automaton,
    tests: Mask,
    earliest: Positions,
    starts: Ids,
    bounds: Ids,
    *,
    variable: int,
    first: bool,
) -> tuple[Ids, Ids]:
    """Follow the preferred path from each start, to an end up to its bound, which exists.

    Parameters
    ----------
    automaton : Automaton
    tests : array of bool
        :meth:`streamops.patterns.core.scan.Tape.tests`.
    earliest : array of int32
        :meth:`streamops.patterns.core.scan.Scan.earliest`.
    starts, bounds : arrays of int
        Sorted by start.
    variable : int
        The variable whose rows are searched.
    first : bool
        The first row of the variable, or else the last one.

    Returns
    -------
    ends, marked : arrays of int
        Position behind the last row, and position of the row of the variable; -1 if there is none.
    """
    ends, marked = np.empty_like(starts), np.full_like(starts, _UNMARKED)
    for part in _parts(starts, bounds, len(automaton.transitions)):
        low, high = int(starts[part.start]), int(bounds[part].max())
        position, bound = starts[part] - low, bounds[part] - low
        lanes, state = np.arange(part.start, part.stop), np.zeros(len(position), np.int64)
        jumps = _Jumps.of(automaton, tests, earliest, low, high, variable, first)
        level = 0
        while len(lanes):
            jumps = jumps.within(_reach(position >> level, bound, jumps.blocks))
            is_last = int((bound - position).max()) < 1 << level
            moves = np.full(len(lanes), is_last) | ((position >> level) & 1 == 1)
            at = jumps.find((position >> level)[moves] * jumps.states + state[moves], bound[moves])
            its = lanes[moves]
            marked[its] = jumps.choose(marked[its], jumps.marked[at])
            target = jumps.target[at]
            ended = target < 0
            ends[its[ended]] = low - 1 - target[ended]
            position[moves] += 1 << level
            state[moves] = target
            goes_on = state >= 0
            lanes, state = lanes[goes_on], state[goes_on]
            position, bound = position[goes_on], bound[goes_on]
            jumps, level = jumps.doubled(), level + 1
        marked[part] += np.where(marked[part] == _UNMARKED, 0, low)
    return ends, marked


def _parts(starts: Ids, bounds: Ids, states: int) -> Iterator[slice]:
    """Slices of starts whose rows are near each other, to save memory."""
    at = 0
    while at < len(starts):
        # A part has the starts of one bound at least, so that few rows are in two parts.
        limit = max(int(starts[at]) + _PIECES_AT_ONCE // states, int(bounds[at]))
        stop = int(np.searchsorted(starts, limit))
        yield slice(at, stop)
        at = stop


def _reach(blocks: Ids, bounds: Ids, count: int) -> Ids:
    """By block: the greatest bound of paths that may still come through it; -1 if there are none."""
    reach = np.full(count, -1)
    np.maximum.at(reach, blocks, bounds)
    return np.maximum.accumulate(reach)


@dataclass(frozen=True, slots=True)
class _Jumps:
    """Where paths lead over each block of rows, as functions of the state and of the bound.

    A function is a sequence of pieces. A piece is valid from its least bound up to that of the next one.
    There is one piece per target: two paths from one row and state to one target differ first where
    the preferred one is possible, and that is so whenever the other one is. Its least bound is the
    earliest end of the paths behind the target.

    Parameters
    ----------
    states, blocks, span : int
        Number of states and of blocks; a number greater than every bound.
    first : bool
        Whether the first row of the variable is marked, or else the last one.
    slot : array of int
        By piece: block * states + state.
    least : array of int
        The least bound. The pieces are sorted by slot and least bound.
    target : array of int
        The state behind the block, or -1 - position if the path ends at this position.
    marked : array of int
        Position of the row of the variable.
    """

    states: int
    blocks: int
    span: int
    first: bool
    slot: Ids
    least: Ids
    target: Ids
    marked: Ids

    @staticmethod
    def of(
        automaton: Automaton,
        tests: Mask,
        earliest: Positions,
        low: int,
        high: int,
        variable: int,
        first: bool,
    ) -> _Jumps:
        """Blocks of one row, from `low` to `high`, inclusive. Positions count from `low`."""
        size = high + 1 - low
        # In ascending order of the bound: less preferred transitions are for lower bounds only.
        every = [(s, t) for s, ts in enumerate(automaton.transitions) for t in reversed(ts)]
        behind = np.minimum(np.arange(low + 1, high + 2), len(earliest) - 1)
        leads = np.empty((size, len(every)), np.int32)
        for column, (_, transition) in enumerate(every):
            if transition.target == ACCEPT:
                leads[:, column] = np.arange(low, high + 1)
            else:
                passed = tests[transition.test, low : high + 1]
                leads[:, column] = np.where(passed, earliest[behind, transition.target], NEVER)
        is_piece = leads <= high
        for column, (state, _) in enumerate(every):
            for preferred in range(column + 1, len(every)):
                if every[preferred][0] == state:
                    is_piece[:, column] &= leads[:, column] < leads[:, preferred]
        position, of = np.nonzero(is_piece)
        states, targets, variables = np.array(
            [(state, transition.target, transition.variable) for state, transition in every]
        ).T
        return _Jumps(
            len(automaton.transitions),
            size,
            size + 1,
            first,
            position * len(automaton.transitions) + states[of],
            leads[is_piece].astype(np.int64) - low,
            np.where(targets[of] == ACCEPT, -1 - position, targets[of]),
            np.where(variables[of] == variable, position, _UNMARKED),
        )

    def within(self, reach: Ids) -> _Jumps:
        """Only the pieces for bounds up to that of each block."""
        is_used = self.least <= reach[self.slot // self.states]
        columns = (self.slot, self.least, self.target, self.marked)
        used = (column[is_used] for column in columns)
        return _Jumps(self.states, self.blocks, self.span, self.first, *used)

    def find(self, slots: Ids, bounds: Ids) -> Ids:
        """The piece of each slot that is valid for a bound."""
        key = self.slot * self.span + self.least
        at: Ids = np.searchsorted(key, slots * self.span + bounds, "right") - 1
        return at

    def choose(self, one: Ids, following: Ids) -> Ids:
        """Of two marked rows in order, either of which may be missing: the first or the last one."""
        if self.first:
            return np.where(one == _UNMARKED, following, one)
        return np.maximum(one, following)

    def doubled(self) -> _Jumps:
        """Blocks of twice as many rows."""
        ends = np.append(self.slot[1:] != self.slot[:-1], True)
        until = np.where(ends, self.span, np.append(self.least[1:], 0))
        block, state = np.divmod(self.slot, self.states)
        left = np.flatnonzero(block % 2 == 0)
        # Only itself if the path has ended. Otherwise the pieces of the second half up to its own last
        # bound: the first of them has the same least bound, the earliest end of a path from there.
        goes_on = self.target[left] >= 0
        second = (block[left] + 1) * self.states + self.target[left]
        key = self.slot * self.span + self.least
        begin = np.where(goes_on, np.searchsorted(self.slot, second), left)
        end = np.searchsorted(key, second * self.span + until[left])
        count = np.where(goes_on, end - begin, 1)
        one = np.repeat(left, count)
        following = np.arange(len(one)) + np.repeat(begin - (np.cumsum(count) - count), count)
        return _Jumps(
            self.states,
            -(-self.blocks // 2),
            self.span,
            self.first,
            block[one] // 2 * self.states + state[one],
            self.least[following],
            self.target[following],
            self.choose(self.marked[one], self.marked[following]),
        )
