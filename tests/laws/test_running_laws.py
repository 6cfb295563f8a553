"""Running values of keys keep every law of a core."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops.kernel.columns import concat
from streamops.kernel.contract import Aggregation
from streamops.sketches.core import running
from streamops.sketches.core.running import RunningSpec
from streamops.sketches.running_settings import RunningSettings
from streamops.testing import laws
from streamops.testing.laws import rows_of
from tests.oracles.running import RunningOracle
from tests.oracles.windows import Row
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
WORDS, NUMBERS = ["a", "b", None], [0.0, -0.0, float("nan"), 1.5, None]


@dataclass(frozen=True, slots=True)
class Timed(RunningSpec):
    """Laws speak of times; this operator does not look at them."""

    time: ClassVar[str] = "ts"
    delay: ClassVar[int] = 0
    lag: ClassVar[int] = 0


def items(rows: list[Row]) -> dict[str, int]:
    number = len([row for row in rows if row["n"] is not None])
    return dict.fromkeys(("estimate", "lower", "upper"), number)


def greatest(rows: list[Row]) -> int | None:
    return max((row["n"] for row in rows if row["n"] is not None), default=None)


ANSWERS: dict[str, tuple[Aggregation, Callable[[list[Row]], Any]]] = {
    "items": (count_items("n"), items),
    "greatest": (agg.max("n"), greatest),
}


@st.composite
def histories(draw: st.DrawFn) -> laws.Case:
    """Few keys, many rows that change nothing, micro-batches without rows."""
    by = draw(st.sampled_from([(), ("word",), ("number",), ("word", "number")]))
    names = draw(st.sampled_from([["items"], ["greatest"], ["items", "greatest"]]))
    changes = draw(st.sampled_from(["update", "retract"]))
    dice = random.Random(draw(st.integers(0, 2**16)))
    batches = []
    for size in draw(st.lists(st.sampled_from([0, 1, 3, 8]), max_size=6)):
        columns = [
            pa.array([dice.randrange(10**9) for _ in range(size)]).cast(SCHEMA[0].type),
            pa.array(dice.choices(WORDS, k=size), pa.string()),
            pa.array(dice.choices(NUMBERS, k=size), pa.float64()),
            pa.array(dice.choices([None, None, 1, 2, 3, 9], k=size), pa.int64()),
        ]
        batches.append(pa.table(columns, schema=SCHEMA))
    asked = {name: ANSWERS[name][0] for name in names}
    settings = RunningSettings.of(
        "laws", asked, by=by, changes=changes, max_keys=1000, when_full="fail"
    )
    bound = settings.bind(SCHEMA, shards=1)
    read = [field for field in SCHEMA if field.name == "ts" or field in bound.input]
    spec = Timed(
        bound.where,
        bound.by,
        bound.aggregates,
        pa.schema(read),
        bound.changes,
        bound.limit,
        bound.when_full,
    )
    oracle = RunningOracle(by, {name: ANSWERS[name][1] for name in names}, changes)

    def accepted(judged: Sequence[laws.Judged]) -> list[Row]:
        everything = concat([batch for batch, _ in judged])
        return oracle.fresh().step(rows_of(everything), None).emitted

    none = [] if batches else [SCHEMA.empty_table()]
    return laws.Case(
        core=running,
        spec=spec,
        batches=tuple([*batches, *none]),
        identity=by,
        oracle=oracle.fresh,
        accepted=accepted,
        seed=draw(st.integers(0, 2**16)),
    )


@given(case=histories())
def test_running_values_keep_every_law(case: laws.Case) -> None:
    laws.keep(case)
