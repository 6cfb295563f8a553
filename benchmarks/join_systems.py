"""The systems that are compared on joins of two streams."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.stream import DELAY

StateApi = Literal["applyInPandasWithState", "transformWithStateInPandas"]
Join = Callable[[DataFrame, DataFrame, str, int | None], DataFrame]
"""A function of both streams, the name of the join, and the number of shards."""

PRICED = "k long, v double, ts timestamp, price double, seq long, since timestamp"


def native(left: DataFrame, right: DataFrame, workload: str, shards: int | None) -> DataFrame:
    """Spark's own left outer join of two streams."""
    searches = left.withWatermark("ts", DELAY)
    clicks = right.select(F.col("k").alias("of"), "c", F.col("ts").alias("clicked"))
    clicks = clicks.withWatermark("clicked", DELAY)
    within = (F.col("clicked") >= F.col("ts")) & (
        F.col("clicked") <= F.col("ts") + F.expr("INTERVAL 1 HOUR")
    )
    return searches.join(clicks, (F.col("k") == F.col("of")) & within, "left").drop("of")


def kernel(state_api: StateApi) -> Join:
    """The operators of streamops."""

    def build(left: DataFrame, right: DataFrame, workload: str, shards: int | None) -> DataFrame:
        # Here, not above: the other systems are measured without this library in the process.
        from benchmarks.operators import build_join

        operator = build_join(workload, right)
        result = left.transform(
            operator.options(engine="kernel", state_api=state_api, shards=shards)
        )
        return result.withColumnRenamed("ts_right", "clicked")

    return build


def _price(
    key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Join the facts of one key, as users would write it: one group per key.

    Versions and pending facts are stored as JSON, because array and map state columns do not work
    in Spark 4.3. Times are microseconds. The loops are over rows, which is faster than frames here.
    """
    versions, facts = json.loads(state.get[0]) if state.exists else ([], [])
    if not state.hasTimedOut:
        for frame in frames:
            times = frame["ts"].to_numpy("datetime64[us]").astype("int64").tolist()
            values, sequences = frame["v"].tolist(), frame["seq"].tolist()
            for time, value, sequence in zip(times, values, sequences, strict=True):
                if sequence < 0:
                    facts.append([time, value])
                else:
                    versions.append([time, sequence, value])
        versions.sort()
    watermark = state.getCurrentWatermarkMs() * 1_000
    due = [fact for fact in facts if fact[0] <= watermark]
    facts = [fact for fact in facts if fact[0] > watermark]
    since = [version[0] for version in versions]
    rows = []
    for time, value in due:
        position = bisect_right(since, time) - 1
        found = versions[position] if position >= 0 else (None, None, None)
        rows.append((key[0], value, time, found[2], found[1], found[0]))
    base = max(bisect_right(since, watermark) - 1, 0)
    state.update((json.dumps([versions[base:], facts]),))
    if facts:
        first = min(time for time, _ in facts)
        # A timeout fires once the watermark is above it; a fact is due when they are equal.
        state.setTimeoutTimestamp(max(-(-first // 1_000) - 1, watermark // 1_000 + 1))
    if rows:
        names = ["k", "v", "ts", "price", "seq", "since"]
        answers = pd.DataFrame(rows, columns=names)
        for name in ("ts", "since"):
            answers[name] = pd.to_datetime(answers[name], unit="us")
        yield answers


def naive(left: DataFrame, right: DataFrame, workload: str, shards: int | None) -> DataFrame:
    """One group per key: facts and versions in one stream of rows; a fact has no sequence."""
    facts = left.withWatermark("ts", DELAY).select(
        "k", "v", "ts", F.lit(-1).cast("long").alias("seq")
    )
    versions = right.withWatermark("since", DELAY).select(
        "k", F.col("price").alias("v"), F.col("since").alias("ts"), "seq"
    )
    return (
        facts.unionByName(versions)
        .groupBy("k")
        .applyInPandasWithState(
            _price,
            outputStructType=PRICED,
            stateStructType="stored string",
            outputMode="append",
            timeoutConf=GroupStateTimeout.EventTimeTimeout,
        )
    )


def ceiling(left: DataFrame, right: DataFrame, workload: str, shards: int | None) -> DataFrame:
    """Transfer all rows of both to Python and back."""

    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    sides = [side.mapInArrow(identity, side.schema) for side in (left, right)]
    names = [name for name in left.columns if name in right.columns]
    if not names:
        return sides[0].unionByName(sides[1], allowMissingColumns=True)
    return sides[0].select(*names).unionByName(sides[1].select(*names))
