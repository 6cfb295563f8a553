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
