"""State of table joins that was written once is read for ever, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamops.joins.core.tables import TablesCore
from streamops.testing.laws import to_rows
from tests.golden.reading import Format, multiset
from tests.golden.table_states import HISTORIES, History, batch, stepped

FORMAT = Format(TablesCore(), "joins.tables")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    FORMAT.equals_its_history(history)


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: History,
) -> None:
    state, oracle, published = read(history), history.oracle(), 0
    for left, right in history.more:
        step = stepped(history.spec, state, left, right)
        state = step.state
        expected = oracle.step(*map(to_rows, batch(left, right)))
        assert multiset(to_rows(step.output)) == multiset(expected.emitted)
        published += len(expected.emitted)
    assert published > 0


@every
def test_state_of_version_1_is_refused_by_another_version(history: History) -> None:
    FORMAT.refuses_another_version(history)


@every
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("left", {"by": {"k": "key"}}),
        ("how", {"how": "right"}),
        ("right", {"key": ("id", ["rid", "m"])}),
    ],
)
def test_state_is_refused_by_joins_with_another(
    name: str, settings: dict[str, Any], history: History
) -> None:
    error = refused(history, identity=history.spec_of(**settings).identity)
    assert error.code == "STATE_PARAMETERS"
    assert name in error.what.partition(": ")[2].split(", ")


@every
def test_what_happens_to_rejected_changes_may_change(history: History) -> None:
    assert read(history, identity=history.spec_of(rejected="route").identity).rows > 0
