"""The index finds what evaluating every query on every document finds."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from streamops.search.core.evaluate import Documents, QueryIndex
from streamops.search.core.nodes import field_type
from streamops.search.core.parse import Language, compile_queries, split_tokens
from tests.oracles.search import Query, matches, render
from tests.search.core.random_queries import DOCUMENTS, FIELDS, TEXT, document, query

Pairs = set[tuple[int, int]]


def language(operator: str) -> Language:
    types = [(name, field_type(DOCUMENTS.field(name).type)) for name in FIELDS]
    return Language(TEXT, tuple(types), operator)  # type: ignore[arg-type]


def index_of(queries: list[Query], operator: str) -> QueryIndex:
    nodes, errors = compile_queries(language(operator), [render(tree) for tree in queries])
    assert not any(errors), next(error for error in errors if error)
    return QueryIndex.of(nodes, len(TEXT), len(FIELDS))


def found(index: QueryIndex, rows: list[dict[str, object]]) -> Pairs:
    table = pa.Table.from_pylist(rows, schema=DOCUMENTS)
    tokens = [pa.chunked_array([split_tokens(table.column(name))]) for name in TEXT]
    fields = [table.column(name) for name in FIELDS]
    pairs = index.match(Documents(tokens, fields, len(rows)))
    listed = list(zip(*(part.tolist() for part in pairs), strict=True))
    assert listed == sorted(set(listed))
    return set(listed)


def expected(queries: list[Query], rows: list[dict[str, object]], operator: str) -> Pairs:
    return {
        (at, number)
        for at, row in enumerate(rows)
        for number, tree in enumerate(queries)
        if matches(tree, row, TEXT, operator)
    }


@pytest.mark.parametrize("operator", ["or", "and"])
@pytest.mark.parametrize("seed", range(20))
def test_250_random_queries_find_what_evaluating_each_finds(seed: int, operator: str) -> None:
    """10,000 random queries in all, each on 25 random documents in several steps."""
    dice = random.Random(f"{seed} {operator}")
    queries = [query(dice) for _ in range(250)]
    index = index_of(queries, operator)
    for size in (1, 4, 20):  # the index is filed again as documents arrive
        rows = [document(dice) for _ in range(size)]
        assert found(index, rows) == expected(queries, rows, operator)
    assert index.filed == 25
    assert len(index.always)


@pytest.mark.parametrize("pieces", [1, 7])
def test_the_size_of_pieces_does_not_matter(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(pieces)
    queries, rows = [query(dice) for _ in range(100)], [document(dice) for _ in range(40)]
    monkeypatch.setattr("streamops.search.core.evaluate._NODES_AT_ONCE", pieces)
    assert found(index_of(queries, "or"), rows) == expected(queries, rows, "or")


def test_one_query_and_no_documents() -> None:
    index = index_of([("word", None, "a")], "or")
    assert found(index, []) == set()
    assert found(index, [dict.fromkeys(DOCUMENTS.names)]) == set()


def test_only_queries_that_exclude_are_verified_for_every_document() -> None:
    trees: list[Query] = [
        ("range", "price", 1, 5, True, True),
        (
            "and",
            [("range", "city", "O", "P", True, False), ("range", "price", 0, None, True, True)],
        ),
        ("or", [("word", None, "a"), ("range", "weight", None, 1.0, True, True)]),
        ("not", ("range", "price", 1, 5, True, True)),
        ("and", [("not", ("word", None, "a")), ("exists", "city")]),
    ]
    index, dice = index_of(trees, "or"), random.Random(1)
    rows = [document(dice) for _ in range(30)]
    assert found(index, rows) == expected(trees, rows, "or")
    assert index.always.tolist() == [3]
    assert len(index.ranges) == 3


def test_a_query_is_filed_under_its_rarest_condition() -> None:
    rows = [dict.fromkeys(DOCUMENTS.names) | {"title": f"common {n}", "price": n} for n in range(9)]
    queries: list[Query] = [
        ("and", [("word", None, "common"), ("word", None, "3")]),
        ("and", [("word", None, "common"), ("range", "price", 0, 1, True, True)]),
        ("and", [("word", None, "absent"), ("word", None, "3")]),
    ]
    index = index_of(queries, "or")
    assert found(index, rows) == expected(queries, rows, "or")
    sizes = [int(size) for size in index.bounds[1:] - index.bounds[:-1] if size]
    assert sorted(sizes) == [1, 1, 1]
    assert (
        index.frequency[[c for c, n in enumerate(index.bounds[1:] - index.bounds[:-1]) if n]].max()
        == 1
    )
