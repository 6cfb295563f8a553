"""The search for matches equals backtracking, on random patterns and rows."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from streamops.kernel.time import AFTER_ALL
from streamops.patterns.core import search as module
from streamops.patterns.core.automaton import compile_pattern
from streamops.patterns.core.scan import Tape
from streamops.patterns.core.search import Search
from streamops.patterns.core.syntax import parse_pattern
from tests.laws.pattern_strategies import draw_query
from tests.patterns.core.answers import BITS, compare_search, draw_compiled


def compare(seed: int) -> tuple[str, bool]:
    """Compare one random pattern over random rows of some keys: its text, and whether there was a match."""
    dice = random.Random(seed)
    return compare_search(dice, draw_compiled(dice, draw_query), case=seed)


@pytest.mark.parametrize("few", [1, 16], ids=["in columns", "one by one"])
@pytest.mark.parametrize(
    "count", [300, pytest.param(5_000, marks=[pytest.mark.laws, pytest.mark.exhaustive])]
)
def test_matches_equal_those_of_backtracking(
    few: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FEW", few)
    compared = [compare(seed + 1_000_000 * few) for seed in range(count)]
    # Each of them compiled: a seed draws until one does. Short patterns are drawn several times.
    assert len({text for text, _ in compared}) > count * 0.7
    assert sum(matched for _, matched in compared) > count / 4


def test_parts_of_matches_cover_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 10)
    parts = [*module.in_parts(np.array([3, 7, 1, 40, 2, 2]))]
    assert [(part.start, part.stop) for part in parts] == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert [*module.in_parts(np.array([], np.int64))] == []


@pytest.mark.parametrize("few", [1, 16], ids=["in columns", "one by one"])
def test_absence_behind_a_match_that_the_bound_cuts_off(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FEW", few)
    automaton = compile_pattern(parse_pattern("a+ b !d"), BITS)
    #       preferred: up to 9, beyond the bound. Up to 1 instead, and d follows, but not up to 6.
    rows = ["a", "ab", "a", "ad", "a", "a", "ab", "a", "a", "ab"]
    held = np.array([sum(BITS[name] for name in row) for row in rows] + [0])
    is_frontier = np.arange(11) == 10
    times = np.where(is_frontier, AFTER_ALL, np.arange(11))
    tape = Tape(held, is_frontier, False)
    found = Search(automaton, tape, times, ~is_frontier, within=5, watermark=AFTER_ALL).find()
    assert [*zip(found.starts.tolist(), found.ends.tolist(), strict=True)] == [(2, 7), (7, 10)]


@pytest.mark.parametrize(
    ("text", "rows", "length"),
    [
        ("x (b? | d)+", "x b d d", 2),
        ("x (b? c? | d)+", "x b d d", 2),
        ("x (c? b? | d)+", "x b d d", 2),
        ("x (b? c?? | d)+", "x b d d", 2),
        ("x ((b | c?){2} | d)+", "x b d d", 2),
        ("x (b? (c d)? | d)+", "x b d d", 2),
        ("x ((b? c?)* | d)*", "x c b d", 3),
        ("x (c?? b?? | d)+?", "x c d d", 1),
        ("x (permute(b?, c?) | d){,3}", "x c d d", 2),
        # The second iteration would be the third one, if an iteration over nothing did not end the loop.
        ("x (b? | d c | d){1,2} a", "x d d a", 4),
    ],
)
def test_an_iteration_over_nothing_ends_its_loop(text: str, rows: str, length: int) -> None:
    pattern = parse_pattern(text)
    bits = {name: 1 << at for at, name in enumerate("abcdx")}
    automaton = compile_pattern(pattern, bits)
    held = np.array([bits[row] for row in rows.split()] + [0])
    is_frontier = np.arange(len(held)) == len(held) - 1
    tape = Tape(held, is_frontier, False)
    times = np.where(is_frontier, AFTER_ALL, np.arange(len(held)))
    found = Search(automaton, tape, times, ~is_frontier, within=None, watermark=AFTER_ALL).find()
    assert [*zip(found.starts.tolist(), found.ends.tolist(), strict=True)] == [(0, length)]
    # The same in Python's backtracking, with a character per row.
    regex = text.replace(" ", "").replace("permute(b?,c?)", "(b?c?|c?b?)")
    preferred = re.match(regex, rows.replace(" ", ""))
    assert preferred is not None
    assert preferred.end() == length


def test_an_iteration_over_nothing_does_not_count() -> None:
    # Either of two variables may take each row: `f h`, not `g` behind an iteration over nothing.
    pattern = parse_pattern("x (b? | f | g h | h){,2} y")
    bits = {"x": 1, "b": 2, "f": 4, "g": 8, "h": 16, "y": 32}
    automaton = compile_pattern(pattern, bits)
    held = np.array([1, 4 | 8, 16, 32, 0])
    is_frontier = np.arange(5) == 4
    times = np.where(is_frontier, AFTER_ALL, np.arange(5))
    tape = Tape(held, is_frontier, False)
    search = Search(automaton, tape, times, ~is_frontier, within=None, watermark=AFTER_ALL)
    found = search.find()
    labels = search.label(found.starts, found.bounds)
    assert [pattern.variables[number] for number in labels.variable] == ["x", "f", "h", "y"]
