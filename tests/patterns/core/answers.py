"""Comparison of a search over one tape with the answers of the oracle for each key."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamops.kernel.errors import SpecError
from streamops.kernel.time import AFTER_ALL
from streamops.patterns.core.automaton import Automaton, compile_pattern
from streamops.patterns.core.scan import Tape
from streamops.patterns.core.search import Found, Search
from streamops.patterns.core.syntax import Pattern, parse_pattern
from tests.laws.pattern_strategies import NAMES
from tests.oracles.patterns import Answer, Query

BITS = {name: 1 << at for at, name in enumerate(NAMES)}

Compiled = tuple[Query, str, Pattern, Automaton]


def draw_compiled(
    dice: random.Random, draw: Callable[[random.Random, int | None], tuple[Query, str]]
) -> Compiled:
    """Draw patterns until one of them compiles."""
    while True:
        query, text = draw(dice, dice.choice([None, None, 1, 2, 3, 5, 9]))
        pattern = parse_pattern(text)
        try:
            return query, text, pattern, compile_pattern(pattern, BITS)
        except SpecError as error:
            if error.code not in {"PATTERN_INVALID", "PARAMETER_OUT_OF_RANGE"}:
                raise


def compare_search(dice: random.Random, compiled: Compiled, *, case: object) -> tuple[str, bool]:
    """Compare a pattern over random rows of some keys: its text, and whether there was a match."""
    query, text, pattern, automaton = compiled
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
    search = Search(
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
    found = search.find(timeouts=True)
    return text, check_answers(
        search, found, pattern.variables, answers, timeouts=True, case=(case, text)
    )


def check_answers(
    search: Search,
    result: Found,
    variables: Sequence[str],
    answers: Sequence[tuple[int, int, Any]],
    *,
    timeouts: bool,
    case: object,
) -> bool:
    """Fail unless a search has found what the oracle did; return whether that is any match.

    Parameters
    ----------
    search, result
        The search, and what it found.
    variables : sequence of str
        Those of the pattern.
    answers : sequence of (int, int, answer)
        For each key: where it begins on the tape, its number of rows, and the answer of the oracle.
    timeouts : bool
        Whether partial matches were asked for.
    case : object
        Printed if they differ.
    """
    labels = search.label(result.starts, result.bounds)
    names = [variables[number] for number in labels.variable]
    matches: list[Any] = [
        (
            start,
            end,
            [(r, n) for m, r, n in zip(labels.match, labels.row, names, strict=True) if m == i],
        )
        for i, (start, end) in enumerate(zip(result.starts, result.ends, strict=True))
    ]
    expected = [
        (
            base + start,
            base + start + len(path),
            [(base + start + i, name) for i, name in enumerate(path) if name is not None],
        )
        for base, _, answer in answers
        for start, path in answer.matches
    ]
    assert matches == expected, case
    needed = [base + (count if of.needed is None else of.needed) for base, count, of in answers]
    assert result.needed.tolist() == needed, case
    partial = [(base + at, steps) for base, _, of in answers for at, steps in of.timeouts]
    late = [*zip(result.timeouts, result.steps, strict=True)]
    assert late == (partial if timeouts else []), case
    return bool(expected)
