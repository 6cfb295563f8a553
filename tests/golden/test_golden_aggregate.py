"""Stored state of ``changes.aggregate`` is read, or refused with instructions."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops.changes.core.aggregate import AggregateCore
from streamops.testing.laws import to_rows
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
from tests.golden.reading import Format, StoredState, multiset

FORMAT = Format(AggregateCore(), "changes.aggregate")
every = pytest.mark.parametrize("history", HISTORIES)


def written(history: str) -> StoredState:
    return StoredState(file_of(history), spec_of(history), lambda: state(history))


@every
def test_state_of_version_1_equals_the_state_of_its_history(history: str) -> None:
    found = FORMAT.equals_its_history(written(history))
    for name, rows_ in found.tables.items():
        assert len(rows_) == (
            5 if name == "rows" else 4
        )  # "b" has more deletes than inserts, "c" has no rows


@every
def test_a_stream_continues_from_state_of_version_1(
    history: str,
) -> None:
    oracle, now, spec = oracle_of(history), FORMAT.read(written(history)), spec_of(history)
    for rows in BATCHES:
        oracle.step(to_rows(table(rows)))
    for rows in MORE:
        step = AggregateCore().step(spec, now, [AggregateCore().pack(spec, table(rows))])
        now = step.state
        expected = oracle.step(to_rows(table(rows))).emitted
        assert expected
        assert multiset(to_rows(step.output)) == multiset(expected)


@every
def test_state_of_version_1_is_refused_by_another_version(history: str) -> None:
    FORMAT.refuses_another_version(written(history))


@every
@pytest.mark.parametrize("changed", [{"by": ("page",)}, {"agg": {"rows": agg.count()}}], ids=repr)
def test_other_parameters_are_refused_by_name(history: str, changed: dict[str, Any]) -> None:
    error = FORMAT.refused(written(history), identity=spec_of(history, **changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
