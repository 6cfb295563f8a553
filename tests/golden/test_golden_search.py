"""Stored states of stored queries are read by later versions, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from streamops.search.core.match import SearchCore
from streamops.testing.laws import to_rows
from tests.golden.reading import Format, StoredState
from tests.golden.search_states import (
    DOCUMENT_ROWS,
    DOCUMENTS,
    FILE,
    SPEC,
    inputs,
    spec_of,
    state,
)

FORMAT = Format(SearchCore(), "search.match")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found = FORMAT.equals_its_history(STORED)
    assert found.watermark == 71
    live = {r["key.0"]: r["is_deleted"] for r in to_rows(found.tables["rows"])}
    assert live == {1: False, 2: False, 4: False, 6: False, 7: True}


def test_documents_match_the_queries_of_a_state_of_version_1() -> None:
    step = SearchCore().step(SPEC, read(), inputs(DOCUMENT_ROWS, []), None)
    found = sorted((row["n"], row["query_id"]) for row in to_rows(step.output))
    assert found == [(1, 1), (1, 4), (1, 6), (2, 1), (2, 2), (3, 4), (3, 6)]


@pytest.mark.parametrize(
    "changed",
    [{"max_keys": 7}, {"horizon": 9}, {"rejected": "route", "into": "found"}],
    ids=repr,
)
def test_what_may_change_is_read(changed: dict[str, Any]) -> None:
    assert read(identity=spec_of(**changed).identity).rows == state().rows


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"text": ["body", "title"]}, "text"),
        ({"text": "title"}, "text"),
        ({"fields": "price"}, "fields"),
        ({"default_operator": "and"}, "default_operator"),
        ({"documents": DOCUMENTS.set(3, pa.field("price", pa.int64()))}, "fields"),
    ],
    ids=repr,
)
def test_what_a_query_means_may_not_change(changed: dict[str, Any], named: str) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what.endswith(named)
