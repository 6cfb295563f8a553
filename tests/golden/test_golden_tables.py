"""State of table joins that was written once is read for ever, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamops.joins.core import tables
from streamops.kernel.codec import decode
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.testing.laws import rows_of
from tests.golden.states import SHARDS
from tests.golden.table_states import HISTORIES, History, batch, stepped
from tests.golden.test_golden_states import bag

every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


def read(history: History, **known: Any) -> State:
    said = {"layout": tables.STATE, "identity": history.spec.identity, "shards": SHARDS} | known
    return State(None, decode(history.file.read_bytes(), **said, where="joins.tables"))


def refused(history: History, **known: Any) -> StateFormatError:
    with pytest.raises(StateFormatError) as caught:
        read(history, **known)
    return caught.value


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    found, now = read(history), history.state()
    for name, kept in found.tables.items():
        assert len(kept) > 0
        assert kept.schema == now.tables[name].schema
        assert bag(rows_of(kept)) == bag(rows_of(now.tables[name]))
    tables.check(history.spec, found)


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: History,
) -> None:
    state, oracle, published = read(history), history.oracle(), 0
    for left, right in history.more:
        step = stepped(history.spec, state, left, right)
        state = step.state
        expected = oracle.step(*map(rows_of, batch(left, right)))
        assert bag(rows_of(step.emitted)) == bag(expected.emitted)
        published += len(expected.emitted)
    assert published > 0


@every
def test_state_of_version_1_is_refused_by_another_version(history: History) -> None:
    error = refused(history, layout=StateFormat("joins.tables", 2))
    assert (error.code, error.got) == ("STATE_VERSION", "frame 1, joins.tables version 1")


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
