"""Stored states of tracked clocks can be read, or are refused with instructions."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest

from streamops.testing.laws import to_rows
from streamops.time.core.track_clock import METHOD, OFFSET, TrackClockCore
from tests.golden.reading import Format, StoredState
from tests.golden.states import NOW, SECOND
from tests.golden.track_states import BATCHES, FILE, MORE, SPEC, state, table
from tests.oracles.tracking import TrackOracle

LAST = NOW + max(row[0] for row in BATCHES[-1]) * SECOND


FORMAT = Format(TrackClockCore(), "time.track_clock")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_the_stored_state_of_version_1_equals_the_state_of_its_history() -> None:
    found = FORMAT.equals_its_history(STORED)
    assert found.watermark == LAST
    assert min(map(len, found.tables.values())) >= 4


def test_a_stream_continues_from_state_of_version_1_like_the_oracle() -> None:
    oracle = TrackOracle(SPEC.by, SPEC.horizon, SPEC.step, SPEC.largest_offset)
    for rows in BATCHES:
        oracle.estimate(to_rows(table(rows)))
    now = read()
    for rows in MORE:
        step = TrackClockCore().step(SPEC, now, [TrackClockCore().pack(SPEC, table(rows))], None)
        now, out = step.state, step.output
        estimates = [(row[OFFSET], row[METHOD]) for row in to_rows(out)]
        assert estimates == oracle.estimate(to_rows(table(rows)))
    assert {how for _, how in estimates} == {"corrected"}  # a silence of more than an hour


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize(
    "changed",
    [
        {"horizon": 1},
        {"step": 1},
        {"largest_offset": None},
        {"by": ("device",)},
        {"sent": "sent_at"},
        {"received": "received_at"},
    ],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any]) -> None:
    error = refused(identity=dataclasses.replace(SPEC, **changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
