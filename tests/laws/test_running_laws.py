"""Running aggregates keep every law of a core."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.columns import concat
from streamops.testing import laws
from streamops.testing.laws import to_rows
from streamops.windows.core.running import RunningCore
from tests.oracles.running import RunningOracle
from tests.oracles.windows import Row, value_of
from tests.sketches.linear import count_items

pytestmark = pytest.mark.laws

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("word", pa.string()),
        ("number", pa.float64()),
        ("n", pa.int64()),
    ]
)
TEXTS, NUMBERS = ["a", "b", None], [0.0, -0.0, float("nan"), 1.5, None]


def items(rows: list[Row]) -> dict[str, int]:
    number = len([row for row in rows if row["n"] is not None])
    return dict.fromkeys(("estimate", "lower", "upper"), number)


def exact(aggregate: Any) -> tuple[Aggregation, Callable[[list[Row]], Any]]:
    return aggregate, lambda rows: value_of(aggregate, rows, "ts")


ANSWERS: dict[str, tuple[Aggregation, Callable[[list[Row]], Any]]] = {
    "items": (count_items("n"), items),
    "rows": exact(agg.count()),
    "values": exact(agg.count("number")),
    "sum": exact(agg.sum("n")),
    "mean": exact(agg.mean("n")),
    "least": exact(agg.min("number")),
    "greatest": exact(agg.max("n")),
    "distinct": exact(agg.count_distinct("number", at_most=3, when_full="null")),
    "quantiles": exact(agg.percentile("n", [0.3, 1], at_most=9, when_full="null")),
    "top": exact(agg.top(2, "word", ranked_by="n", tie_break="word")),
}
"""Aggregates by name, with a function that computes the same over all rows of a key."""


@st.composite
def histories(draw: st.DrawFn) -> laws.Case:
    """Few keys, many rows that change no value, micro-batches without rows."""
    by = draw(st.sampled_from([(), ("word",), ("number",), ("word", "number")]))
    names = draw(st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=4, unique=True))
    changes = draw(st.sampled_from(["update", "retract"]))
    dice = random.Random(draw(st.integers(0, 2**16)))
    batches = []
    for size in draw(st.lists(st.sampled_from([0, 1, 3, 8]), max_size=6)):
        columns = [
            pa.array([dice.randrange(10**9) for _ in range(size)]).cast(SCHEMA[0].type),
            pa.array(dice.choices(TEXTS, k=size), pa.string()),
            pa.array(dice.choices(NUMBERS, k=size), pa.float64()),
            pa.array(dice.choices([None, None, 1, 2, 3, 9], k=size), pa.int64()),
        ]
        batches.append(pa.table(columns, schema=SCHEMA))
    requested = {name: ANSWERS[name][0] for name in names}
    operator = windows.running(by=by, agg=requested, changes=changes, max_keys=1_000)
    spec = operator.parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    oracle = RunningOracle(by, {name: ANSWERS[name][1] for name in names}, changes)

    def accepted(arrivals: Sequence[laws.Arrival]) -> list[Row]:
        everything = concat([batch for (batch,), _ in arrivals])
        return oracle.fresh().step(to_rows(everything), None).emitted

    none = [] if batches else [SCHEMA.empty_table()]
    return laws.Case(
        core=RunningCore(),
        spec=spec,
        batches=tuple((batch,) for batch in [*batches, *none]),
        key=by,
        oracle=oracle.fresh,
        accepted=accepted,
        seed=draw(st.integers(0, 2**16)),
    )


@given(case=histories())
def test_running_aggregates_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case)
