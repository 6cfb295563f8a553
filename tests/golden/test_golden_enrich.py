"""Stored states of enrichment are read by later versions, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from streamops.joins.core.enrich import EnrichCore
from streamops.testing.laws import to_rows
from tests.golden.enrich_states import (
    FACTS,
    FILE,
    MORE,
    SECOND,
    SPEC,
    TABLE,
    changes,
    spec_of,
    state,
    table_of,
)
from tests.golden.reading import Format, StoredState, multiset

FORMAT = Format(EnrichCore(), "joins.enrich")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found = FORMAT.equals_its_history(STORED)
    assert found.watermark == 11 * SECOND
    assert all(len(rows) for rows in found.tables.values())
    (donors,) = (row["donors"] for row in to_rows(found.tables["rows"]) if row["key.0"] == "a")
    assert [donor["sequence"]["log"] for donor in donors] == [1]


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    ours, theirs, output = read(), state(), []
    for facts, rows in MORE:
        left = table_of(facts, FACTS)
        pair = [
            EnrichCore().step(SPEC, item, [left, changes(rows)], None) for item in (ours, theirs)
        ]
        ours, theirs = (step.state for step in pair)
        assert multiset(to_rows(pair[0].output)) == multiset(to_rows(pair[1].output))
        assert pair[0].metrics == pair[1].metrics
        output.append([(row["word"], row["v"], row["tags"]) for row in to_rows(pair[0].output)])
    assert output == [
        # A value of "a" that was not sent is from a late change; "c" was evicted.
        [("a", None, ["late"]), ("ä", 2, None), ("b", None, [None]), ("c", None, None), ("e", None, None)],
        [("a", None, None), ("d", None, None), (None, None, None), ("", None, None)],
        [("a", None, None), ("b", None, [None])],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"max_keys": 7},
        {"horizon": "1 day"},
        {"how": "inner"},
        {"rejected": "route", "into": "found"},
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
        ({"by": {"word": "k"}}, "by"),
        ({"sequence": "v", "horizon": 5, "time": None}, "sequence, time"),
        ({"table": TABLE.append(pa.field("more", pa.int64()))}, "values"),
    ],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any], named: str) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what.endswith(named)
