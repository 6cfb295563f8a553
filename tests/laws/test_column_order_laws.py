"""After a restart the columns of a frame may be in another order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.joins.core.enrich import EnrichSpec
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.tables_spec import TablesSpec
from streamops.joins.core.timeline import TimelineSpec
from streamops.kernel.core import State
from streamops.search.core.spec import MatchSpec
from streamops.testing.laws import to_rows
from streamops.testing.laws.cases import same_rows
from tests.laws import (
    compare_strategies,
    enrich_strategies,
    grid_strategies,
    interval_strategies,
    over_strategies,
    pattern_strategies,
    playing,
    resample_strategies,
    rolling_strategies,
    session_strategies,
    sliding_strategies,
    strategies,
    test_aggregate_laws,
    test_running_laws,
    test_search_as_of_laws,
    test_search_laws,
    test_tables_laws,
    test_timeline_laws,
)

pytestmark = pytest.mark.laws

HISTORIES: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "changes.aggregate": test_aggregate_laws.histories,
    "joins.interval": interval_strategies.histories,
    "joins.enrich": enrich_strategies.histories,
    "joins.tables, multiset": lambda: test_tables_laws.IN_ORDER.map(test_tables_laws.case_of),
    "joins.tables, versions": lambda: test_tables_laws.SEQUENCED.map(test_tables_laws.case_of),
    "joins.timeline": test_timeline_laws.cases,
    "search.match": test_search_laws.histories,
    "search.match, as of": test_search_as_of_laws.histories,
    "patterns.match": pattern_strategies.histories,
    "windows.running": test_running_laws.histories,
    "windows.calendar": grid_strategies.calendars,
    "windows.compare": compare_strategies.histories,
    "windows.grid": strategies.histories,
    "windows.over": lambda: over_strategies.histories(averaged=True),
    "windows.resample": resample_strategies.histories,
    "windows.rolling": rolling_strategies.histories,
    "windows.session": session_strategies.histories,
    "windows.sliding": sliding_strategies.histories,
}


def _shuffle(schema: pa.Schema, dice: random.Random) -> pa.Schema:
    return pa.schema(dice.sample(list(schema), k=len(schema)))


def reordered(spec: Any, dice: random.Random) -> Any:
    """The spec for a frame with its columns in another order."""

    def with_input(part: Any) -> Any:
        fields = list(part.input)
        return replace(part, input=pa.schema(dice.sample(fields, k=len(fields))))

    if isinstance(spec, TablesSpec):
        schemas = tuple(_shuffle(table.schema, dice) for table in spec.tables)
        resolved = spec.resolve(schemas, carried=(None, None), shards=1)
        return replace(resolved, remember_per_shard=spec.remember_per_shard)
    if isinstance(spec, TimelineSpec):
        return replace(spec, output=_shuffle(spec.output, dice))
    if isinstance(spec, EnrichSpec | MatchSpec):
        schemas = tuple(_shuffle(input_.schema, dice) for input_ in spec.inputs)
        resolved = spec.resolve(schemas, carried=(None, None), shards=1)
        return replace(resolved, limit=spec.limit)
    if hasattr(spec, "input"):
        return with_input(spec)
    if isinstance(spec, IntervalSpec):
        schemas = tuple(_shuffle(input_.schema, dice) for input_ in spec.inputs)
        return spec.resolve(schemas, carried=(None, None), shards=1)
    return replace(spec, left=with_input(spec.left), right=with_input(spec.right))


@pytest.mark.parametrize("histories", HISTORIES.values(), ids=HISTORIES)
@given(data=st.data())
def test_a_restart_with_columns_in_another_order_changes_nothing(
    histories: Callable[[], st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    case = data.draw(histories())
    dice, core, state = (
        random.Random(case.seed),
        case.core,
        State.empty(case.core.layout(case.spec)),
    )
    restarted = playing.restart(core, case.spec)
    watermarks = case.watermarks(case.batches)
    for batch, watermark, expected in zip(case.batches, watermarks, case.steps, strict=True):
        spec = reordered(case.spec, dice)
        assert spec.identity == case.spec.identity
        packed = replace(case, spec=spec).pack(batch)
        step = core.step(spec, restarted(state), packed, watermark)
        state = step.state
        core.check(spec, state)
        same_rows(to_rows(step.output), to_rows(expected.output), "in another order")
        assert step.metrics == expected.metrics
