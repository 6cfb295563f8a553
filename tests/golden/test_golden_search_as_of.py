"""Stored states of stored queries as of event time are read by later versions, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from streamops.search.core.asof import SearchAsofCore
from streamops.testing.laws import to_rows
from tests.golden.reading import Format, StoredState
from tests.golden.search_as_of_states import (
    DOCUMENTS,
    FILE,
    MORE,
    SPEC,
    inputs,
    spec_of,
    state,
)

FORMAT = Format(SearchAsofCore(), "search.match")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found = FORMAT.equals_its_history(STORED)
    versions = [(row["key.0"], row["time"]) for row in to_rows(found.tables["versions"])]
    assert sorted(versions) == [(1, 10), (2, 20), (4, 6), (4, 50), (4, 80), (5, 40)]
    assert to_rows(found.tables["evicted"]) == [{"time": 5}]


def test_a_stream_goes_on_from_a_state_of_version_1() -> None:
    after, found, reasons = read(), [], []
    for documents, changes, watermark in MORE:
        step = SearchAsofCore().step(SPEC, after, inputs(documents, changes), watermark)
        after = step.state
        found += [(row["n"], row["query_id"]) for row in to_rows(step.output)]
        reasons += [row["late"]["reason"] for row in to_rows(step.late)]
    found += [(row["n"], row["query_id"]) for row in to_rows(SearchAsofCore().finish(SPEC, after))]
    assert sorted(found) == [(2, 1), (2, 4), (3, 4), (4, 1), (4, 2), (4, 4), (5, 1), (5, 2)]
    assert reasons == ["too_late", "forgotten"]


@pytest.mark.parametrize(
    "changed",
    [
        {"max_keys": 7},
        {"horizon": "1 day", "delay": "1 day"},
        {"waits_for": "documents"},
        {"rejected": "drop", "into": "found"},
    ],
    ids=repr,
)
def test_what_may_change_is_read(changed: dict[str, Any]) -> None:
    assert read(identity=spec_of(**changed).identity).rows == state().rows


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"text": "title", "fields": ["price", "n"]}, "fields"),
        ({"default_operator": "and"}, "default_operator"),
        ({"as_of": "at", "documents": DOCUMENTS.append(pa.field("at", DOCUMENTS[0].type))}, "as_of"),
        ({"documents": DOCUMENTS.set(2, pa.field("n", pa.int32()))}, "documents"),
        ({"sequence": "lsn"}, "sequence"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_a_query_means_and_documents_that_wait_may_not_change(
    changed: dict[str, Any], named: str
) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what.endswith(named)
