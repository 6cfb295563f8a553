"""State of rolling aggregates that was written once is read for ever, or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops import aggregates as agg
from streamops.testing.laws import to_rows
from streamops.windows.core.rolling import RollingCore
from tests.golden.reading import Format, multiset
from tests.golden.rolling_states import HISTORIES, History
from tests.golden.states import NOW, SECOND, table

FORMAT = Format(RollingCore(), "windows.rolling")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    FORMAT.equals_its_history(history)


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: History,
) -> None:
    spec, state, oracle = history.spec, read(history), history.oracle()
    more = [
        ([(8, "JFK", float("nan"), 2, None, 15), (15, "EWR", 0.5, 1, None, 16)], 14),
        ([(9, "ä", None, 3, None, 17)], 20),
        ([], 100),
    ]
    published = 0
    for batch, second in more:
        watermark = NOW + second * SECOND
        packed = RollingCore().pack(spec, table(batch).select(spec.input.names))
        step = RollingCore().step(spec, state, [packed], watermark)
        expected = oracle.step(to_rows(table(batch).select(spec.input.names)), watermark)
        assert multiset(to_rows(step.output)) == multiset(expected.emitted)
        assert dataclasses.asdict(step.metrics) == expected.counts
        published += len(expected.emitted)
        state = step.state
    assert published > 5
    assert state.rows == 0


@every
def test_state_of_version_1_is_refused_by_another_version(history: History) -> None:
    FORMAT.refuses_another_version(history)


@every
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("every", {"every": "1 second"}),
        ("horizons", {"horizons": {"4s": "4 seconds"}}),
        ("by", {"by": ("origin",)}),
        ("agg", {"agg": {"m": agg.count()}}),
    ],
)
def test_state_is_refused_by_rolling_aggregates_with_another(
    name: str, settings: dict[str, Any], history: History
) -> None:
    other = dataclasses.replace(history, settings=history.settings | settings)
    error = refused(history, identity=other.spec.identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what == f"this checkpoint was written with other parameters: {name}"


@every
def test_another_delay_reads_the_same_state(history: History) -> None:
    other = dataclasses.replace(history, settings=history.settings | {"delay": "5 minutes"})
    assert read(history, identity=other.spec.identity).rows > 0
