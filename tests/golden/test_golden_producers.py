"""Stored states of producers can be read, or are refused with instructions."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from streamops.kernel.codec import decode
from streamops.kernel.core import State
from streamops.kernel.errors import StateFormatError, located
from streamops.testing.laws import to_rows
from streamops.time.core.producers import ProducersCore
from tests.golden.producer_states import FILE, NOW, SECOND, SPEC, state
from tests.golden.reading import multiset


def test_the_stored_state_of_version_1_equals_the_state_of_its_history() -> None:
    found = decode(FILE.read_bytes(), ProducersCore.STATE, SPEC.identity, 1)["producers"]
    now = state()
    assert found.schema == now.tables["producers"].schema
    assert multiset(to_rows(found)) == multiset(to_rows(now.tables["producers"]))
    assert len(found) == 6  # one is expected and has no row, so there is no clock
    ProducersCore().check(SPEC, State(now.watermark, {"producers": found}))


def test_a_stream_continues_from_the_stored_state() -> None:
    found = decode(FILE.read_bytes(), ProducersCore.STATE, SPEC.identity, 1)
    columns = [["new"], [NOW + 90 * SECOND], [NOW + 110 * SECOND]]
    rows = pa.table(columns, names=SPEC.input.names).cast(SPEC.input)
    step = ProducersCore().step(
        SPEC, State(state().watermark, found), [ProducersCore().pack(SPEC, rows)], None
    )
    metrics = step.metrics
    assert (metrics.active, metrics.joined, metrics.forgotten) == (4, 1, 3)
    assert (metrics.clock, metrics.held_by) == (NOW - 600 * SECOND, "late")


def test_the_stored_state_is_refused_for_another_producer_column() -> None:
    other = dataclasses.replace(SPEC, producer="server", producer_type=pa.int64())
    with pytest.raises(StateFormatError) as caught, located("time.producers"):
        decode(FILE.read_bytes(), ProducersCore.STATE, other.identity, 1)
    assert str(caught.value) == (
        "[STATE_PARAMETERS] time.producers: this checkpoint was written with other parameters: "
        "producer\n"
        "  got:       producer=['server', 'int64']\n"
        "  expected:  producer=['device', 'string'], as written\n"
        "  fix:       pass the parameters of the checkpoint, or fill a new version of the job from history: producer needs the event times of earlier rows"
        "\n  see:       docs/errors.md#state_parameters"
    )
