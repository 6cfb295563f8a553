"""The cost of the search grows as the rows do, and paths that are traced together are those that are followed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamops.kernel.errors import SpecError
from streamops.kernel.time import AFTER_ALL
from streamops.patterns.core import scan, search
from streamops.patterns.core.automaton import compile_pattern
from streamops.patterns.core.scan import Tape
from streamops.patterns.core.search import Found, Search
from streamops.patterns.core.syntax import parse_pattern
from tests.laws.pattern_strategies import NAMES, draw_query

BITS = {name: 1 << at for at, name in enumerate(NAMES)}
A, B, D = BITS["a"], BITS["b"], BITS["d"]


def build(
    text: str, held: Any, units: Any, within: int | None, keys: int = 1, **settings: Any
) -> Search:
    """A search over keys with equal rows; a closed tape."""
    pattern = parse_pattern(text)
    automaton = compile_pattern(pattern, BITS)
    bits, times = np.append(held, 0), np.append(units, AFTER_ALL)
    is_frontier = np.arange(len(bits)) == len(bits) - 1
    bits, times, is_frontier = (np.tile(column, keys) for column in (bits, times, is_frontier))
    variable = pattern.variables.index(settings.pop("variable", "a"))
    tape = Tape(bits, is_frontier, False)
    return Search(
        automaton,
        tape,
        times,
        ~is_frontier,
        within=within,
        watermark=AFTER_ALL,
        variable=variable,
        **settings,
    )


class Work:
    """Counts rows that are followed, one by one or in columns, and the pieces and lanes of jumps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counting(function: Callable[..., Any], size: Callable[..., int]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                result = function(*arguments)
                self.count += size(arguments, result)
                return result

            return call

        for owner, name, size in (
            (search._Paths, "follow_one", lambda arguments, path: len(path)),
            (search._Paths, "follow", lambda arguments, path: len(path[0])),
            (scan._Jumps, "find", lambda arguments, at: len(arguments[0].slot) + len(at)),
        ):
            monkeypatch.setattr(owner, name, counting(getattr(owner, name), size))

    def of(self, search: Search) -> int:
        self.count = 0
        search.find()
        return self.count


def every(conditions: int) -> Callable[[Any, int], Any]:
    return lambda position, within: np.full(len(position), conditions)


def rare(position: Any, within: int) -> Any:
    """Many rows to a match, nearly every bound cuts it off before the next end, and d follows."""
    return (A | D) | np.where(position % (within * 3 // 2) == 0, B, 0)


def dense(position: Any, within: int) -> Any:
    """Nearly every start has an end of its own, and a row d follows directly."""
    return A | np.where(position % 2 == 0, B, D)


ABSENT = [
    ("a+ b !d", rows, True, {"resume": resume})
    for rows in (rare, dense)
    for resume in ("past last row", "to next row", "past horizon", "to first", "to last")
]
OVERLAPPING = [
    ("a+ b", every(A | B), True, {"resume": resume})
    for resume in ("to next row", "to first", "to last")
]
PLAIN: list[tuple[str, Callable[[Any, int], Any], bool, dict[str, Any]]] = [
    ("a+ b", every(A), False, {}),  # many starts and no end
    ("a+ b", every(A | B), True, {}),  # every row matches, and every match is cut by the bound
    ("(a b)+", every(A | B), True, {"resume": "past horizon", "horizon": 3}),
    ("a ... b", every(A), True, {}),
    ("(a b)+ !d", every(A | B), True, {}),
]


@pytest.mark.thorough
@pytest.mark.parametrize("keys", [1, 20])
@pytest.mark.parametrize(
    ("text", "rows", "is_bounded", "settings"), [*PLAIN, *OVERLAPPING, *ABSENT]
)
def test_the_cost_of_the_worst_case_is_linear_up_to_a_logarithm(
    text: str,
    rows: Callable[[Any, int], Any],
    is_bounded: bool,
    settings: dict[str, Any],
    keys: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work(monkeypatch)
    costs = []
    for count in (2_000, 8_000) if keys == 1 else (400, 1_600):
        position, within = np.arange(count), count // 4
        # Two rows at a time, so that bounds do not take every position.
        units = position // 2 * 2
        bound = within if is_bounded else None
        costs.append(work.of(build(text, rows(position, within), units, bound, keys, **settings)))
    assert costs[1] <= 5.5 * costs[0], "four times the rows within the bound, not 16 times the cost"


@pytest.mark.parametrize("keys", [1, 20])
def test_rows_of_matches_that_do_not_overlap_are_followed_once(
    keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(monkeypatch)
    found = build("a+ b", np.full(1_000, A | B), np.arange(1_000), 50, keys)
    assert work.of(found) == 950 * keys, "and the last match of a key is not cut by its bound"


def draw_search(dice: random.Random) -> Search | None:
    """A random pattern over random rows; None if it is no pattern."""
    query, text = draw_query(dice, dice.choice([3, 5, 9, 30]))
    count = dice.randint(5, 40)
    density = dice.choice([0.3, 0.6, 0.9])
    held = [sum(BITS[name] for name in NAMES if dice.random() < density) for _ in range(count)]
    units = sorted(dice.randint(0, 40) for _ in range(count))
    try:
        return build(
            text,
            held,
            units,
            query.within,
            dice.randint(1, 3),
            resume=query.resume,
            variable=query.variable,
            horizon=query.horizon,
        )
    except SpecError as error:
        if error.code in {"PATTERN_INVALID", "PARAMETER_OUT_OF_RANGE"}:
            return None
        raise


@pytest.mark.parametrize(
    "count", [300, pytest.param(5_000, marks=[pytest.mark.laws, pytest.mark.exhaustive])]
)
def test_jumps_find_the_matches_that_steps_find(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_PIECES_AT_ONCE", 60)  # several parts
    compared = traced = seed = 0
    while compared < count:
        seed += 1
        found: list[Found] = []
        for rows in (1_000, -1):  # steps only, and jumps only
            monkeypatch.setattr(search, "_ROWS_PER_POSITION", rows)
            drawn = draw_search(random.Random(seed))
            if drawn is not None:
                found.append(drawn.find(timeouts=True))
        if len(found) == 2:
            compared += 1
            traced += len(found[0].starts) > 0
            for name in ("starts", "ends", "needed", "timeouts", "steps", "undecided"):
                steps, jumped = (getattr(one, name).tolist() for one in found)
                assert steps == jumped, (seed, name)
    assert traced > count / 4
