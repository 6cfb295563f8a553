"""Conditions of patterns that compare shredded values with the first row of the match."""

from __future__ import annotations

from typing import Any

from streamops import patterns
from tests.erasure.test_operators import REPEATED, compare, matched


def returning() -> Any:
    first, current = patterns.initial("v"), patterns.current("v")
    return matched(
        {"start": patterns.current("n") >= 0, "away": first != current, "back": first == current},
        "start away+ back",
        value=patterns.first("start", "v"),
        others=patterns.collect_list("away", "v"),
    )


def test_values_are_compared_with_the_first_row_of_the_match() -> None:
    expected, found = compare(returning, REPEATED)
    assert found == expected
