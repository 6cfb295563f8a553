"""State of rows in the order of event time that was written once is read for ever, or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops import windows
from streamops.kernel.columns import concat, filter_rows, timestamp_micros
from streamops.kernel.core import State
from streamops.kernel.time import BEFORE_ALL
from streamops.testing.laws import to_rows
from tests.golden.ordered_states import BATCHES, EARLIER, HISTORIES, History
from tests.golden.reading import Format, multiset
from tests.golden.states import NOW, SECOND, table


def reader(history: History) -> Format:
    """The format of its state."""
    return Format(history.core, f"windows.{history.make.__name__}")


every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)

MORE = [
    ([(8, "JFK", float("nan"), 2, None, 15), (15, "EWR", 0.5, 1, None, 16)], 14),
    ([(17, "ä", None, 3, None, 17), (16, "JFK", None, 3, None, 18)], 20),
    ([], 100),
]


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    reader(history).equals_its_history(history)


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: History,
) -> None:
    """The rows after the history, and those of the history that waited, are those of a batch."""
    spec, core, outputs, accepted = history.spec, history.core, [], []
    state = State.empty(core.layout(spec))
    later = [(batch, NOW + second * SECOND) for batch, second in MORE]
    for number, (batch, watermark) in enumerate([*BATCHES, *later]):
        if number == len(BATCHES):
            state = reader(history).read(history)
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
    reader(history).refuses_another_version(history)


OTHERS: dict[str, dict[str, dict[str, Any]]] = {
    "over": {
        "values": {"values": EARLIER | {"other": windows.lag("seq")}},
        "within": {"within": "5 seconds"},
    },
    "resample": {
        "values": {"values": {"gate": "null"}},
        "max_gap": {"max_gap": "9 seconds"},
        "every": {"every": "1 second"},
    },
}
ANY: dict[str, dict[str, Any]] = {"by": {"by": ()}, "tie_break": {"tie_break": ()}}


@pytest.mark.parametrize(
    ("history", "name", "settings"),
    [
        pytest.param(history, name, settings, id=f"{history.name}-{name}")
        for history in HISTORIES
        for name, settings in (ANY | OTHERS[history.make.__name__]).items()
    ],
)
def test_state_is_refused_by_an_operator_with_another(
    history: History, name: str, settings: dict[str, Any]
) -> None:
    other = dataclasses.replace(history, settings=history.settings | settings)
    error = reader(history).refused(history, identity=other.spec.identity)
    assert error.code == "STATE_PARAMETERS"
    what, _, names = error.what.partition(": ")
    assert what == "this checkpoint was written with other parameters"
    assert name in names.split(", ")


@every
def test_another_delay_and_routed_rows_read_the_same_state(history: History) -> None:
    settings = history.settings | {"delay": "5 minutes", "stragglers": "route"}
    other = dataclasses.replace(history, settings=settings)
    assert reader(history).read(history, identity=other.spec.identity).rows > 0
