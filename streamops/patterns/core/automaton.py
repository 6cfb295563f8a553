"""A pattern as an automaton whose states list their transitions in order of preference.

A state is what has been matched so far. A transition consumes one row that passes a test. A match is the
path of the most preferred transitions that ends in acceptance: that of a backtracking regular expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from streamops.kernel.errors import SpecError
from streamops.patterns import conditions
from streamops.patterns.core.syntax import (
    Alternation,
    Gap,
    Node,
    Pattern,
    Permutation,
    Repetition,
    Row,
    Series,
)

MAX_STATES = 63
"""States are bits of an integer, and each costs four bytes per row."""

_MAX_VERTICES = 10_000
"""More than 63 states need: alternatives that lead to the same state are vertices of their own."""

MAX_CONDITIONS = 62
"""The conditions that a row satisfies are bits of an integer."""

ACCEPT = -1
NO_VARIABLE = -1


class Transition(NamedTuple):
    """From a state over one row, or to acceptance over none (``target`` is ACCEPT)."""

    test: int
    target: int
    variable: int


class Test(NamedTuple):
    """What a row must satisfy: bits of conditions that it must have, and bits that it must not."""

    required: int
    forbidden: int


@dataclass(frozen=True, slots=True)
class Automaton:
    """A compiled pattern.

    Parameters
    ----------
    tests : tuple of Test
    transitions : tuple of tuples of Transition
        By state, the preferred one first. Nothing follows acceptance. The first state is the start.
    steps : tuple of int
        By state: the number of items of the pattern that a path to it has reached.
    count : int
        The number of items of the pattern, without gaps.
    absent : int
        Bits of conditions that no row after the match may satisfy.
    """

    tests: tuple[Test, ...]
    transitions: tuple[tuple[Transition, ...], ...]
    steps: tuple[int, ...]
    count: int
    absent: int

    def accepts(self, state: int) -> bool:
        """Whether a match may end in a state."""
        return any(transition.target == ACCEPT for transition in self.transitions[state])


def compile_pattern(pattern: Pattern, bits: Mapping[str, int]) -> Automaton:
    """Compile a pattern.

    Parameters
    ----------
    pattern : Pattern
    bits : mapping of str to int
        The bit of the condition of each defined variable. A row satisfies any other one.

    Raises
    ------
    SpecError
        ``PATTERN_INVALID``: it matches no row, or begins or ends with a gap.
        ``PARAMETER_OUT_OF_RANGE``.
    """
    graph = _Graph(pattern, bits)
    states: dict[tuple[tuple[int, ...], int], int] = {}
    pending = [graph.state(graph.start, 0)]
    transitions: list[tuple[Transition, ...]] = []
    states[pending[0]] = 0
    while len(transitions) < len(pending):
        if len(pending) > MAX_STATES:
            raise _too_large(pattern)
        found = []
        for number in pending[len(transitions)][0]:
            node = graph.nodes[number]
            if number == graph.accept:
                found.append(Transition(0, ACCEPT, NO_VARIABLE))
                continue
            step = max(node.step, pending[len(transitions)][1])
            key = graph.state(node.following[0], step)
            if key not in states:
                states[key] = len(pending)
                pending.append(key)
            found.append(Transition(node.test, states[key], node.variable))
        transitions.append(tuple(found))
    automaton = Automaton(
        tuple(graph.tests),
        tuple(transitions),
        tuple(step for _, step in pending),
        graph.count,
        _union(bits, pattern.absent),
    )
    _refuse_open(pattern, automaton, ends_with_gap=graph.ends_with_gap)
    return automaton


@dataclass(slots=True)
class _Vertex:
    """A row, or a choice between the following vertices if ``test`` is negative."""

    test: int
    variable: int
    step: int
    following: list[int] = field(default_factory=list)


class _Graph:
    """The pattern as a graph of rows and choices, built from its end to its start."""

    def __init__(self, pattern: Pattern, bits: Mapping[str, int]) -> None:
        self.pattern = pattern
        self.bits, self.tests = bits, list[Test]()
        self.variables = pattern.variables
        self.nodes = [_Vertex(-1, NO_VARIABLE, 0)]
        self.accept = 0
        self.behind_gaps: list[int] = []
        self.begins: dict[int, int] = {}
        """From the beginning of an iteration that may match nothing to its end."""
        self.exits: dict[int, int] = {}
        """From the end of an iteration to what follows the loop."""
        gaps = [isinstance(item, Gap) for item in pattern.items]
        self.count = len(gaps) - sum(gaps)
        following, step = self.accept, self.count
        for item, is_gap in zip(reversed(pattern.items), reversed(gaps), strict=True):
            following = self._add(item, following, step - is_gap if is_gap else step)
            step -= not is_gap
        self.start = following

    @property
    def ends_with_gap(self) -> bool:
        """Whether a match may end with a gap."""
        return any(self.accept in self.state(number, 0)[0] for number in self.behind_gaps)

    def state(self, number: int, step: int) -> tuple[tuple[int, ...], int]:
        """The rows that may follow in order of preference, and the step."""
        found: dict[int, None] = {}
        seen: set[tuple[int, frozenset[int]]] = set()
        # With the iterations, by their ends, that began here: they have matched no row yet.
        stack = [(number, frozenset[int]())]
        while stack:
            at, empty = visit = stack.pop()
            if visit in seen:
                continue
            seen.add(visit)
            following = self.nodes[at].following
            if self.nodes[at].test >= 0 or at == self.accept:
                found[at] = None
                if at == self.accept:
                    break  # what is less preferred than acceptance never happens
            elif at in self.begins:
                stack.append((following[0], empty | {self.begins[at]}))
            elif at in empty:
                stack.append((self.exits[at], empty - {at}))
            else:
                stack += [(then, empty) for then in reversed(following)]
        return tuple(found), step

    def _vertex(self, test: int, variable: int, step: int, following: Sequence[int]) -> int:
        # While it is built: a{1000000000} would fill the memory before its states are counted.
        if len(self.nodes) >= _MAX_VERTICES:
            raise _too_large(self.pattern)
        self.nodes.append(_Vertex(test, variable, step, [*following]))
        return len(self.nodes) - 1

    def _choice(self, *following: int) -> int:
        return self._vertex(-1, NO_VARIABLE, 0, following)

    def _test(self, required: int, forbidden: int) -> int:
        test = Test(required, forbidden)
        if test not in self.tests:
            self.tests.append(test)
        return self.tests.index(test)

    def _add(self, node: Node, following: int, step: int) -> int:
        """Add what precedes a vertex, and return its first vertex."""
        match node:
            case Row(variable):
                test = self._test(_union(self.bits, (variable,)), 0)
                return self._vertex(test, self.variables.index(variable), step, [following])
            case Gap(forbidden):
                test = self._test(0, _union(self.bits, forbidden))
                skip = self._vertex(test, NO_VARIABLE, 0, [])
                choice = self._choice(following, skip)
                self.nodes[skip].following.append(choice)
                self.behind_gaps.append(following)
                return choice
            case Series(items):
                for item in reversed(items):
                    following = self._add(item, following, step)
                return following
            case Alternation(items):
                return self._choice(*(self._add(item, following, step) for item in items))
            case Permutation(items):
                if all(isinstance(item, Row) for item in items):
                    return self._permute(items, following, step, {})
                # An order with every way to match its first item precedes the next order.
                orders = (Series(order) for order in permutations(items))
                return self._choice(*(self._add(order, following, step) for order in orders))
        return self._repeat(node, following, step)

    def _permute(
        self,
        items: tuple[Node, ...],
        following: int,
        step: int,
        known: dict[tuple[Node, ...], int],
    ) -> int:
        """Single rows in any order: 2^n choices instead of n! orders."""
        if not items:
            return following
        if items not in known:
            rest = [(item, items[:at] + items[at + 1 :]) for at, item in enumerate(items)]
            known[items] = self._choice(
                *(
                    self._add(item, self._permute(others, following, step, known), step)
                    for item, others in rest
                )
            )
        return known[items]

    def _repeat(self, node: Repetition, following: int, step: int) -> int:
        may_be_empty = _may_be_empty(node.item)

        def iterate(then: int) -> int:
            """An iteration. It ends the loop if it matches nothing, as in Perl."""
            if then == following or not may_be_empty:
                return self._add(node.item, then, step)
            end = self._choice(then)
            begin = self._choice(self._add(node.item, end, step))
            self.begins[begin], self.exits[end] = end, following
            return begin

        def choose(again: int) -> tuple[int, int]:
            return (again, following) if node.greedy else (following, again)

        required, first = node.low, following
        if node.high is None:
            loop = self._choice()
            body = iterate(loop)
            self.nodes[loop].following += choose(body)
            # One required iteration is that of the loop.
            first, required = (body, required - 1) if required else (loop, 0)
        else:
            for _ in range(node.high - node.low):
                first = self._choice(*choose(iterate(first)))
            if required:
                # Of the required iterations only the last one may end the loop.
                first, required = iterate(first), required - 1
        for _ in range(required):
            first = self._add(node.item, first, step)
        return first


def _may_be_empty(node: Node) -> bool:
    """Whether a part of a pattern matches no row at all, too."""
    match node:
        case Row():
            return False
        case Gap():
            return True
        case Alternation(items):
            return any(map(_may_be_empty, items))
        case Series(items) | Permutation(items):
            return all(map(_may_be_empty, items))
    return not node.low or _may_be_empty(node.item)


def _union(bits: Mapping[str, int], variables: Sequence[str]) -> int:
    return sum({bits[name] for name in variables if name in bits})


def _refuse_open(pattern: Pattern, automaton: Automaton, *, ends_with_gap: bool) -> None:
    """Refuse patterns that match no row, or that begin or end at an arbitrary row."""
    if automaton.accepts(0):
        raise conditions.PATTERN_EMPTY.error(got=f"{pattern.text!r}")
    begins = any(t.variable == NO_VARIABLE for t in automaton.transitions[0])
    if begins or ends_with_gap:
        raise conditions.PATTERN_OPEN.error(
            begins="begins" if begins else "may end", got=f"{pattern.text!r}"
        )


def _too_large(pattern: Pattern) -> SpecError:
    return conditions.PATTERN_TOO_LARGE.error(max_states=MAX_STATES, got=f"{pattern.text!r}")
