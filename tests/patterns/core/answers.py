"""Comparison of a search over one tape with the answers of the oracle for each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamops.patterns.core.search import Found, Search


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
