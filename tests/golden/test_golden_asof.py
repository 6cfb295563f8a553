"""Stored states of as-of joins are read by later versions, or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from streamops.joins.core.asof import AsofCore
from streamops.testing.laws import to_rows
from tests.golden.asof_states import HISTORIES, History
from tests.golden.reading import Format, multiset
from tests.joins.core.asof_play import SECOND, bound_to, packed

FORMAT = Format(AsofCore(), "joins.asof")
read, refused = FORMAT.read, FORMAT.refused
every = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


@every
def test_state_of_version_1_is_the_state_that_its_history_leaves(history: History) -> None:
    FORMAT.equals_its_history(history)


@every
def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened(
    history: History,
) -> None:
    spec, state, oracle = history.spec, read(history), history.oracle()
    value = "insert" if spec.changes else None
    more: list[tuple[Any, Any, int]] = [
        ([("b", 60, 1), ("a", 28, 2)], [("b", 35, 1, "late", value)], 45),
        ([("b", 45.5, 1)], [("b", 55, 1, "new", value), ("a", 26, 1, "old", value)], 60),
        ([], [], 10_000),
    ]
    published = 0
    for facts, versions, second in more:
        left, right = packed(spec, facts, versions)
        step = AsofCore().step(spec, state, [left, right], second * SECOND)
        expected = oracle.step(to_rows(left), to_rows(right), second * SECOND)
        assert multiset(to_rows(step.output)) == multiset(expected.emitted)
        assert dataclasses.asdict(step.metrics) == expected.counts
        published += len(expected.emitted)
        state = step.state
    assert published >= 5
    assert not len(state.tables["facts"])


@every
def test_state_of_version_1_is_refused_by_another_version(history: History) -> None:
    FORMAT.refuses_another_version(history)


@every
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tolerance", {"tolerance": "2 hours"}),
        ("allowed_lateness", {"allowed_lateness": "21 seconds"}),
        ("stragglers", {"stragglers": "route"}),
        ("allow_exact", {"allow_exact": None}),
    ],
)
def test_state_is_refused_by_an_asof_join_with_another(
    name: str, settings: dict[str, Any], history: History
) -> None:
    if name == "allow_exact":
        settings = {name: not history.spec.allow_exact}
    other = dataclasses.replace(history, settings=history.settings | settings)
    error = refused(history, identity=other.spec.identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what == f"this checkpoint was written with other parameters: {name}"


@every
def test_columns_of_facts_and_versions_belong_to_the_state(history: History) -> None:
    other = dataclasses.replace(history, extra=(*history.extra, "gone"))
    assert refused(history, identity=other.spec.identity).what.endswith("parameters: table")


@every
def test_the_order_of_the_columns_does_not_belong_to_the_state(history: History) -> None:
    spec = history.spec
    turned = (pa.schema(list(schema)[::-1]) for schema in (spec.facts, spec.table))
    other = bound_to(*turned, **history.settings)
    assert read(history, identity=other.identity).rows > 0
    assert AsofCore().layout(other) == AsofCore().layout(spec)


@every
def test_another_delay_reads_the_same_state(history: History) -> None:
    arguments = {"delay": "5 minutes", "waits_for": "facts"}
    other = dataclasses.replace(history, settings=history.settings | arguments)
    assert read(history, identity=other.spec.identity).rows > 0
