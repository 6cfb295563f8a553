"""State of functions per key, written once, is read for ever, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from streamops.kernel.core import State
from streamops.process.core.per_key import PerKeyCore
from streamops.testing.laws import to_rows
from tests.golden.per_key_states import BATCHES, EARLIER, FILE, MORE, SPEC, play, spec_of, state
from tests.golden.reading import Format, StoredState, multiset

FORMAT = Format(PerKeyCore(), "process.per_key")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    assert FORMAT.equals_its_history(STORED).rows == 9


def test_the_first_states_had_fewer_parameters() -> None:
    earlier = StoredState(EARLIER, SPEC, state)
    tables = FORMAT.read(earlier, adapt=lambda stored, tables: tables).tables
    assert {name: table.to_pylist() for name, table in tables.items()} == {
        name: table.to_pylist() for name, table in read().tables.items()
    }


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    whole = play(State.empty(PerKeyCore().layout(SPEC)), [*BATCHES, *MORE])[len(BATCHES) :]
    for one, other in zip(play(read(), MORE), whole, strict=True):
        assert multiset(to_rows(one.output)) == multiset(to_rows(other.output))
    assert sum(len(step.output) for step in whole) > 3


def test_a_field_can_be_added_to_state_of_version_1() -> None:
    wider = spec_of(state={"n": "int", "extra": "string", "values": "array<bigint>"})
    known = {"identity": wider.identity, "adapt": lambda stored, tables: tables}
    found = play(State(state().watermark, read(**known).tables), MORE, wider)
    assert [len(step.output) for step in found] == [len(step.output) for step in play(read(), MORE)]


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize("changed", [{"by": ["k", "v"]}, {"order_by": "v"}], ids=repr)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any]) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
