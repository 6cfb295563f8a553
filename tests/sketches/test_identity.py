"""What a checkpoint knows of the sketches in it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates, sketches, windows
from streamops.kernel.errors import SchemaError, StateFormatError
from streamops.testing import at
from streamops.testing.replaying import Replay

UTC = pa.timestamp("us", "UTC")
SKETCH_TYPES = [
    pa.int32(), pa.int64(), pa.string(), pa.decimal128(10, 2), pa.decimal128(10, 3), UTC
]  # fmt: skip
NUMBERS = [pa.int32(), pa.int64(), pa.float64()]
OF_ITEMS: list[Any] = [
    aggregates.approx_count_distinct("v"),
    sketches.hll_sketch_agg("v"),
    sketches.theta_sketch_agg("v"),
    sketches.minhash_sketch_agg("v"),
    sketches.count_min_sketch("v"),
    sketches.top_k_sketch_agg("v", at_least=0.1),
    sketches.bloom_filter_agg("v", capacity=100),
    aggregates.approx_overlap("v", of="k", between=["a", "b"]),
]
CASES = [(item, SKETCH_TYPES) for item in OF_ITEMS] + [(sketches.kll_sketch_agg("v"), NUMBERS)]


def schema(dtype: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.string()), ("ts", UTC), ("v", dtype)])


def tumbling(aggregate: Any) -> Any:
    return windows.tumbling(
        "1 minute",
        time="ts",
        by="k",
        agg={"s": aggregate},
        delay="1 minute",
    ).options(shards=1)


@pytest.mark.parametrize(("aggregate", "dtypes"), CASES, ids=repr)
def test_the_identity_of_a_state_has_the_type_of_the_values(aggregate: Any, dtypes: Any) -> None:
    window = tumbling(aggregate).parameters
    found = {
        json.dumps(window.resolve((schema(dtype),), carried=(None,), shards=1).identity)
        for dtype in dtypes
    }
    assert len(found) == len(dtypes)


def test_a_restart_with_another_type_is_refused() -> None:
    operator = tumbling(aggregates.approx_count_distinct("v"))
    before = Replay(operator, schema(pa.int32()))
    before.run([[{"k": "a", "ts": at(1), "v": 1}]])
    after = Replay(operator, schema(pa.int64()))
    after._stages[0].stored = before._stages[0].stored
    with pytest.raises(StateFormatError) as refused:
        after.run([[{"k": "a", "ts": at(2), "v": 1}]])
    assert refused.value.code == "STATE_PARAMETERS"


def test_the_identity_of_a_running_value_has_the_type() -> None:
    settings = windows.running(
        by="k", agg={"distinct": aggregates.approx_count_distinct("v")}
    ).parameters
    narrow, wide = (
        settings.resolve((schema(dtype),), carried=(None,), shards=1).identity
        for dtype in SKETCH_TYPES[:2]
    )
    assert narrow != wide


REVISED = pa.schema([("ts", UTC), ("s", pa.binary()), ("revision", pa.int32())])


@pytest.mark.parametrize(
    "like",
    [
        sketches.kll_sketch_agg("v"),
        sketches.top_k_sketch_agg("v", at_least=0.1),
        sketches.count_min_sketch("v", item_type="string"),
    ],
    ids=repr,
)
def test_revised_counts_are_not_merged(like: Any) -> None:
    with pytest.raises(SchemaError, match="would count each revision of a result again") as refused:
        sketches.merge("s", like=like).bind(REVISED, time="ts")
    assert refused.value.code == "ROWS_REVISED"
    assert "drop the column 'revision'" in refused.value.fix


def test_revised_sets_may_be_merged() -> None:
    for like in (
        sketches.hll_sketch_agg("v"),
        sketches.theta_sketch_agg("v"),
        sketches.minhash_sketch_agg("v"),
    ):
        assert sketches.merge("s", like=like).bind(REVISED, time="ts")
