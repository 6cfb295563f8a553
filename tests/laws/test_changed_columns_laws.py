"""Columns that a stream begins or ceases to have: null in stored rows, and otherwise as if they had been there before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import windows
from streamops.changes.core.latest import LatestCore
from streamops.kernel.values import comparable
from streamops.testing import Replay
from streamops.testing.laws import to_rows
from tests.laws.changes_strategies import VALUES, Case, histories
from tests.laws.test_changed_aggregates_laws import SCHEMA, batches
from tests.laws.test_changed_joins_laws import Shards, restart_with

pytestmark = pytest.mark.laws

Rows = list[dict[str, Any]]
NARROW = pa.schema([SCHEMA.field(name) for name in ("k", "v", "ts")])
WIDE = NARROW.insert(0, pa.field("a", pa.int64()))
BEHIND = {"before": windows.lag("v"), "change": windows.difference("v", 2)}
AROUND = {**BEHIND, "after": windows.lead("v"), "mean": windows.ewma("v", half_life="5 seconds")}


def results(found: Any, names: Sequence[str]) -> Counter[str]:
    return Counter(repr({name: row.get(name) for name in names}) for row in found.rows)


@pytest.mark.parametrize("is_added", [True, False])
@given(history=batches(), change=st.integers(1, 7))
def test_columns_of_rows_in_order_may_change(
    is_added: bool, history: list[Rows], change: int
) -> None:
    values = AROUND if is_added else BEHIND
    operator = windows.over(
        time="ts", values=values, within="10 seconds", by="k", tie_break="v", delay="5 seconds"
    )
    for number, batch in enumerate(history):
        for at, row in enumerate(batch):
            row["a"] = 10 * number + at if (number >= change) == is_added else None
    schemas = (NARROW, WIDE) if is_added else (WIDE, NARROW)
    query, reference = Replay(operator, schemas[0], shards=2), Replay(operator, WIDE, shards=2)
    names = [*WIDE.names, *values] if is_added else [*NARROW.names, *values]
    for number, batch in enumerate(history):
        if number == change:
            restart_with(query, (schemas[1],))
        current = schemas[number >= change].names
        rows = [{name: row[name] for name in current} for row in batch]
        wanted = [{name: row[name] for name in WIDE.names} for row in batch]
        for left, right in zip(reference.run([wanted]), query.run([rows]), strict=True):
            assert results(right, names) == results(left, names)
    assert results(query.flush(), names) == results(reference.flush(), names)


@given(case=histories(odd=1), seed=st.integers(0, 1 << 32))
def test_columns_of_a_table_may_change(case: Case, seed: int) -> None:
    dice, oracle, plans = Random(seed), case.oracle(), []
    for _ in range(2):
        without = set(dice.sample(VALUES, dice.randint(0, 3)))
        schema = pa.schema([field for field in case.spec.input if field.name not in without])
        plans.append((schema, case.spec.resolve((schema,), carried=(None,), shards=1)))
    now, shards = 0, Shards(LatestCore(), plans[0][1], shards=1)
    oracle.values = plans[0][1].values
    for number, batch in enumerate(case.batches):
        if number and dice.random() < 0.6 and shards.change(plans[1 - now][1]):
            now = 1 - now
            oracle.change(plans[now][1].values)
        schema = plans[now][0]
        rows = [{name: row[name] for name in schema.names} for row in to_rows(batch)]
        expected = oracle.step(rows)
        found = [
            row
            for row in shards.step([batch.select(schema.names)], None)
            if row["rejected"] is None
        ]
        names = [name for name in plans[now][1].output.names if name != "rejected"]
        wanted = Counter(comparable([row.get(name) for name in names]) for row in expected.emitted)
        assert Counter(comparable([row[name] for name in names]) for row in found) == wanted
