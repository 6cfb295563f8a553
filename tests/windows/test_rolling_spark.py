"""Rolling aggregates on Spark: on both state APIs, in batches, and as the features of a training set."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import aggregates as agg
from streamops import joins, windows
from streamops.testing import assert_rows, at, replay, stream

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])
COMMON: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": {"n": agg.count(), "total": agg.sum("v"), "newest": agg.last("v", tie_break="v")},
}
HORIZONS = {"20s": "20 seconds", "60s": "1 minute"}


def rows(*events: tuple[str | None, float | None, float | None]) -> list[dict[str, Any]]:
    return [{"k": k, "ts": None if s is None else at(s), "v": v} for k, s, v in events]


# A null key, a null time and a null value; rows at a border; one out of order (batch 2), and one that is late (batch 3).
SCRIPT = [
    rows(("a", 1, 0.1), ("a", 9, 0.2), ("b", 10, 0.3), (None, 3, 0.4)),
    rows(("a", 31, 0.5), ("b", 29, None), ("a", None, 1.0)),
    rows(("a", 2, 0.9), ("c", 55, 0.6)),
    rows(("a", 3, 100.0), ("b", 140, 0.7)),
    rows(("b", 300, 0.8)),
]


@pytest.mark.parametrize("state_api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_a_stream_on_spark_gives_what_its_replay_gives(spark: SparkSession, state_api: str) -> None:
    stragglers = "route" if state_api == "applyInPandasWithState" else "drop"
    rolling = windows.rolling(
        "10 seconds", HORIZONS, delay="5 seconds", stragglers=stragglers, **COMMON
    ).options(state_api=state_api, shards=3)
    actual = stream(spark, rolling, SCRIPT, schema=SCHEMA)
    expected = replay(rolling, SCRIPT, schema=SCHEMA)
    assert sum(len(result.rows) for result in expected) > 8
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert one.counts == other.counts
        assert one.state_rows == other.state_rows


def test_labelled_rows_get_what_was_served(spark: SparkSession) -> None:
    rolling = windows.rolling("10 seconds", HORIZONS, delay="5 seconds", **COMMON)
    results = replay(rolling, SCRIPT, schema=SCHEMA)
    served: dict[tuple[str | None, dt.datetime], dict[str, Any] | None] = {}
    newest: dict[str | None, dict[str, Any]] = {}
    for result in results:
        for row in sorted(result.rows, key=lambda row: row["window_end"]):
            newest[row["k"]] = row
        if result.watermark is not None:
            for key in ("a", "b", "c"):
                served[key, result.watermark] = newest.get(key)

    # The late row was dropped: the history of the training set has only what counted.
    history = [row for batch in SCRIPT for row in batch if row["v"] != 100.0]
    frame = spark.createDataFrame(
        [tuple(row[name] for name in SCHEMA.names) for row in history],
        "k string, v double, ts timestamp",
    )
    labelled = spark.createDataFrame(list(served), "k string, at timestamp")
    features = frame.transform(rolling)
    join = joins.asof(features, by="k", time="at", version="window_end", sequence="window_end")
    found = labelled.transform(join)
    names = [name for name in features.columns if name != "k"]
    expected = [
        (key, time, *(None if row is None else row[name] for name in names))
        for (key, time), row in served.items()
    ]
    schema = ", ".join(
        f"`{f.name}` {f.dataType.simpleString()}" for f in features.schema if f.name != "k"
    )
    assert_rows(
        found.select("k", "at", *names),
        spark.createDataFrame(expected, f"k string, at timestamp, {schema}"),
    )
    assert sum(row is not None for row in served.values()) > 5
