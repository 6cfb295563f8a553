"""State of aggregates over changes, written once, is read for ever, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops.changes.core import aggregate
from streamops.kernel.codec import decode
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.testing.laws import rows_of
from tests.golden.aggregate_states import (
    BATCHES,
    HISTORIES,
    MORE,
    file_of,
    oracle_of,
    spec_of,
    state,
    table,
)
from tests.golden.states import SHARDS
from tests.golden.test_golden_states import bag

every = pytest.mark.parametrize("history", HISTORIES)


def read(history: str, **known: Any) -> State:
    said = {"layout": aggregate.STATE, "identity": spec_of(history).identity, "shards": SHARDS}
    found = decode(file_of(history).read_bytes(), **(said | known), where="changes.aggregate")
    return State(None, found)


def refused(history: str, **known: Any) -> StateFormatError:
    with pytest.raises(StateFormatError) as caught:
        read(history, **known)
    return caught.value


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: str) -> None:
    found, now = read(history), state(history)
    assert found.tables.keys() == now.tables.keys()
    for name, kept in found.tables.items():
        assert len(kept) == (5 if name == "rows" else 4)  # "b" has a debt, "c" is gone
        assert kept.schema == now.tables[name].schema
        assert bag(rows_of(kept)) == bag(rows_of(now.tables[name]))
    aggregate.check(spec_of(history), found)


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: str,
) -> None:
    oracle, now, spec = oracle_of(history), read(history), spec_of(history)
    for rows in BATCHES:
        oracle.step(rows_of(table(rows)))
    for rows in MORE:
        step = aggregate.step(spec, now, aggregate.pack(spec, table(rows)), None)
        now = step.state
        expected = oracle.step(rows_of(table(rows))).emitted
        assert expected
        assert bag(rows_of(step.emitted)) == bag(expected)


@every
def test_state_of_version_1_is_refused_by_another_version(history: str) -> None:
    error = refused(history, layout=StateFormat("changes.aggregate", 2))
    assert (error.code, error.got) == ("STATE_VERSION", "frame 1, changes.aggregate version 1")


@every
@pytest.mark.parametrize("changed", [{"by": ("page",)}, {"agg": {"rows": agg.count()}}], ids=repr)
def test_other_parameters_are_refused_by_name(history: str, changed: dict[str, Any]) -> None:
    error = refused(history, identity=spec_of(history, **changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
