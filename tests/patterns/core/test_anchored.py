"""Conditions that depend on the first row of the match: the search equals backtracking from each start."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamops.kernel.groups import Ids
from streamops.kernel.time import AFTER_ALL
from streamops.patterns.core import search as module
from streamops.patterns.core.scan import Tape
from streamops.patterns.core.search import AnchoredSearch
from tests.laws.pattern_strategies import NAMES, draw_query
from tests.oracles.patterns import Answer
from tests.patterns.core.answers import BITS, check_answers, draw_compiled

Satisfied = list[list[frozenset[str]]]
"""By first row and row: the variables whose conditions the row satisfies."""


def compare(seed: int) -> bool:
    """Compare one random pattern, conditions of which depend on the first row; whether there was a match."""
    dice = random.Random(seed)
    query, text, pattern, automaton = draw_compiled(dice, draw_query)
    own = dice.sample(NAMES, dice.randint(1, 3))
    is_open, watermark = dice.random() < 0.6, dice.randint(0, 12)
    held: list[frozenset[str]] = []
    by_start: dict[tuple[int, int], int] = {}
    times: list[int] = []
    may_start: list[bool] = []
    answers: list[tuple[int, int, Answer]] = []
    for _ in range(dice.randint(1, 4)):
        count, density = dice.randint(0, 8), dice.choice([0.3, 0.6, 0.9])
        rows, base = [draw(dice, density) for _ in range(count)], len(held)
        seen: Satisfied = []
        for first in range(count):
            extra = [draw(dice, density) & set(own) for _ in rows]
            seen.append([one - set(own) | other for one, other in zip(rows, extra, strict=True)])
            for at, names in enumerate(extra):
                by_start[base + at, base + first] = sum(BITS[name] for name in names)
        at = sorted(dice.randint(0, watermark if is_open else 12) for _ in range(count))
        starts = [dice.random() < 0.9 for _ in range(count)]
        found = query.search(rows, at, starts, watermark, is_open, seen.__getitem__)
        answers.append((base, count, found))
        held += [*rows, frozenset()]
        times += [*at, AFTER_ALL]
        may_start += [*starts, False]

    def conditions(rows: Ids, starts: Ids) -> Ids:
        pairs = zip(rows.tolist(), starts.tolist(), strict=True)
        return np.array([by_start[pair] for pair in pairs], np.int64)

    search = AnchoredSearch(
        automaton,
        Tape(
            np.array([sum(BITS[name] for name in row - set(own)) for row in held], np.int64),
            np.array(times) == AFTER_ALL,
            is_open,
        ),
        np.array(times),
        np.array(may_start),
        conditions=conditions,
        bits=sum(BITS[name] for name in own),
        within=query.within,
        watermark=watermark,
        resume=query.resume,
        variable=pattern.variables.index(query.variable),
        horizon=query.horizon,
    )
    with_timeouts = dice.random() < 0.5
    result = search.find(timeouts=with_timeouts)
    return check_answers(
        search, result, pattern.variables, answers, timeouts=with_timeouts, case=(seed, text)
    )


def draw(dice: random.Random, density: float) -> frozenset[str]:
    return frozenset(name for name in NAMES if dice.random() < density)


@pytest.mark.parametrize("rows", [1, 2, 16], ids="tapes begin with {} rows".format)
@pytest.mark.parametrize(
    "count", [150, pytest.param(3_000, marks=[pytest.mark.laws, pytest.mark.exhaustive])]
)
def test_matches_equal_those_of_backtracking_from_each_start(
    rows: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_ROWS", rows)
    matched = sum(compare(seed + 1_000_000 * rows) for seed in range(count))
    assert matched > count / 4
