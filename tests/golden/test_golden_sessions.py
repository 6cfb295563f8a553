"""State of sessions that was written once is read for ever, or refused with instructions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops.kernel.codec import decode
from streamops.kernel.contract import State
from streamops.kernel.errors import StateFormatError
from streamops.testing.laws import rows_of
from streamops.windows.core import session
from tests.golden.session_states import HISTORIES, NOW, SECOND, History
from tests.golden.states import SHARDS
from tests.golden.test_golden_states import bag

every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


def read(history: History, **identity: Any) -> State:
    known = session.STATE, {**history.spec.identity, **identity}, SHARDS
    tables = decode(history.file.read_bytes(), *known, where="windows.session")
    return State(NOW + 24 * SECOND, tables)


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    found, now = read(history), history.state()
    assert found.tables.keys() == now.tables.keys()
    for name, kept in found.tables.items():
        assert len(kept) > 0
        assert kept.schema == now.tables[name].schema
        assert bag(rows_of(kept)) == bag(rows_of(now.tables[name]))
    session.check(history.spec, found)


@every
def test_a_stream_goes_on_from_it(history: History) -> None:
    spec = history.spec
    found, now = (session.finish(spec, state) for state in (read(history), history.state()))
    assert bag(rows_of(found)) == bag(rows_of(now))
    assert len(found) > 0


@every
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gap", 20 * SECOND),
        ("gap_column", "patience"),
        ("until", "out"),
        ("max_length", 60 * SECOND),
        ("when_longer", "fail"),
        ("allowed_lateness", 1),
    ],
)
def test_state_is_refused_by_sessions_with_another(
    name: str, value: object, history: History
) -> None:
    with pytest.raises(StateFormatError) as caught:
        read(history, **{name: value})
    assert caught.value.code == "STATE_PARAMETERS"
    assert caught.value.what == f"this checkpoint was written with other parameters: {name}"


def test_sessions_without_early_results_are_another_state() -> None:
    plain = dataclasses.replace(HISTORIES[1], settings=HISTORIES[1].settings | {"early": "never"})
    with pytest.raises(StateFormatError) as caught:
        decode(
            plain.file.read_bytes(), session.STATE, plain.spec.identity, SHARDS, where="sessions"
        )
    assert caught.value.what.endswith("other parameters: early")
