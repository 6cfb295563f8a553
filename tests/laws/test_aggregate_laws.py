"""Laws of ``changes.aggregate``: of every core, and that retracted rows leave no state."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import changes
from streamops.changes.core.aggregate import AggregateCore
from streamops.kernel.columns import concat
from streamops.kernel.core import State
from streamops.testing import laws
from streamops.testing.laws import to_rows
from streamops.testing.laws.cases import same_rows, split_rows
from tests.laws import playing
from tests.oracles import aggregate as oracle
from tests.oracles.windows import Row

pytestmark = pytest.mark.laws

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("word", pa.string()),
        ("line", pa.float64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("day", pa.date32()),
        ("span", pa.duration("us")),
        ("_change_type", pa.string()),
    ]
)
HUGE = [1e300, -1e300, 5e-324, 0.1, -0.0, 1e16, 1.0, float("inf"), float("-inf"), float("nan")]
POOLS: dict[str, list[Any]] = {
    "word": ["a", "b", None],
    "line": [0.0, -0.0, float("nan")],
    "n": [None, 1, 2, -(2**55) - 1],
    "x": [None, *HUGE],
    "d": [None, *map(Decimal, ("0.25", "-0.50", "9.75", "0.00"))],
    "day": [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "span": [None, 0, -1, 86_400_000_000],
}
CENT = Decimal("0.01")
# Few sums of these are exact, so that a rounded sum depends on the order of addition.
UNEVEN = [1e9 + 0.1, 1e9 + 0.7, 1e9 - 1.3, 0.1, 0.7]
UNDO = {
    "insert": "delete",
    "delete": "insert",
    "update_preimage": "update_postimage",
    "update_postimage": "update_preimage",
}


TOTALS: dict[str, tuple[Any, oracle.Answer]] = {
    "rows": (agg.count(), oracle.count(None)),
    "there": (agg.count("n"), oracle.count("n")),
    "sum": (agg.sum("n"), oracle.total("n")),
    "mean": (agg.mean("n"), oracle.mean("n")),
    "total": (agg.sum("x"), oracle.total("x")),
    "average": (agg.mean("x"), oracle.mean("x")),
    "paid": (agg.sum("d"), oracle.total("d")),
    "price": (agg.mean("d"), oracle.mean("d")),
    "prices": (agg.count("d"), oracle.count("d")),
    "time": (agg.sum("span"), oracle.total("span")),
}
FROM_ROWS: dict[str, tuple[Any, oracle.Answer]] = {
    **{f"min {name}": (agg.min(name), oracle.extreme(name, min)) for name in POOLS},
    **{f"max {name}": (agg.max(name), oracle.extreme(name, max)) for name in POOLS},
    **{f"spread {name}": (agg.variance(name), oracle.variance(name)) for name in ("n", "x", "d")},
    "deviation": (agg.stddev("x"), oracle.variance("x", root=True)),
    "best": (agg.top(2, "n", ranked_by="x", tie_break="n"), oracle.top(2, "n", "x", "n")),
    # Ranking and tie-break are equal in some rows.
    "tied": (agg.top(3, "x", ranked_by="d", tie_break="day"), oracle.top(3, "x", "d", "day")),
    "latest": (agg.top(2, "d", ranked_by="day", tie_break="n"), oracle.top(2, "d", "day", "n")),
    "longest": (agg.top(2, "x", ranked_by="span", tie_break="n"), oracle.top(2, "x", "span", "n")),
    "different": (agg.count_distinct("n", at_most=1_000), oracle.distinct("n")),
    "numbers": (agg.count_distinct("x", at_most=1_000), oracle.distinct("x")),
    "middle": (agg.percentile("x", [0.3, 1], at_most=1_000), oracle.quantiles("x", 0.3, 1)),
    "cents": (agg.percentile("d", [0.0, 0.7], at_most=1_000), oracle.quantiles("d", 0.0, 0.7)),
}
ANSWERS = TOTALS | FROM_ROWS


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def changes_of(
    dice: random.Random, size: int, current: list[Row], pools: Mapping[str, list[Any]]
) -> list[Row]:
    drawn = []
    for _ in range(size):
        if current and dice.random() < 0.5:
            row = current.pop(dice.randrange(len(current)))
            drawn.append({**row, "_change_type": dice.choice(["delete", "update_preimage"])})
        else:
            row = {name: dice.choice(pool) for name, pool in pools.items()}
            row["ts"] = dice.randrange(10**9)
            if current and dice.random() < 0.3:
                row = dict(dice.choice(current))
            current.append(row)
            drawn.append({**row, "_change_type": dice.choice(["insert", "update_postimage"])})
    return drawn


@st.composite
def histories(draw: st.DrawFn) -> laws.Case:
    """Few groups, values whose sums are not exact in doubles, some deletes ahead of their inserts."""
    by = draw(st.sampled_from([(), ("word",), ("line",), ("word", "line")]))
    from_rows = draw(st.booleans())
    among = sorted(ANSWERS if from_rows else TOTALS)
    names = draw(st.lists(st.sampled_from(among), min_size=1, max_size=4, unique=True))
    dice = random.Random(draw(st.integers(0, 2**16)))
    current: list[Row] = []
    sizes = draw(st.lists(st.sampled_from([0, 1, 3, 8, 20]), min_size=1, max_size=6))
    pools = {**POOLS, "x": draw(st.sampled_from([POOLS["x"], UNEVEN]))}
    if draw(st.booleans()):  # few values, so that a group may have more retracted than added ones
        pools |= {"n": [None, None, None, 1], "d": [None, None, None, CENT]}
        names = list(dict.fromkeys([*names, "there"]))
    batches = [changes_of(dice, size, current, pools) for size in sizes]
    if draw(st.booleans()):  # deletes ahead of their inserts
        ahead = [row for rows in batches for row in rows]
        dice.shuffle(ahead)
        parts = iter(ahead)
        batches = [[next(parts) for _ in rows] for rows in batches]
    operator = changes.aggregate(by=by, agg={name: ANSWERS[name][0] for name in names})
    spec = operator.parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    stored = {name: ANSWERS[name][0].columns for name in names if name in FROM_ROWS}
    seen = oracle.AggregateOracle(by, {name: ANSWERS[name][1] for name in names}, stored)

    def accepted(arrivals: Sequence[laws.Arrival]) -> list[Row]:
        everything = concat([batch for (batch,), _ in arrivals])
        return seen.fresh().step(to_rows(everything)).emitted

    tables = tuple((table_of(rows),) for rows in batches)
    return laws.Case(
        core=AggregateCore(),
        spec=spec,
        batches=tables,
        key=by,
        undo=laws.invert(tables),
        oracle=seen.fresh,
        accepted=accepted,
        seed=draw(st.integers(0, 2**16)),
    )


@pytest.mark.parametrize("law", laws.CORE)
@given(case=histories())
def test_aggregates_of_changes_satisfy_the_law_that(
    law: Callable[[laws.Case], None], case: laws.Case
) -> None:
    law(case)


@given(case=histories(), seed=st.integers(0, 2**16))
def test_each_rejected_row_is_routed_once_and_whole_and_changes_nothing(
    case: laws.Case, seed: int
) -> None:
    dice, rng = random.Random(seed), np.random.default_rng(seed)
    routing = replace(case.spec, input=SCHEMA, rejected="route")
    restarted = playing.restart(AggregateCore(), routing)
    dropping, state = (
        State.empty(AggregateCore().layout(case.spec)),
        State.empty(AggregateCore().layout(routing)),
    )
    for (whole,) in case.batches:
        rows = [
            {**row, "_change_type": dice.choice([None, "", "upsert"])}
            if dice.random() < 0.3
            else row
            for row in to_rows(whole)
        ]
        batch = table_of(rows)
        pieces = [AggregateCore().pack(routing, piece) for piece in split_rows(batch, rng)]
        without = AggregateCore().step(
            case.spec, dropping, [AggregateCore().pack(case.spec, batch)]
        )
        step = AggregateCore().step(routing, restarted(state), [concat(pieces)])
        dropping, state = without.state, step.state
        AggregateCore().check(routing, state)
        drawn = to_rows(step.output)
        changes = [row for row in drawn if row.pop("rejected") is None]
        same_rows(changes, to_rows(without.output), "with and without rejected rows")
        rejected = [row["rejected"] for row in to_rows(step.output) if row["rejected"] is not None]
        invalid = [row for row in to_rows(batch) if row["_change_type"] not in UNDO]
        same_rows(
            [item["row"] for item in rejected], invalid, "rejected rows and rows of the output"
        )
        assert {item["reason"] for item in rejected} <= {"unknown_operation"}
        assert step.metrics == without.metrics
        assert step.metrics.rejected == len(invalid)
