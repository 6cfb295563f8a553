"""Patterns whose loops may match nothing prefer the match that a backtracking regular expression prefers.

The expectation is that of simple backtracking, row by row, which is compared with Python's `re` first: a
row is a character, and a variable is the class of the characters that satisfy it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import permutations

import pytest

from tests.borders import cases
from tests.oracles.patterns import Matcher, Node, Query, render
from tests.patterns.core.answers import BITS, compare_search, draw_compiled

ROWS = [frozenset(n for n, bit in BITS.items() if number & bit) for number in range(16)]
_FIRST = "A"
_MAX_LOOPS = 6
"""`re` takes time that is exponential in the loops within loops, and in the rows."""


def draw_empty(dice: random.Random, depth: int) -> Node:
    """A part of a pattern that may match no row."""
    name = dice.choice(["optional", "optional", "series", "either", "permute", "loop", "gap"])
    if not depth or name == "optional":
        return draw_loop(dice, ("row", dice.choice("abc")), lows=(0,))
    items = tuple(draw_empty(dice, depth - 1) for _ in range(dice.randint(1, 3)))
    match name:
        case "series":
            return ("series", items)
        case "permute":
            return ("permute", items)
        case "either":
            others = [draw_part(dice, depth - 1) for _ in range(dice.randint(1, 2))]
            return ("either", tuple(dice.sample([items[0], *others], len(others) + 1)))
        case "gap":
            return ("series", (("gap", dice.choice([(), ("d",)])), items[0]))
    return draw_loop(dice, dice.choice([items[0], draw_part(dice, depth - 1)]), lows=(0,))


def draw_part(dice: random.Random, depth: int) -> Node:
    """Any part of a pattern; most of them may match no row."""
    name = dice.choice(["row", "series", "either", "loop", "empty", "empty"])
    if not depth or name == "row":
        return ("row", dice.choice("abc"))
    match name:
        case "empty":
            return draw_empty(dice, depth)
        case "loop":
            return draw_loop(dice, draw_part(dice, depth - 1), lows=(0, 1, 2))
    return (name, (draw_empty(dice, depth - 1), draw_part(dice, depth - 1)))


def draw_loop(dice: random.Random, item: Node, lows: tuple[int, ...]) -> Node:
    """A part that is repeated."""
    low = dice.choice(lows)
    high = dice.choice([None, None, max(low + dice.randint(0, 2), 1)])
    return ("repeat", item, low, high, dice.random() < 0.7)


def draw_query(dice: random.Random, within: int | None) -> tuple[Query, str]:
    """A row, a loop over a part that may match nothing, and what follows it."""
    loop = draw_loop(dice, draw_empty(dice, 3), lows=(0, 0, 1, 2))
    while render(loop).count("{") > _MAX_LOOPS:
        loop = draw_loop(dice, draw_empty(dice, 3), lows=(0, 0, 1, 2))
    items: tuple[Node, ...] = (("row", dice.choice("abc")), loop)
    items += tuple(draw_part(dice, 1) for _ in range(dice.randint(0, 2)))
    resume = dice.choice(["past last row", "to next row", "to next row", "to first", "to last"])
    return Query(items, (), within, resume, items[0][1]), " ".join(map(render, items))


def to_regex(node: Node) -> str:
    """A part of a pattern as a regular expression."""
    match node:
        case ("row", name):
            return _class(lambda row: name in row)
        case ("gap", forbidden):
            return _class(lambda row: not row & {*forbidden}) + "*?"
        case ("series", items):
            return "(?:" + "".join(map(to_regex, items)) + ")"
        case ("either", items):
            return "(?:" + "|".join(map(to_regex, items)) + ")"
        case ("permute", items):
            return to_regex(("either", tuple(("series", order) for order in permutations(items))))
        case ("repeat", item, low, high, greedy):
            counts = f"{{{low},{'' if high is None else high}}}"
            return f"(?:{to_regex(item)}){counts}{'' if greedy else '?'}"
    raise AssertionError(node)


def _class(holds: Callable[[frozenset[str]], bool]) -> str:
    return "[" + "".join(chr(ord(_FIRST) + at) for at, row in enumerate(ROWS) if holds(row)) + "]"


def compare_reference(dice: random.Random, query: Query) -> bool:
    """Compare simple backtracking with `re` on random rows; return whether they match."""
    numbers = [dice.randrange(16) for _ in range(dice.randint(1, 5))]
    text = "".join(chr(ord(_FIRST) + number) for number in numbers)
    expected = re.match("".join(map(to_regex, query.items)), text)
    rows = [ROWS[number] for number in numbers]
    path = Matcher(rows, False, len(rows)).first(query.items, 0)
    assert (None if path is None else len(path)) == (expected and expected.end()), (query, rows)
    return expected is not None


@pytest.mark.parametrize("part", range(10))
def test_loops_over_nothing_prefer_the_match_of_backtracking(part: int) -> None:
    count = cases(20, 1_500)
    texts, matched, agreed = set(), 0, 0
    for seed in range(count):
        dice = random.Random(10_000 * part + seed)
        compiled = draw_compiled(dice, draw_query)
        agreed += sum(compare_reference(dice, compiled[0]) for _ in range(4))
        text, matches = compare_search(dice, compiled, case=(part, seed))
        texts.add(text)
        matched += matches
    assert len(texts) > 0.8 * count
    assert matched > count / 3
    assert agreed > count / 2
