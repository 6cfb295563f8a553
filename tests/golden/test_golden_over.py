"""State of functions of other rows that was written once is read for ever, or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops import windows
from streamops.kernel.columns import concat, filter_rows, timestamp_micros
from streamops.kernel.core import State
from streamops.kernel.time import BEFORE_ALL
from streamops.testing.laws import to_rows
from streamops.windows.core.over import OverCore
from tests.golden.over_states import BATCHES, EARLIER, HISTORIES, History
from tests.golden.reading import Format, multiset
from tests.golden.states import NOW, SECOND, table

FORMAT = Format(OverCore(), "windows.over")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)

MORE = [
    ([(8, "JFK", float("nan"), 2, None, 15), (15, "EWR", 0.5, 1, None, 16)], 14),
    ([(17, "ä", None, 3, None, 17), (16, "JFK", None, 3, None, 18)], 20),
    ([], 100),
]


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    FORMAT.equals_its_history(history)


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: History,
) -> None:
    """The rows after the history, and those of the history that waited, are those of a batch."""
    spec, core, outputs, accepted = history.spec, OverCore(), [], []
    state = State.empty(core.layout(spec))
    later = [(batch, NOW + second * SECOND) for batch, second in MORE]
    for number, (batch, watermark) in enumerate([*BATCHES, *later]):
        if number == len(BATCHES):
            state = read(history)
        rows = table(batch)
        times = timestamp_micros(rows.column("ts"))[0]
        late_by = BEFORE_ALL if state.watermark is None else state.watermark
        accepted.append(filter_rows(rows, times > late_by))
        step = core.step(spec, state, [core.pack(spec, rows)], watermark)
        state = step.state
        outputs.append(step.output)
    expected = to_rows(core.run(spec, [core.pack(spec, concat(accepted))]).output)
    assert multiset(to_rows(concat(outputs))) == multiset(expected)
    assert len(expected) > 10
    assert state.rows == 0


@every
def test_state_of_version_1_is_refused_by_another_version(history: History) -> None:
    FORMAT.refuses_another_version(history)


@every
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("by", {"by": ("gate",)}),
        ("tie_break", {"tie_break": ()}),
        ("values", {"values": EARLIER | {"other": windows.lag("seq")}}),
        ("within", {"within": "5 seconds"}),
    ],
)
def test_state_is_refused_by_functions_with_another(
    name: str, settings: dict[str, Any], history: History
) -> None:
    other = dataclasses.replace(history, settings=history.settings | settings)
    error = refused(history, identity=other.spec.identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what == f"this checkpoint was written with other parameters: {name}"


@every
def test_another_delay_and_routed_rows_read_the_same_state(history: History) -> None:
    settings = history.settings | {"delay": "5 minutes", "stragglers": "route"}
    other = dataclasses.replace(history, settings=settings)
    assert read(history, identity=other.spec.identity).rows > 0
