"""Stored state of ``apply`` with intervals is read, or refused with instructions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from streamops.changes.core.history import HistoryCore
from streamops.testing.laws import to_rows
from tests.golden.history_states import FILE, SPEC, spec_of, state
from tests.golden.latest_states import MORE, table
from tests.golden.reading import Format, StoredState, multiset

FORMAT = Format(HistoryCore(), "changes.apply")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_equals_the_state_of_its_history() -> None:
    found = FORMAT.equals_its_history(STORED)
    assert found.watermark == 14_000_000
    assert found.tables["evicted"].num_rows == 1
    base, other = (row for row in to_rows(found.tables["changes"]) if row["is_base"])
    assert other["key.0"] == "b"
    assert (base["key.0"], base["sequence"], base["value.0"], base["missing"]) == (
        "a",
        {"log": 1, "offset": 3},
        1,
        [0, 1],
    )


def test_a_stream_continues_from_state_of_version_1() -> None:
    ours, theirs = read(), state()
    for rows in MORE:
        packed = HistoryCore().pack(SPEC, table(rows))
        one, other = (HistoryCore().step(SPEC, state_, [packed]) for state_ in (ours, theirs))
        ours, theirs = one.state, other.state
        assert multiset(to_rows(one.output)) == multiset(to_rows(other.output))
        assert len(one.output)


@pytest.mark.parametrize("changed", [{"max_keys": 7}, {"horizon": "1 day"}], ids=repr)
def test_these_parameters_may_change(changed: dict[str, Any]) -> None:
    assert read(identity=spec_of(**changed).identity).watermark == 14_000_000


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize("changed", [{"track": "n"}, {"snapshots": "by_sequence"}], ids=repr)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any]) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what.endswith(next(iter(changed)))
