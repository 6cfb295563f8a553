"""What counts as undecided, and numbers that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import patterns
from streamops.kernel.errors import CapacityError, SpecError
from streamops.testing import at, replay


def match(pattern: str, define: dict[str, Any], delay: str = "0 seconds", **limits: Any) -> Any:
    return patterns.match(
        pattern,
        define=define,
        time="ts",
        by="k",
        within="1 hour",
        measures={"n": patterns.collect_list(None, "x")},
        delay=delay,
        **limits,
    )


def test_rows_that_only_conditions_read_are_not_undecided() -> None:
    operator = match("a b", {"a": "a", "b": patterns.previous("x", 5) > "x"}, max_rows=2)
    rows = [[{"k": "z", "ts": at(i), "a": i == 8, "x": -i}] for i in range(10)]
    assert [row["n"] for of in replay(operator, rows) for row in of.rows] == [[-8, -9]]


def test_conditions_still_read_rows_that_were_dropped() -> None:
    define = {"a": "a", "b": patterns.previous("x", 3) > "x"}
    operator = match("a a ... b", define, max_rows=2, when_full="evict_oldest")
    # No `b` yet, so that only the last two rows may begin the match. Its `b` is below the row of 2 seconds.
    numbers = [50, 60, 70, 80, 90, 69]
    rows = [[{"k": "z", "ts": at(i), "a": i < 5, "x": x}] for i, x in enumerate(numbers)]
    results = replay(operator, rows, flush=True)
    assert [row["n"] for of in results for row in of.rows] == [[80, 90, 69]]


@pytest.mark.parametrize(
    "condition",
    [
        patterns.previous("x") + 1 > "x",
        patterns.initial("x") * 2 >= "x",
        (patterns.previous("x") - "x" < 0) | patterns.previous("x").is_null(),
    ],
)
def test_a_number_that_does_not_fit_is_an_error_with_a_remedy(condition: Any) -> None:
    rows = [{"k": "a", "ts": at(1), "x": 2**63 - 1}, {"k": "a", "ts": at(2), "x": -2}]
    with pytest.raises(CapacityError, match="NUMERIC_OVERFLOW") as caught:
        replay(match("any_row a", {"a": condition}), [rows], flush=True)
    assert "x is bigint" in caught.value.got
    assert repr(condition) in caught.value.got


def test_rows_that_wait_are_not_compared_before_their_order_is_known() -> None:
    condition = patterns.previous("x") + "x" > 0
    operator = match("a", {"a": condition}, delay="10 seconds")
    # Until the row of 25 seconds arrives, the one of 29 seconds follows the greatest integer.
    rows = [{"k": "a", "ts": at(s), "x": x} for s, x in [(0, 0), (20, 2**63 - 1), (29, 5)]]
    between = [{"k": "a", "ts": at(25), "x": 0}]
    results = replay(operator, [rows, [], between], flush=True)
    assert [row["n"] for of in results for row in of.rows] == [[2**63 - 1], [0], [5]]
    with pytest.raises(CapacityError, match="NUMERIC_OVERFLOW"):
        replay(operator, [rows, []], flush=True)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400])
def test_literals_beyond_64_bits_are_refused(number: int) -> None:
    with pytest.raises(SpecError, match="CONDITION_INVALID"):
        _ = patterns.previous("x") > number
