"""State of comparisons that was written once is read for ever, or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops.testing.laws import to_rows
from streamops.windows.core.compare import CompareCore
from tests.golden.compare_states import HISTORIES, History
from tests.golden.reading import Format, multiset
from tests.golden.states import AUTUMN, HOUR

FORMAT = Format(CompareCore(), "windows.compare")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    found = FORMAT.equals_its_history(history)
    assert min(map(len, found.tables.values())) > 2


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: History,
) -> None:
    spec, state, oracle = history.spec, read(history), history.oracle()
    hours = sorted(row[0] for batch, _ in history.batches for row in batch)
    more: list[tuple[list[tuple[Any, ...]], int]] = [
        ([(hours[-1] + 2, "EWR", 0.5, 9, None, 0, "insert")], hours[-1] + 2),
        ([(hours[-1] + 5, "ä", None, 3, None, 0, "insert")], hours[-1] + 4),
        ([], 200),
    ]
    published = 0
    for batch, hour in more:
        watermark = AUTUMN + hour * HOUR
        rows = history.table(batch)
        step = CompareCore().step(spec, state, [CompareCore().pack(spec, rows)], watermark)
        expected = oracle.step(to_rows(rows), watermark)
        assert multiset(to_rows(step.output)) == multiset(expected.emitted)
        assert dataclasses.asdict(step.metrics) == expected.counts
        published += len(expected.emitted)
        state = step.state
    assert published >= 3
    assert state.rows == 0


@every
def test_state_of_version_1_is_refused_by_another_version(history: History) -> None:
    FORMAT.refuses_another_version(history)


@every
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("period", {"period": "3 hours", "zone": None}),
        ("periods", {"periods": 4}),
        ("values", {"values": ("n",)}),
        ("by", {"by": ("origin",)}),
        ("allowed_lateness", {"allowed_lateness": "7 seconds"}),
        ("too_late", {"stragglers": "retract", "too_late": "route"}),
    ],
)
def test_other_parameters_are_refused_by_name(
    history: History, name: str, changed: dict[str, Any]
) -> None:
    other = dataclasses.replace(history, settings=history.settings | changed)
    error = refused(history, identity=other.spec.identity)
    assert error.code == "STATE_PARAMETERS"
    assert name in error.what


@every
def test_another_delay_reads_the_same_state(history: History) -> None:
    other = dataclasses.replace(history, settings=history.settings | {"delay": "5 minutes"})
    assert read(history, identity=other.spec.identity).rows > 0
