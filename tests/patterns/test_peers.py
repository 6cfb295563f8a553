"""Behaviour that SQL's MATCH_RECOGNIZE and other engines define, in a batch and as a stream."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamops import patterns
from streamops.patterns.core import match as core
from streamops.patterns.core.match import PatternCore
from streamops.testing import Replay, at, replay

Rows = list[dict[str, Any]]

TYPES = "abcdex"


def events(text: str, *, step: float = 1) -> Rows:
    """One row per letter, a second apart; a capital letter satisfies the condition of `x`, too."""
    rows = []
    for number, letter in enumerate(text):
        flags = {name: letter.lower() == name for name in TYPES}
        rows.append({"id": number, "ts": at(number * step), **flags, "x": letter.isupper()})
    return rows


def found(pattern: str, rows: Rows, **given: Any) -> list[Any]:
    """The rows of each match, by their number; a stream with one row per micro-batch finds the same."""
    used = [name for name in TYPES if name in pattern.replace("permute", "")]
    defaults: dict[str, Any] = {
        "define": {name: name for name in used},
        "time": "ts",
        "within": "1 hour",
        "measures": {"ids": patterns.collect_list(None, "id")},
        "delay": "0 seconds",
    }
    operator = patterns.match(pattern, **(defaults | given))
    batches = [[row] for row in rows]
    streamed = [row for result in replay(operator, batches, flush=True) for row in result.rows]
    once = [row for result in replay(operator, [rows], flush=True) for row in result.rows]
    assert sorted(map(str, streamed)) == sorted(map(str, once))
    return [row["ids"] for row in streamed]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        # Strict contiguity: each row follows directly.
        ("a b c", "axbcdabch", [[5, 6, 7]]),
        ("a b", "aabab", [[1, 2], [3, 4]]),
        # Relaxed contiguity takes the nearest row.
        ("a ... b", "acbb", [[0, 2]]),
        ("a ... b ... c", "abdcbc", [[0, 1, 3]]),
        # Quantifiers are greedy, or reluctant.
        ("a b* c", "acabbc", [[0, 1], [2, 3, 4, 5]]),
        ("a b+", "abbbc", [[0, 1, 2, 3]]),
        ("a b+?", "abbbc", [[0, 1]]),
        ("a b{2} c", "abbcabc", [[0, 1, 2, 3]]),
        ("a{2,3}", "aaaaaaa", [[0, 1, 2], [3, 4, 5]]),
        ("a{2,3}?", "aaaaaaa", [[0, 1], [2, 3], [4, 5]]),
        ("a{,2} b", "aaab", [[1, 2, 3]]),
        ("a?? b", "ab", [[0, 1]]),
        # Greedy repetitions give back rows that a later item needs.
        ("a+ x", "aaA", [[0, 1, 2]]),
        ("a+ a", "aaa", [[0, 1, 2]]),
        # Groups and alternatives: the first alternative that leads to a match is preferred.
        ("(a b)+ c", "ababc", [[0, 1, 2, 3, 4]]),
        ("a (b c | b) c", "abcc", [[0, 1, 2, 3]]),
        ("a (b | b c) c", "abcc", [[0, 1, 2]]),
        ("(a | b){3}", "abba", [[0, 1, 2]]),
        ("permute(a, b, c)", "cabbac", [[0, 1, 2], [3, 4, 5]]),
        # Relaxed contiguity within a loop.
        ("a (... b){2} ... c", "abdbdc", [[0, 1, 3, 5]]),
        # No such row in between.
        ("a !c b", "adbacbab", [[0, 2], [6, 7]]),
        ("a !c !d b", "aebadb", [[0, 2]]),
        # Skip till next: rows are skipped only if they do not match.
        ("a !b ... b c", "abdbc", []),
        ("a ... b c", "abdbc", [[0, 3, 4]]),
    ],
)
def test_patterns(pattern: str, text: str, expected: list[Any]) -> None:
    assert found(pattern, events(text)) == expected


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        ("past last row", [[0, 1, 2], [3, 4, 5]]),
        ("to next row", [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]),
    ],
)
def test_the_search_continues_behind_the_match_or_at_the_next_row(
    skip: str, expected: list[Any]
) -> None:
    assert found("a{3}", events("aaaaaa"), skip=skip) == expected


@pytest.mark.parametrize(
    ("skip", "text", "expected"),
    [
        ("to first x", "AAAAAA", [[0, 1, 2, 3], [2, 3, 4, 5]]),
        ("to last x", "AAAAAAA", [[0, 1, 2, 3], [3, 4, 5, 6]]),
        # At the first row of the match the search would not advance: at the next one instead.
        ("to first a", "AAAAA", [[0, 1, 2, 3], [1, 2, 3, 4]]),
    ],
)
def test_the_search_continues_at_a_row_of_a_variable(
    skip: str, text: str, expected: list[Any]
) -> None:
    assert found("a{2} x{2}", events(text), skip=skip) == expected


def test_without_such_a_row_the_search_continues_at_the_next_row() -> None:
    assert found("a b? c", events("acabc"), skip="to last b") == [[0, 1], [2, 3, 4]]


def test_a_match_spans_less_than_the_bound() -> None:
    rows = events("abc", step=30)
    assert found("a b c", rows, within="1 minute") == []
    assert found("a b c", rows, within="60001 milliseconds") == [[0, 1, 2]]
    assert found("a b+", events("abbb", step=10), within="21 seconds") == [[0, 1, 2]]


def test_absence_at_the_end_is_bounded_by_the_first_row() -> None:
    rows = events("a" + "d" * 9 + "b")
    assert found("a !b", rows, within="10 seconds") == [[0]]
    assert found("a !b", rows, within="11 seconds") == []
    assert found("a ... d !b", rows, within="10 seconds") == [[0, 1]]


def test_rows_of_different_keys_do_not_meet() -> None:
    rows = [row | {"user": "uv"[row["id"] % 2]} for row in events("aabb")]
    assert found("a b", rows, by="user") in ([[0, 2], [1, 3]], [[1, 3], [0, 2]])


def test_a_price_that_falls_and_rises() -> None:
    prices = [19, 17, 13, 20, 20, 26, 20, 25]
    rows = [{"id": n, "ts": at(n), "price": price} for n, price in enumerate(prices)]
    falls = patterns.previous("price") > "price"
    rises = patterns.previous("price") < "price"
    v_shape = {"define": {"down": falls, "up": rises}}
    assert found("start down+ up+", rows, **v_shape) == [[0, 1, 2, 3], [5, 6, 7]]
    measures = {
        "ids": patterns.classifiers(),
        "bottom": patterns.last("down", "price"),
        "least": patterns.min(["start", "down"], "price"),
    }
    assert found("start down+ up+", rows, **v_shape, measures=measures) == [
        ["start", "down", "down", "up"],
        ["start", "down", "up"],
    ]


def test_the_previous_row_may_be_outside_of_the_match() -> None:
    rows = [{"id": n, "ts": at(n), "v": v} for n, v in enumerate([90, 80, 70, 70])]
    lower = {"define": {"low": patterns.previous("v") >= "v"}}
    assert found("low+", rows, **lower) == [[1, 2, 3]]
    assert found("low", rows, **lower, within="1 second") == []


def test_rows_with_one_event_time_are_ordered_by_the_tie_break() -> None:
    rows = [row | {"ts": at(0), "order": -row["id"]} for row in events("cba")]
    assert found("a b c", rows, delay="1 second", tie_break="order") == [[2, 1, 0]]
    assert found("a b c", rows, delay="1 second", tie_break=["id", "order"]) == []


def test_nulls_are_values_of_the_rows_of_a_match() -> None:
    rows = [{"id": n, "ts": at(n), "v": v, "a": True} for n, v in enumerate([None, 1, 2, None])]
    measures = {
        "first": patterns.first("a", "v"),
        "last": patterns.last("a", "v"),
        "list": patterns.collect_list("a", "v"),
        "values": patterns.count("a", "v"),
        "rows": patterns.count("a"),
        "sum": patterns.sum("a", "v"),
        "mean": patterns.mean("a", "v"),
        "max": patterns.max("a", "v"),
        "none": patterns.sum("b", "v"),
        "never": patterns.first("b", "v"),
        "no_rows": patterns.count("b"),
    }
    operator = patterns.match(
        "a{4} b?",
        define={"a": "a", "b": "a"},
        time="ts",
        within="1 hour",
        measures=measures,
        delay="0 seconds",
    )
    (row,) = [row for result in replay(operator, [rows], flush=True) for row in result.rows]
    assert {name: row[name] for name in measures} == {
        "first": None,
        "last": None,
        "list": [None, 1, 2, None],
        "values": 2,
        "rows": 4,
        "sum": 3,
        "mean": 1.5,
        "max": 2,
        "none": None,
        "never": None,
        "no_rows": 0,
    }


def test_nan_is_the_largest_number_and_null_is_not_true() -> None:
    values = [1.0, float("nan"), float("nan"), None, 2.0, -0.0, 0.0]
    rows = [{"id": n, "ts": at(n), "v": v} for n, v in enumerate(values)]
    previous = patterns.previous("v")
    assert found("up", rows, define={"up": previous < "v"}) == [[1]]
    assert found("same", rows, define={"same": previous == "v"}) == [[2], [6]]
    assert found("other", rows, define={"other": previous != "v"}) == [[1], [5]]
    assert found("no", rows, define={"no": ~(previous < "v")}) == [[2], [5], [6]]
    assert found("none", rows, define={"none": previous.is_null()}) == [[0], [4]]


def test_conditions_compute_with_earlier_rows() -> None:
    rows = [{"id": n, "ts": at(n), "v": v, "n": 2} for n, v in enumerate([10, 11, 13, 12, 24])]
    v, two = patterns.previous("v"), patterns.previous("v", 2)
    jump = (patterns.current("v") - v >= 2) & (v >= 1)
    assert found("j", rows, define={"j": jump}) == [[2], [4]]
    assert found("j", rows, define={"j": (v * 1.15 <= "v") | (10 - two == 0)}) == [[2], [4]]
    assert found("j", rows, define={"j": 1 + v == "v"}) == [[1]]
    assert found("j", rows, define={"j": v * "n" <= "v"}) == [[4]]
    assert found("j", rows, define={"j": (2 * v <= "v") & (patterns.current("n") <= 2.5)}) == [[4]]


def test_conditions_compare_with_the_first_row_of_the_match() -> None:
    # MATCH_RECOGNIZE: PATTERN (A B+ C) DEFINE B AS B.v < FIRST(v), C AS C.v >= FIRST(v)
    rows = [{"id": n, "ts": at(n), "v": v} for n, v in enumerate([5, 9, 7, 4, 6, 8, 5, 9, 3])]
    first = patterns.initial("v")
    back = {"define": {"below": first > "v", "back": first <= "v"}}
    # From 9 there are 7, 4, 6, 8, 5 below it, and then a 9. The 5 before it is followed by no smaller one.
    assert found("any below+ back", rows, **back) == [[1, 2, 3, 4, 5, 6, 7]]
    assert found("any below+ back", rows, **back, skip="to next row") == [
        [2, 3, 4, 5],
        [1, 2, 3, 4, 5, 6, 7],
        [5, 6, 7],
    ]
    assert found("any below+ back", rows, **back, skip="to last back") == [[1, 2, 3, 4, 5, 6, 7]]
    assert found("any below+ back", rows, **back, within="4 seconds") == [[2, 3, 4, 5]]
    later = {"define": {"back": first <= "v"}, "within": "3 seconds"}
    assert found("any ... back", rows, **later, skip="to next row") == [
        [0, 1],
        [3, 4],
        [4, 5],
        [5, 7],
        [6, 7],
    ]


def test_the_first_row_is_its_own_first_row() -> None:
    rows = [{"id": n, "ts": at(n), "v": v} for n, v in enumerate([3, 3, 2, 2, 2, None, None])]
    assert found("same+", rows, define={"same": patterns.initial("v") == "v"}) == [
        [0, 1],
        [2, 3, 4],
    ]
    unknown = {"define": {"none": patterns.initial("v").is_null()}}
    assert found("none+", rows, **unknown) == [[5, 6]]


def test_absence_may_depend_on_the_first_row() -> None:
    prices = [10, 8, 9, 20, 20, 15]
    rows = [{"id": n, "ts": at(2 * n), "v": v} for n, v in enumerate(prices)]
    rows.append({"id": 9, "ts": at(60), "v": 0})
    lower = {"define": {"lower": patterns.initial("v") > "v"}, "within": "5 seconds"}
    assert found("any !lower", rows, **lower, skip="to next row") == [[1], [2], [5], [9]]


def test_earlier_rows_and_the_first_row_in_one_condition() -> None:
    """The row before the match is evicted before the condition is evaluated again."""
    prices = [9, 4, 5, 6, 7, 5, 1]
    rows = [{"id": n, "ts": at(n), "v": v} for n, v in enumerate(prices)]
    two_before = patterns.previous("v", 2)
    rises = {"define": {"next": (two_before != "v") & (patterns.initial("v") < "v")}}
    assert found("any next{3,}", rows, **rises) == [[1, 2, 3, 4, 5]]
    above = {"define": {"next": (two_before > "v") & (patterns.initial("v") < "v")}}
    assert found("any next", rows, **above) == [[1, 2]]


def test_many_rows_until_a_start_is_decided() -> None:
    prices = [5, *[9] * 100, 2, *[9] * 20, 1]
    rows = [{"id": n, "ts": at(n), "v": v} for n, v in enumerate(prices)]
    lower = {"define": {"lower": patterns.initial("v") > "v", "five": patterns.current("v") == 5}}
    assert found("five ... lower", rows, **lower) == [[0, 101]]
    rest = {"define": {"rest": patterns.initial("v") <= "v", "five": patterns.current("v") == 5}}
    assert found("five rest+", rows, **rest) == [[*range(101)]]
    assert found("five rest+", rows[:101], **rest) == [[*range(101)]], "at the end of the stream"


def test_conditions_are_combined_with_spark_sql_of_the_row() -> None:
    rows = [{"id": n, "ts": at(n), "v": v, "a": n != 2} for n, v in enumerate([1, 2, 3, 2])]
    rises = patterns.previous("v") < "v"
    assert found("r", rows, define={"r": "a" & rises}) == [[1]]
    assert found("r", rows, define={"r": "a" | rises}) == [[0], [1], [2], [3]]


def test_decimals_are_compared_exactly() -> None:
    values = [Decimal("0.1"), Decimal("0.30"), Decimal("0.3"), None]
    rows = [{"id": n, "ts": at(n), "v": v, "w": Decimal("0.10")} for n, v in enumerate(values)]
    assert found("s", rows, define={"s": patterns.previous("v") == "v"}) == [[2]]
    assert found("s", rows, define={"s": patterns.previous("v") == "w"}) == [[1]]
    assert found("s", rows, define={"s": patterns.previous("v") * 2 < "v"}) == [[1]]


def test_a_batch_needs_no_bound() -> None:
    rows = pa.Table.from_pylist(events("abab", step=1_000_000))
    operator = patterns.match(
        "a b later",
        define={"a": "a", "b": "b", "later": patterns.previous("id", 2) >= 0},
        time="ts",
        measures={"ids": patterns.collect_list(None, "id")},
    )
    spec = operator.parameters.resolve((rows.schema,), carried=(None,), shards=1)
    assert PatternCore().run(spec, [PatternCore().pack(spec, rows)]).rows.column(
        "ids"
    ).to_pylist() == [[0, 1, 2]]
    state = core.State.empty(PatternCore().layout(spec))
    step = PatternCore().step(spec, state, [PatternCore().pack(spec, rows)], 10**18)
    assert step.state.rows == 2, "no start is undecided, and a condition reads two rows"
    PatternCore().check(spec, step.state)
    assert PatternCore().next_deadline(spec, step.state) is None


def test_a_restart_between_two_rows_of_a_match_changes_nothing() -> None:
    rows = events("abbc")
    operator = patterns.match(
        "a b+ c",
        define={name: name for name in "abc"},
        time="ts",
        within="1 hour",
        measures={"n": patterns.count("b")},
        delay="0 seconds",
    )
    query = Replay(operator, pa.Table.from_pylist(rows).schema, restart=True)
    results = [row for part in (rows[:2], rows[2:]) for r in query.run([part]) for row in r.rows]
    assert [row["n"] for row in results] == [2]
