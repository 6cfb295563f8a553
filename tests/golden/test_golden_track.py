"""State of clocks that are followed, written once, is read for ever, or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamops.kernel.codec import decode
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.testing.laws import rows_of
from streamops.time.core import tracking
from streamops.time.core.tracking import HOW, OFFSET
from tests.golden.states import NOW, SECOND, SHARDS
from tests.golden.test_golden_states import bag
from tests.golden.track_states import BATCHES, FILE, MORE, SPEC, state, table
from tests.oracles.tracking import TrackOracle

LAST = NOW + max(row[0] for row in BATCHES[-1]) * SECOND


def read(**known: Any) -> State:
    said = {"layout": tracking.STATE, "identity": SPEC.identity, "shards": SHARDS} | known
    return State(LAST, decode(FILE.read_bytes(), **said, where="time.track_clock"))


def refused(**known: Any) -> StateFormatError:
    with pytest.raises(StateFormatError) as caught:
        read(**known)
    return caught.value


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found, now = read(), state()
    assert (found.tables.keys(), found.watermark) == (now.tables.keys(), now.watermark)
    for name, kept in found.tables.items():
        assert len(kept) >= 4
        assert kept.schema == now.tables[name].schema
        assert bag(rows_of(kept)) == bag(rows_of(now.tables[name]))
    tracking.check(SPEC, found)


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    oracle = TrackOracle(SPEC.by, SPEC.horizon, SPEC.step, SPEC.largest_offset)
    for rows in BATCHES:
        oracle.judge(rows_of(table(rows)))
    now = read()
    for rows in MORE:
        now, out = tracking.step(SPEC, now, tracking.pack(SPEC, table(rows)))
        said = [(row[OFFSET], row[HOW]) for row in rows_of(out)]
        assert said == oracle.judge(rows_of(table(rows)))
    assert {how for _, how in said} == {"corrected"}  # a silence of more than an hour


def test_state_of_version_1_is_refused_by_another_version() -> None:
    error = refused(layout=StateFormat("time.track_clock", 2))
    assert (error.code, error.got) == ("STATE_VERSION", "frame 1, time.track_clock version 1")


@pytest.mark.parametrize(
    "changed",
    [
        {"horizon": 1},
        {"step": 1},
        {"largest_offset": None},
        {"by": ("device",)},
        {"sent": "received"},
        {"received": "sent"},
    ],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any]) -> None:
    error = refused(identity=dataclasses.replace(SPEC, **changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
