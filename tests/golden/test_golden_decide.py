"""State of commands to events, written once, is read for ever, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from streamops.kernel.core import State
from streamops.process.core.per_key import PerKeyCore
from streamops.testing.laws import to_rows
from tests.golden.decide_states import BATCHES, FILE, MORE, SPEC, empty, play, spec_of, state
from tests.golden.per_key_states import spec_of as spec_of_a_function
from tests.golden.reading import Format, StoredState, multiset

FORMAT = Format(PerKeyCore(), "sourcing.decide")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found, now = read(), state()
    PerKeyCore().check(SPEC, found)
    assert {name: len(table) for name, table in found.tables.items()} == {
        "keys": 3,
        "timers": 0,
        "rows": 15,
    }
    for name, table in found.tables.items():
        assert table.schema == now.tables[name].schema
        assert multiset(to_rows(table)) == multiset(to_rows(now.tables[name]))
    keys = found.tables["keys"].to_pylist()
    assert {row["key.0"]: row["state.version"] for row in keys} == {"a": 4, "b": 4, "c": 6}
    assert all(row["state.command_ids"] for row in keys)


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    whole = play(empty(), [*BATCHES, *MORE])[len(BATCHES) :]
    found = play(read(), MORE, first=len(BATCHES))
    for one, other in zip(found, whole, strict=True):
        assert multiset(to_rows(one.output)) == multiset(to_rows(other.output))
        assert one.metrics == other.metrics
    versions = {row["version"] for step in whole for row in to_rows(step.output)}
    assert max(versions) > 6  # the versions of the stored entities go on


def test_a_command_of_the_stored_state_is_not_applied_again() -> None:
    (stored,) = (row for row in read().tables["keys"].to_pylist() if row["key.0"] == "c")
    again = [
        {**row, "ts": MORE[0][0]["ts"]} for batch in BATCHES for row in batch if row["k"] == "c"
    ]
    decided = [row for row in again if str(row["id"]) in stored["state.command_ids"]]
    assert decided
    (step,) = play(read(), [decided], first=len(BATCHES))
    names = {row["command_id"] for row in to_rows(step.output) if row["k"] == "c"}
    assert not names & set(stored["state.command_ids"])


def test_a_field_can_be_added_to_state_of_version_1() -> None:
    wider = spec_of(state="holder string, note string")
    found = play(
        State(
            state().watermark,
            read(identity=wider.identity, adapt=lambda stored, tables: tables).tables,
        ),
        MORE,
        first=len(BATCHES),
        spec=wider,
    )
    expected = play(read(), MORE, first=len(BATCHES))
    assert [len(step.output) for step in found] == [len(step.output) for step in expected]


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"by": "seen", "expected_version": None}, ["by"]),
        ({"command_id": "seen", "expected_version": None}, ["order_by"]),
    ],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any], names: list[str]) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert all(name in error.what for name in names)


def test_state_of_another_operator_on_the_same_core_is_refused() -> None:
    error = refused(identity=spec_of_a_function().identity)
    assert error.code == "STATE_PARAMETERS"
    assert "operator" in error.what
