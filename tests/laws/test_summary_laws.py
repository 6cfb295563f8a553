"""Every aggregate keeps every law of a summary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.groups import Groups
from streamops.testing import laws
from tests.aggregates.own import GeometricMean, Histogram
from tests.aggregates.samples import (
    COMPARABLE,
    DECIMALS,
    FLOATS,
    INTEGERS,
    ORDERED,
    SCHEMA,
    TYPES,
    VALUES,
    bind,
)

pytestmark = pytest.mark.laws

EXACT = [
    agg.count(),
    *(agg.count(name) for name in TYPES),
    *(agg.sum(name) for name in [*INTEGERS, *FLOATS, *DECIMALS, "span"]),
    *(agg.mean(name) for name in [*INTEGERS, *FLOATS, "money"]),
    *(function(name) for name in ORDERED for function in (agg.min, agg.max)),
    *(f(name, tie_break="seq") for name in TYPES for f in (agg.first, agg.last)),
    *(agg.count_distinct(name, at_most=2, when_full="null") for name in COMPARABLE),
    *(
        agg.percentile(name, [0.3, 1], at_most=4, when_full="null")
        for name in [*INTEGERS, *FLOATS, *DECIMALS]
    ),
    *(
        agg.collect_list(name, at_most=3, tie_break="seq", when_full=consequence)
        for name in TYPES
        for consequence in ("null", "reject_new", "evict_oldest")
    ),
    *(agg.top(2, "struct", ranked_by=name, tie_break="seq") for name in ORDERED),
    *(agg.top(2, name, ranked_by="double", tie_break="seq") for name in ("map", "double")),
    GeometricMean("money"),
    Histogram("long"),
]
ROUNDED = [
    *(function("double") for function in (agg.sum, agg.mean, agg.variance, agg.stddev)),
    *(function(name) for name in ("long", "money") for function in (agg.variance, agg.stddev)),
]


@st.composite
def members(draw: st.DrawFn, aggregate: Aggregation, pools: dict[str, list[object]]) -> object:
    """Rows of few distinct values and nulls, in groups of which some are empty."""
    count = draw(st.integers(0, 12))

    def some(strategy: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(strategy, min_size=count, max_size=count))

    columns = {name: pa.nulls(count, dtype) for name, dtype in TYPES.items()}
    for name in set(aggregate.columns) - {"seq"}:
        columns[name] = pa.array(some(st.sampled_from([None, *pools[name]])), TYPES[name])
    times = some(st.sampled_from([None, -1, 0, 5]))
    columns["ts"] = pa.array(times, pa.int64()).cast(SCHEMA[0].type)
    columns["seq"] = pa.array([item * 7 % 13 for item in range(count)], pa.int64())
    groups = Groups(np.array(some(st.integers(0, 3)), np.int64), 4)
    rows = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    tolerance = 1e-6 if pools is not VALUES else 0.0
    return laws.SummaryCase(bind(aggregate), rows, groups, tolerance, draw(st.integers(0, 2**16)))


# Far from zero, close to one another, and not multiples of any power of two.
UNEVEN: dict[str, list[object]] = {
    "double": [1e9 + 0.1, 1e9 + 0.7, 1e9 - 1.3, 1e9, float("nan"), float("inf")],
    "long": [10**9, 10**9 + 1, 10**9 - 7],
    "money": [*VALUES["money"]],
}


@given(data=st.data())
def test_aggregates_whose_arithmetic_is_exact_keep_every_law(data: st.DataObject) -> None:
    laws.check_laws(data.draw(members(data.draw(st.sampled_from(EXACT)), VALUES)), laws.SUMMARY)


@given(data=st.data())
def test_aggregates_that_round_keep_every_law_within_their_tolerance(data: st.DataObject) -> None:
    laws.check_laws(data.draw(members(data.draw(st.sampled_from(ROUNDED)), UNEVEN)), laws.SUMMARY)
