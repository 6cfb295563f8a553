"""State that was written once is read for ever, or refused with instructions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops import aggregates as agg
from streamops.kernel.core import StateFormat
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from tests.golden.reading import Format, multiset
from tests.golden.states import HISTORIES, History

FORMAT = Format(GridCore(), "windows.hopping")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


def changed(history: History, **settings: Any) -> Any:
    """The identity of the same windows with other settings."""
    other = dataclasses.replace(history, settings=history.settings | settings)
    return other.spec.identity


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
    for batch, pace in more:
        rows, watermark = history.table(batch), history.at(pace)
        step = GridCore().step(spec, state, [GridCore().pack(spec, rows)], watermark)
        expected = oracle.step(to_rows(rows), watermark)
        assert multiset(to_rows(step.output)) == multiset(expected.emitted)
        assert dataclasses.asdict(step.metrics) == expected.counts
        published += len(expected.emitted)
        state = step.state
    assert published > 5
    assert state.rows == 0


@every
def test_state_of_version_1_is_refused_by_another_version(history: History) -> None:
    error = refused(history, layout=StateFormat("windows.grid", 2))
    assert error.code == "STATE_VERSION"
    frame = int.from_bytes(history.file.read_bytes()[4:6], "little")
    assert error.got == f"frame {frame}, windows.grid version 1"
    assert error.expected == f"frame {frame}, windows.grid version 2"
    assert "docs/state-formats.md" in error.fix


@every
def test_state_of_windows_is_refused_by_another_operator(history: History) -> None:
    error = refused(history, layout=StateFormat("windows.session", 1))
    assert (error.code, error.got, error.expected) == (
        "STATE_KIND",
        "windows.grid",
        "windows.session",
    )


@every
def test_state_is_refused_by_another_number_of_shards(history: History) -> None:
    error = refused(history, shards=8)
    assert error.code == "STATE_SHARDS"
    assert error.fix == (
        "pass shards=16; or stop the query, and run python -m streamops state rescale CHECKPOINT "
        "--to NEW --shards 8"
    )


GRIDS = {
    "hopping": [
        ("size", {"size": "20 seconds"}),
        ("hop", {"hop": "2500 milliseconds"}),
        ("origin", {"origin": "2 seconds"}),
    ],
    "calendar": [
        ("unit", {"unit": "month"}),
        ("unit", {"unit": "week"}),
        ("zone", {"zone": "America/Toronto"}),
    ],
    "cumulative": [
        ("every", {"every": "4 hours"}),
        ("size", {"size": "month"}),
        ("zone", {"zone": "UTC"}),
        ("size, zone", {"size": "1 day", "zone": None}),
    ],
}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("by", {"by": ("origin",)}),
    ("agg", {"agg": {"n": agg.count()}}),
    ("allowed_lateness", {"allowed_lateness": "21 seconds"}),
    ("stragglers", {"stragglers": "route"}),
]


@pytest.mark.parametrize(
    ("history", "name", "settings"),
    [
        pytest.param(history, *other, id=f"{history.name}-{other[0]}")
        for history in HISTORIES
        for other in (*GRIDS[history.operator], *OTHERS)
    ],
)
def test_state_is_refused_by_windows_with_another(
    history: History, name: str, settings: dict[str, Any]
) -> None:
    error = refused(history, identity=changed(history, **settings))
    assert error.code == "STATE_PARAMETERS"
    assert error.what == f"this checkpoint was written with other parameters: {name}"


@every
def test_windows_that_are_filled_otherwise_are_another_state(history: History) -> None:
    long = {"hopping": "1 hour", "calendar": "2 days", "cumulative": "9 hours"}
    others: list[dict[str, Any]] = [{"empty_for": long[history.operator]}]
    if history.spec.empty_for is not None:
        others = [{"empty_for": "10 seconds"}, {"empty_for": None}]
    for other in others:
        error = refused(history, identity=changed(history, **other))
        assert error.what == "this checkpoint was written with other parameters: empty_for"


@every
def test_windows_that_come_early_are_another_state(history: History) -> None:
    other = "never" if history.spec.is_early else "every batch"
    error = refused(history, identity=changed(history, early=other))
    assert error.what == "this checkpoint was written with other parameters: early"


@every
def test_another_delay_reads_the_same_state(history: History) -> None:
    identity = changed(history, delay="5 minutes")
    assert read(history, identity=identity).rows > 0


@pytest.mark.thorough
@every
def test_state_that_is_damaged_is_refused(history: History) -> None:
    frame = history.file.read_bytes()
    for position in range(0, len(frame), max(97, len(frame) // 40)):
        damaged = bytearray(frame)
        damaged[position] ^= 0x10
        error = refused(history, bytes(damaged))
        assert error.code == "STATE_CORRUPT"
        assert ("not a state" if position < 4 else "is damaged") in error.what
        if position:
            assert refused(history, frame[:position]).code == "STATE_CORRUPT"
