"""State of interval joins that was written once is read for ever, or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops.joins.core.interval import IntervalCore
from streamops.testing.laws import to_rows
from streamops.testing.laws.cases import same_rows
from tests.golden.interval_states import HISTORIES, History, stepped, tables
from tests.golden.reading import Format
from tests.golden.states import NOW, SECOND

FORMAT = Format(IntervalCore(), "joins.interval")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


@every
def test_stored_state_is_the_state_after_its_history(history: History) -> None:
    FORMAT.equals_its_history(history)  # in the order of today's hash, too


@every
def test_a_stream_continues_from_stored_state(
    history: History,
) -> None:
    spec, state, oracle = history.spec, read(history), history.oracle()
    more = [
        ([(10, "JFK", 1.0)], [(7, "JFK", 1.0, 17), (9, "LGA", 2.5, 18), (7, "EWR", 0.0, 19)], 9),
        ([(11, "SFO", 1.0)], [], 30),
        ([], [], 100),
    ]
    published = 0
    for left, right, second in more:
        watermark = NOW + second * SECOND
        step = stepped(spec, state, left, right, watermark)
        expected = oracle.step(*map(to_rows, tables(left, right)), watermark)
        same_rows(to_rows(step.output), expected.emitted, "emitted, and the oracle")
        assert dataclasses.asdict(step.metrics) == expected.counts
        published += len(expected.emitted)
        state = step.state
    assert published > 0
    assert state.rows == 0


@every
def test_stored_state_is_refused_by_another_version(history: History) -> None:
    FORMAT.refuses_another_version(history)


@every
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("upper", {"bounds": ("-1 second", "7 seconds")}),
        ("by", {"by": {"origin": "airport"}}),
        ("how", {"how": "right", "matches": "every", "tie_break": None}),
        ("allowed_lateness", {"allowed_lateness": "21 seconds"}),
        ("stragglers", {"stragglers": "route", "too_late": "drop"}),
    ],
)
def test_state_is_refused_by_interval_joins_with_another(
    name: str, settings: dict[str, Any], history: History
) -> None:
    other = dataclasses.replace(history, settings=history.settings | settings)
    error = refused(history, identity=other.spec.identity)
    assert error.code == "STATE_PARAMETERS"
    assert name in error.what.partition(": ")[2].split(", ")


@every
def test_another_delay_and_another_status_column_read_the_same_state(history: History) -> None:
    other = dataclasses.replace(history, settings=history.settings | {"delay": "5 minutes"})
    assert read(history, identity=other.spec.identity).rows > 0
    renamed = dataclasses.replace(history.spec, into="match")
    assert renamed.identity == history.spec.identity
