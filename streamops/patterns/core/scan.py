"""Where the paths of an automaton from every row end, in time that does not depend on the data.

All rows of a shard are one sequence: the rows of each key in order, and a *frontier* behind them, where
the rows end that are known. For every position and state a scan from the back to the front computes

- the earliest end: how soon a match can end, or whether a path survives up to the frontier;
- the preferred end: where the most preferred path ends.

A scan is a recurrence over positions. To vectorise it, the sequence is cut into blocks of equal length,
whatever the keys are, and all blocks advance by one position at a time. What a block needs to know of the
next one is the value of each state at the border. The first pass computes it as a function of the
unknown values behind the block, the second pass with their values. With ``n`` positions these are
some ``sqrt(n)`` steps over arrays of ``sqrt(n)`` values, for one key as for many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamops.kernel.groups import Ids, Mask
from streamops.patterns.core.automaton import ACCEPT, Automaton, Transition

Positions = npt.NDArray[np.int32]

NEVER = np.int32(np.iinfo(np.int32).max)
"""No path leads there."""

UNKNOWN = np.int32(NEVER - 1)
"""It depends on rows behind the frontier. Greater than every position, and less than NEVER."""

_STEPS_PER_LANE = 0.5  # blocks are shorter than sqrt(n): a step costs calls, a block only values


@dataclass(frozen=True, slots=True)
class Tape:
    """The rows of all keys as one sequence, with a frontier behind the rows of each key.

    Parameters
    ----------
    bits : array of int64
        The conditions that the row at each position satisfies; 0 at frontiers.
    is_frontier : array of bool
    is_open : bool
        Whether there may be further rows behind the frontiers.
    """

    bits: Ids
    is_frontier: Mask
    is_open: bool

    def __len__(self) -> int:
        return len(self.bits)

    def tests(self, automaton: Automaton) -> Mask:
        """Which test is passed at which position: one row per test. None is passed at a frontier."""
        rows = ~self.is_frontier
        return np.array(
            [
                ((self.bits & (of.required | of.forbidden)) == of.required) & rows
                for of in automaton.tests
            ],
            np.bool_,
        ).reshape(len(automaton.tests), len(self.bits))


@dataclass(frozen=True, slots=True)
class Scan:
    """An automaton over a tape, in blocks.

    Parameters
    ----------
    length, blocks : int
        Positions per block, and the number of blocks.
    passed : array of bool
        By position within the block, transition and block: whether the row passes the test.
    targets : array of int
        The state that each transition leads to; of acceptance, any.
    starts : array of int
        The first transition of each state. Each state has at least one.
    accepts : array of bool
        By transition: whether it is acceptance.
    frontier : array of bool
        By position within the block, and block.
    positions : array of int32
        In the same shape.
    at_frontier : array of int32
        The value of each state at a frontier, if it does not accept.
    """

    length: int
    blocks: int
    passed: Mask
    targets: Ids
    starts: Ids
    accepts: Mask
    frontier: Mask
    positions: Positions
    at_frontier: Positions
    size: int

    @staticmethod
    def of(automaton: Automaton, tape: Tape, tests: Mask) -> Scan:
        """Prepare the scans of a tape; ``tests`` are those of :meth:`Tape.tests`."""
        size = len(tape)
        length = max(1, int(np.sqrt(size) * _STEPS_PER_LANE))
        blocks = -(-size // length)
        padding = blocks * length - size

        # Every state has a transition, so that `reduceat` has a group for it.
        never = Transition(-1, 0, 0)
        found = [list(of) or [never] for of in automaton.transitions]
        every = [transition for of in found for transition in of]
        tests = np.vstack([tests, np.zeros((1, size), np.bool_)])  # the last one is never passed
        passed = np.zeros((len(every), blocks * length), np.bool_)
        passed[:, :size] = tests[[of.test if of.target != ACCEPT else -1 for of in every]]
        frontier = np.concatenate([tape.is_frontier, np.ones(padding, np.bool_)])
        goes_on = [any(t.target != ACCEPT for t in of) for of in automaton.transitions]
        waits = np.array(goes_on) & tape.is_open
        return Scan(
            length,
            blocks,
            passed.reshape(len(every), blocks, length).transpose(2, 0, 1).copy(),
            np.array([max(of.target, 0) for of in every]),
            np.cumsum([0, *map(len, found)])[:-1],
            np.array([of.target == ACCEPT for of in every]),
            frontier.reshape(blocks, length).T.copy(),
            np.arange(blocks * length, dtype=np.int32).reshape(blocks, length).T.copy(),
            np.where(waits, UNKNOWN, NEVER).astype(np.int32),
            size,
        )

    def earliest(self, own: Mask | None = None, *, latest: bool = False) -> Positions:
        """The earliest end of the paths from every position and state: a row per position.

        UNKNOWN if no end is known but a path survives up to an open frontier, NEVER without any.

        Parameters
        ----------
        own : array of bool, optional
            States at which a path may end, instead of those that accept.
        latest : bool
            The latest end instead, as a negative number.
        """
        ends = self._accepting if own is None else own
        at_frontier = np.full_like(self.at_frontier, NEVER) if latest else self.at_frontier
        sign = np.int32(-1 if latest else 1)
        states = len(self.starts)
        result = np.empty((self.length, states, self.blocks), np.int32)

        def sweep(value: Positions, keep: bool) -> Positions:
            for at in range(self.length - 1, -1, -1):
                paths = np.where(self.passed[at], value[self.targets], NEVER)
                value = np.minimum.reduceat(paths, self.starts, axis=0)
                np.copyto(value, at_frontier[:, None], where=self.frontier[at])
                value[ends] = np.minimum(value[ends], sign * self.positions[at])
                if keep:
                    result[at] = value
            return value

        nothing = np.full((states, self.blocks), NEVER, np.int32)
        border = nothing.copy()
        if self.blocks > 1:
            border[:, :-1] = _resolve(sweep(nothing, False), self._reachable())[:, 1:]
        sweep(border, True)
        return result.transpose(2, 0, 1).reshape(-1, states)[: self.size]

    def preferred(self, earliest: Positions) -> Positions:
        """The end of the most preferred path from the start state at every position.

        UNKNOWN if it depends on rows behind an open frontier, NEVER without a path.
        """
        states, blocks = len(self.starts), self.blocks
        padded = np.full((self.length * blocks, states), NEVER, np.int32)
        padded[: self.size] = earliest
        feasible = padded.reshape(blocks, self.length, states).transpose(1, 2, 0) < NEVER
        transitions = np.arange(len(self.targets))[:, None]
        none = len(self.targets)
        # At a frontier the first transition decides: acceptance, or waiting for rows.
        first_accepts = self.accepts[self.starts]
        at_frontier = np.where(self.at_frontier == UNKNOWN, UNKNOWN, NEVER)
        closed_accepts = self._accepting & (self.at_frontier != UNKNOWN)
        result = np.empty((self.length, blocks), np.int32)

        # A negative value -1 - state: whatever the value of this state is in the next block.
        value = np.repeat(-1 - np.arange(states, dtype=np.int32)[:, None], blocks, axis=1)
        ahead = np.full((states, blocks), False)
        ahead[:, :-1] = feasible[0][:, 1:]
        for at in range(self.length - 1, -1, -1):
            possible = self.passed[at] & ahead[self.targets] | self.accepts[:, None]
            choice = np.where(possible, transitions, none)
            first = np.minimum.reduceat(choice, self.starts, axis=0)
            chosen = np.minimum(first, none - 1)
            value = np.take_along_axis(value, self.targets[chosen], axis=0)
            position = np.broadcast_to(self.positions[at], value.shape)
            value = np.where(self.accepts[chosen], position, value)
            value[first == none] = NEVER
            frontier = self.frontier[at]
            ends = np.where(
                (first_accepts | closed_accepts)[:, None], position, at_frontier[:, None]
            )
            value = np.where(frontier, ends, value)
            result[at] = value[0]
            ahead = feasible[at]
        return self._follow(result, value)

    def _follow(self, result: Positions, border: Positions) -> Positions:
        """Replace references to the next block by the values there."""
        after = np.full(len(border), NEVER, np.int32)
        resolved = np.empty_like(border)
        for block in range(self.blocks - 1, -1, -1):
            value = border[:, block]
            after = np.where(value < 0, after[np.clip(-1 - value, 0, len(after) - 1)], value)
            resolved[:, block] = after
        following = np.full_like(border, NEVER)
        following[:, :-1] = resolved[:, 1:]
        states = np.clip(-1 - result, 0, len(border) - 1)
        known = np.take_along_axis(following, states, axis=0)
        result = np.where(result < 0, known, result)
        return result.T.reshape(-1)[: self.size]

    @property
    def _accepting(self) -> Mask:
        return np.logical_or.reduceat(self.accepts, self.starts)

    def _reachable(self) -> npt.NDArray[np.uint64]:
        """By state and block: the states at the border behind it that a path leads to, as bits."""
        states = len(self.starts)
        bits = np.uint64(1) << np.arange(states, dtype=np.uint64)
        value = np.repeat(bits[:, None], self.blocks, axis=1)
        for at in range(self.length - 1, -1, -1):
            paths = np.where(self.passed[at], value[self.targets], np.uint64(0))
            value = np.bitwise_or.reduceat(paths, self.starts, axis=0)
            value[:, self.frontier[at]] = 0
        return value


def _resolve(within: Positions, reached: npt.NDArray[np.uint64]) -> Positions:
    """The values at the start of each block, from those without the next blocks."""
    bits = np.uint64(1) << np.arange(len(within), dtype=np.uint64)
    result = within.copy()
    # No path leads out of the last block, which ends with a frontier.
    for block in np.flatnonzero(reached.any(axis=0))[::-1].tolist():
        behind = np.where(reached[:, block, None] & bits, result[:, block + 1], NEVER)
        result[:, block] = np.minimum(result[:, block], behind.min(axis=1))
    return result


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
