"""The search for matches equals backtracking, on random patterns and rows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamops.kernel.errors import SpecError
from streamops.kernel.time import AFTER_ALL
from streamops.patterns.core import search as module
from streamops.patterns.core.automaton import Automaton, compile_pattern
from streamops.patterns.core.scan import Tape
from streamops.patterns.core.search import Search
from streamops.patterns.core.syntax import Pattern, parse_pattern
from tests.laws.pattern_strategies import NAMES, draw_query
from tests.oracles.patterns import Answer, Query
from tests.patterns.core.answers import check_answers

BITS = {name: 1 << at for at, name in enumerate(NAMES)}


def draw_compiled(dice: random.Random) -> tuple[Query, str, Pattern, Automaton]:
    """Draw patterns until one of them compiles."""
    while True:
        query, text = draw_query(dice, dice.choice([None, None, 1, 2, 3, 5, 9]))
        pattern = parse_pattern(text, where="test")
        try:
            return query, text, pattern, compile_pattern(pattern, BITS, where="test")
        except SpecError as error:
            if error.code not in {"PATTERN_EMPTY", "PATTERN_OPEN", "PATTERN_TOO_LARGE"}:
                raise


def compare(seed: int) -> tuple[str, bool]:
    """Compare one random pattern over random rows of some keys: its text, and whether there was a match."""
    dice = random.Random(seed)
    query, text, pattern, automaton = draw_compiled(dice)
    is_open, watermark = dice.random() < 0.6, dice.randint(0, 12)
    held: list[frozenset[str]] = []
    times: list[int] = []
    may_start: list[bool] = []
    answers: list[tuple[int, int, Answer]] = []
    for _ in range(dice.randint(1, 4)):
        count, density = dice.randint(0, 8), dice.choice([0.3, 0.6, 0.9])
        rows = [frozenset(n for n in NAMES if dice.random() < density) for _ in range(count)]
        at = sorted(dice.randint(0, watermark if is_open else 12) for _ in range(count))
        starts = [dice.random() < 0.9 for _ in range(count)]
        answers.append((len(held), count, query.search(rows, at, starts, watermark, is_open)))
        held += [*rows, frozenset()]
        times += [*at, AFTER_ALL]
        may_start += [*starts, False]
    tape = Tape(
        np.array([sum(BITS[name] for name in row) for row in held], np.int64),
        np.array(times) == AFTER_ALL,
        is_open,
    )
    found = Search(
        automaton,
        tape,
        np.array(times),
        np.array(may_start),
        within=query.within,
        watermark=watermark,
        resume=query.resume,  # type: ignore[arg-type]
        variable=pattern.variables.index(query.variable),
        horizon=query.horizon,
    )
    result = found.find(timeouts=True)
    return text, check_answers(
        found, result, pattern.variables, answers, timeouts=True, case=(seed, text)
    )


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
    automaton = compile_pattern(parse_pattern("a+ b !d", where="test"), BITS, where="test")
    #       preferred: up to 9, beyond the bound. Up to 1 instead, and d follows, but not up to 6.
    rows = ["a", "ab", "a", "ad", "a", "a", "ab", "a", "a", "ab"]
    held = np.array([sum(BITS[name] for name in row) for row in rows] + [0])
    is_frontier = np.arange(11) == 10
    times = np.where(is_frontier, AFTER_ALL, np.arange(11))
    tape = Tape(held, is_frontier, False)
    found = Search(automaton, tape, times, ~is_frontier, within=5, watermark=AFTER_ALL).find()
    assert [*zip(found.starts.tolist(), found.ends.tolist(), strict=True)] == [(2, 7), (7, 10)]
