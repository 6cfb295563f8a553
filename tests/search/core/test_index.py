"""When an index files its queries anew."""

from __future__ import annotations

import pytest

from streamops.search.core import evaluate
from tests.oracles.search import Query
from tests.search.core.random_queries import DOCUMENTS
from tests.search.core.test_exhaustive import expected, found, index_of


def test_queries_are_filed_anew_until_enough_documents_were_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluate, "_ENOUGH_DOCUMENTS", 8)
    queries: list[Query] = [("and", [("word", None, "a"), ("word", None, "b")])]
    of = index_of(queries, "or")
    seen = []
    for text in ["a", "a b", "b", "a b"]:
        rows = [dict.fromkeys(DOCUMENTS.names) | {"title": text} for _ in range(4)]
        assert found(of, rows) == expected(queries, rows, "or")
        seen.append((of.seen, of.filed))
    assert seen == [(4, 4), (8, 4), (12, 4), (16, 16)]
    assert found(of, rows) == expected(queries, rows, "or")
    assert (of.seen, of.filed) == (16, 16)
