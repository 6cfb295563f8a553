"""State of sessions that was written once is read for ever, or refused with instructions."""

from __future__ import annotations

import dataclasses

import pytest

from streamops.testing.laws import to_rows
from streamops.windows.core.session import SessionCore
from tests.golden.reading import Format, multiset
from tests.golden.session_states import HISTORIES, NOW, SECOND, History

FORMAT = Format(SessionCore(), "windows.session")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    found = FORMAT.equals_its_history(history)
    assert found.watermark == NOW + 24 * SECOND


@every
def test_a_stream_goes_on_from_it(history: History) -> None:
    spec = history.spec
    found, now = (SessionCore().finish(spec, state) for state in (read(history), history.state()))
    assert multiset(to_rows(found)) == multiset(to_rows(now))
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
    error = refused(history, identity=history.spec.identity | {name: value})
    assert error.code == "STATE_PARAMETERS"
    assert error.what == f"this checkpoint was written with other parameters: {name}"


def test_sessions_without_early_results_are_another_state() -> None:
    plain = dataclasses.replace(HISTORIES[1], settings=HISTORIES[1].settings | {"early": "never"})
    assert refused(plain).what.endswith("other parameters: early")
