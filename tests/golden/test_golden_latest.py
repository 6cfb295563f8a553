"""Stored state of ``normalize`` is read, or refused with instructions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from streamops.changes.core.latest import LatestCore
from streamops.testing.laws import to_rows
from tests.golden.latest_states import BATCHES, FILE, MORE, SCHEMA, SPEC, spec_of, state, table
from tests.golden.reading import Format, StoredState, multiset

FORMAT = Format(LatestCore(), "changes.normalize")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_equals_the_state_of_its_history() -> None:
    found = FORMAT.equals_its_history(STORED)
    assert found.watermark == 14_000_000
    assert found.tables["evicted"].num_rows == 1
    (donors,) = (row["donors"] for row in to_rows(found.tables["rows"]) if row["key.0"] == "a")
    assert [(donor["sequence"]["offset"], donor["value.0"]) for donor in donors] == [(1, 1)]


def test_a_stream_continues_from_state_of_version_1() -> None:
    ours, theirs = read(), state()
    for rows in MORE:
        pair = [
            LatestCore().step(SPEC, state_, [LatestCore().pack(SPEC, table(rows))])
            for state_ in (ours, theirs)
        ]
        ours, theirs = (step.state for step in pair)
        assert multiset(to_rows(pair[0].output)) == multiset(to_rows(pair[1].output))
        assert len(pair[0].output)
    assert len(BATCHES) == 5


@pytest.mark.parametrize(
    "changed", [{"max_keys": 7}, {"publish": "last"}, {"horizon": "1 day"}], ids=repr
)
def test_these_parameters_may_change(changed: dict[str, Any]) -> None:
    assert read(identity=spec_of(**changed).identity).rows == 6


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"snapshots": "by_sequence"}, "snapshots"),
        ({"ignore_nulls": True}, "ignore_nulls"),
        ({"key": ["page", "n"]}, "key"),
        ({"sequence": "n", "horizon": 5, "time": None}, "sequence, time"),
        ({"schema": SCHEMA.append(pa.field("more", pa.int64()))}, "values"),
    ],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any], named: str) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what.endswith(named)
