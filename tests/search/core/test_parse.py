"""What is refused as a query, with the position, and what the parts of a query mean."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamops.search.core.nodes import NodeType, field_type
from streamops.search.core.parse import MAX_LENGTH, Language, compile_queries

TYPES = {
    "price": pa.int64(),
    "city": pa.string(),
    "weight": pa.float32(),
    "new": pa.bool_(),
    "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
}
FIELDS = tuple((name, field_type(dtype)) for name, dtype in TYPES.items())
LANGUAGE = Language(("title", "body"), FIELDS, "or")  # type: ignore[arg-type]


def compiled(text: str | None) -> list[dict[str, object]]:
    nodes, errors = compile_queries(LANGUAGE, [text])
    assert errors == [None]
    rows: list[dict[str, object]] = nodes.to_pylist()[0]
    return rows


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        (None, 0, "the query is empty"),
        (" \t", 0, "the query is empty"),
        ("a AND (b", 8, "the query ends too early"),
        ("a b)", 3, "unexpected ')'"),
        ("a AND AND b", 6, "unexpected 'AND'"),
        ('a "b', 2, "unexpected '\"'"),
        ("a OR b~2", 5, "fuzzy search (~) is not supported: name the variants, with OR"),
        ('"a b"~3', 0, "words near one another (~) are not supported: use a phrase, or AND"),
        ("a b^2", 2, "a boost (^) is not supported: a query matches or does not, without a score"),
        ("a /b.c/", 2, "regular expressions are not supported"),
        ("a b?c", 3, "a wildcard is supported as a * at the end of a word only"),
        ("a b*c", 3, "a wildcard is supported as a * at the end of a word only"),
        ("*abc", 0, "a wildcard is supported as a * at the end of a word only"),
        ("a *", 2, "a wildcard is supported as a * at the end of a word only"),
        ("x wi-f*", 2, "a prefix is one word, and 'wi-f' has 2"),
        ("title:*", 6, "* alone is supported in fields only: a text column has words, or none"),
        ("a && b", 2, "&& is not an operator: use AND, OR or NOT, or escape it"),
        ("a !b", 2, "! is not an operator: use AND, OR or NOT, or escape it"),
        ("a AND ...", 6, "'...' has no letters or digits"),
        ('a ""', 2, "'' has no letters or digits"),
        ("a OR +b", 5, "a + has no meaning beside OR: use AND, or omit OR"),
        ("a name:b", 2, "unknown field 'name': the fields are title, body, price, city, weight, new, day, ts"),
        ("title:(a city:b)", 9, "the field 'city' is inside the field 'title'"),
        ("title:[a TO b]", 6, "a range is supported in fields only, not in text"),
        ("[a TO b]", 0, "a range is supported in fields only, not in text"),
        ("price:cheap", 6, "'cheap' is not an integer, as the field 'price' has"),
        ("price:1.5", 6, "'1.5' is not an integer, as the field 'price' has"),
        ("price:1_0", 6, "'1_0' is not an integer, as the field 'price' has"),
        ("price:[1 TO x]", 12, "'x' is not an integer, as the field 'price' has"),
        ("price:9223372036854775808", 6, "'9223372036854775808' is not an integer, as the field 'price' has"),
        ("price:1*", 6, "a prefix in a field that has an integer: use a range"),
        ("weight:nan", 7, "'nan' is not a number, as the field 'weight' has"),
        ("weight:1e999", 7, "'1e999' is not a number, as the field 'weight' has"),
        ("new:yes", 4, "'yes' is not true or false, as the field 'new' has"),
        ("day:2026-02-30", 4, "'2026-02-30' is not a date such as 2026-01-31, as the field 'day' has"),
        ("ts:>today", 4, "'today' is not a date or a time such as 2026-01-31T10:00:00Z, as the field 'ts' has"),
        ("ts:2026-01-31T10:00:00.1234567Z", 3, "'2026-01-31T10:00:00.1234567Z' is not a date or a time such as 2026-01-31T10:00:00Z, as the field 'ts' has"),
        ("a OR title:+b", 5, "a + has no meaning beside OR: use AND, or omit OR"),
        ("b a~1.2.3", 3, "~ and ^ are not supported"),
        ("a^.", 1, "~ and ^ are not supported"),
        ('"a b"~1.', 5, "~ and ^ are not supported"),
        ("price:(1 -x)", 10, "'x' is not an integer, as the field 'price' has"),
        ("city:[a* TO b]", 6, "a bound of a range is a value, or * for none"),
        ("(" * 60 + "a" + ")" * 60, 51, "more than 50 levels of nested conditions"),
        ("a " * 2_000, 0, "the query has 2,001 conditions: at most 1,000 are supported"),
        ("a" * (MAX_LENGTH + 1), 10_000, "the query has 10,001 characters: at most 10,000 are supported"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_an_invalid_query_has_a_position_and_a_message(
    text: str | None, position: int, message: str
) -> None:
    nodes, errors = compile_queries(LANGUAGE, ["a", text, "b"])
    assert nodes.is_null().to_pylist() == [False, True, False]
    assert errors[0] is errors[2] is None
    error = errors[1]
    assert error is not None
    assert (error.position, error.message) == (position, message)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a AND b OR c", "(a AND b) OR c"),
        ("a OR b AND c", "a OR (b AND c)"),
        ("a b AND c d", "a OR (b AND c) OR d"),
        ("+a b", "a"),
        ("+a b -c", "a AND NOT c"),
        ("a b -c", "(NOT c) AND (a OR b)"),
        ("-a -b", "NOT a AND NOT b"),
        ("a OR b -c", "(NOT c) AND (a OR b)"),
        ("a AND b -c", "(NOT c) AND a AND b"),
        ("a AND b +c", "c"),
        ("a OR b - c OR d", "(a OR b) OR (NOT c OR d)"),
        ("-a OR b", "(NOT a) OR b"),
        ("a -b OR c", "a OR NOT b OR c"),
        ("title:(a OR b -c)", "(NOT title:c) AND (title:a OR title:b)"),
        ("a title:-b", "(NOT title:b) AND a"),
        ("a OR b TO", "a OR b OR TO"),
        ("price:(1 OR 2 -3)", "price:1 OR price:2 OR price:-3"),
        ("price:(1 -*)", "(NOT price:*) AND price:1"),
        ("ts:2026-01-31T10:00:00.1234560Z", "ts:2026-01-31T10:00:00.123456Z"),
        ("NOT (a OR b)", "(NOT a) AND (NOT b)"),
        ("NOT (a AND NOT b)", "(NOT a) OR b"),
        ("title:(a b)", "title:a OR title:b"),
        ("Wi-Fi", '"wi FI"'),
        ("don't", '"don t"'),
        (r"a\*b", '"a b"'),
        (r"\AND", "and"),
        ("city:a", 'city:"a"'),
        (r"city:a\ b", 'city:"a b"'),
        (r"city:\*", 'city:"*"'),
        ("city:[* TO *]", "city:*"),
        ("price:-5", r"price:\-5"),
        ("price:(1 OR -2)", "price:1 OR price:-2"),
        ("price:{1 TO 5}", "price:[2 TO 4]"),
        ("price:>5", "price:[6 TO *]"),
        ("price:>=5", "price:[5 TO *]"),
        ("price:<5", "price:[* TO 4]"),
        ("price:<=5", "price:[* TO 5]"),
        ("weight:-0.0", "weight:0"),
        ("ts:2026-01-31", "ts:2026-01-31T00:00:00Z"),
        ("ts:2026-01-31T10:00:00", 'ts:"2026-01-31 11:00:00+01:00"'),
    ],
)
def test_two_queries_mean_the_same(text: str, same: str) -> None:
    assert compiled(text) == compiled(same)


def test_many_operators_in_a_row_are_not_nested() -> None:
    nodes = compiled("a OR b -c " * 200)
    inner = [node["type"] for node in nodes if node["type"] in (NodeType.AND, NodeType.OR)]
    assert inner == [NodeType.AND, NodeType.OR]
    assert len(nodes) == 602


def test_a_range_beyond_all_values_is_empty() -> None:
    for text in ("price:>9223372036854775807", "price:[* TO -9223372036854775808}"):
        (node,) = compiled(text)
        assert node["type"] == NodeType.NUMBER_RANGE
        assert node["low"] > node["high"]  # type: ignore[operator]


def test_a_phrase_requires_all_of_its_terms() -> None:
    node_types = [node["type"] for node in compiled('"a b a"')]
    assert node_types == [NodeType.AND, NodeType.WORD, NodeType.WORD, NodeType.PHRASE]
    assert [node["type"] for node in compiled('NOT "a b a"')] == [NodeType.PHRASE]


def test_conditions_side_by_side_are_all_required_if_the_default_operator_is_and() -> None:
    language = Language(("title", "body"), (), "and")
    (one, other), errors = compile_queries(language, ["a b -c", "a AND b AND NOT c"])[0], []
    assert not errors
    ordered = [sorted(map(str, nodes.as_py())) for nodes in (one, other)]
    assert ordered[0] == ordered[1]
