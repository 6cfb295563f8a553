"""Accounts of late rows on Spark: compared with an oracle and replays, merged, and on streams."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import observe, split_side_output, windows
from streamops.observe.accounts import BOUNDS, Scale
from streamops.testing import at, micro_batches, replay
from tests.oracles.accounts import Late, account, needed

pytestmark = pytest.mark.spark

SHARDS = 2
SCALE = Scale.parse(BOUNDS).bounds
KEYS = ("ke.y", "window_start", "reason", "producer")
BY_ALL = {"by": ["ke.y", "window_start"], "producer": "de`vi.ce"}
CENTURIES = 30 * 31_557_600_000_000 * 100  # a sum of a hundred exceeds 64 bits


def draw_late_rows(seed: int, count: int) -> list[tuple[Late, Any]]:
    """Random late rows: few keys, lateness near each bound, and some without an event time."""
    dice = random.Random(seed)
    rows = []
    for _ in range(count):
        key, producer = dice.choice(["a", "b", None]), dice.choice(["x", None, "z"])
        start = dice.choice([0, 600])
        lateness = dice.choice([*SCALE, 0, CENTURIES]) + dice.choice([0, 1, -1, 999, 1_000])
        lateness = max(lateness, 0)
        overdue = lateness - dice.choice([0, 1, 10_000_000])
        reason = dice.choice(["straggler", "too_late", "null_time"])
        if reason == "null_time":
            lateness = overdue = start = None
        account_key = (key, start, reason, producer)
        rows.append((Late(account_key, lateness, overdue), account_key))
    return rows


def frame_of(spark: SparkSession, rows: list[tuple[Late, Any]]) -> DataFrame:
    """Late rows as in split_side_output; the key is a struct, and names have special characters."""
    table = [(*key, late.lateness, late.overdue) for late, key in rows]
    plain = spark.createDataFrame(
        table, "k string, start long, reason string, p string, lateness long, overdue long"
    )
    mark = F.timestamp_seconds(F.lit(2_000_000_000))
    return plain.select(
        F.struct(F.col("k").alias("k")).alias("ke.y"),
        F.timestamp_seconds("start").alias("window_start"),
        F.timestamp_micros(F.unix_micros(mark) - F.col("overdue")).alias("window_end"),
        "reason",
        (F.lit(dt.timedelta(microseconds=1)) * F.col("lateness")).alias("lateness"),
        F.when(F.col("overdue").isNotNull(), mark).alias("watermark"),
        F.struct(F.col("p").alias("de`vi.ce"), F.lit(1).alias("v")).alias("row"),
    )


def read_account(frame: DataFrame, keys: tuple[str, ...] = KEYS) -> dict[Any, tuple[Any, ...]]:
    """Return an account by key, in the format of the oracle."""

    def plain(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return int(value.replace(tzinfo=dt.UTC).timestamp())
        return value[0] if isinstance(value, tuple) else value

    found = {}
    for row in frame.collect():
        seconds = (row[f"{name}_seconds"] for name in ("least", "greatest", "total"))
        found[tuple(plain(row[key]) for key in keys)] = (
            row["rows"],
            *(None if value is None else int(value * 1_000_000) for value in seconds),
            tuple(row["lateness"]),
            tuple(row["saved"]),
        )
    return found


def union_all(frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


def test_an_account_equals_the_oracle(spark: SparkSession) -> None:
    rows = draw_late_rows(1, 6_000)
    counted = frame_of(spark, rows).transform(observe.account_late(**BY_ALL))
    assert counted.columns[:5] == ["ke.y", "window_start", "producer", "reason", "rows"]
    types = {field.name: field.dataType.simpleString() for field in counted.schema.fields}
    assert types["total_seconds"] == types["least_seconds"] == "decimal(38,6)"
    assert types["rows"] == "bigint"
    assert read_account(counted) == account([late for late, _ in rows], SCALE)
    # The sum is exact where an interval, or 64-bit microseconds, would overflow.
    whole = [late._replace(key=()) for late, _ in rows]
    merged = read_account(counted.transform(observe.merge_accounts()), ())
    assert merged == account(whole, SCALE)
    assert merged[()][3] > 2**63
    by_reason_only = frame_of(spark, rows).transform(observe.account_late(bounds=["1 minute"]))
    by_reason = [late._replace(key=(late.key[2],)) for late, _ in rows]
    assert read_account(by_reason_only, ("reason",)) == account(by_reason, [60_000_000])
    assert frame_of(spark, rows[:0]).transform(observe.account_late()).count() == 0


@pytest.mark.parametrize("seed", range(3))
def test_merged_accounts_of_parts_equal_the_account_of_all_rows(
    spark: SparkSession, seed: int
) -> None:
    dice = random.Random(seed)
    rows = draw_late_rows(seed, 300)
    cuts = sorted(dice.sample(range(300), 3))
    parts = [rows[i:j] for i, j in zip([0, *cuts], [*cuts, 300], strict=True)]
    counted = [frame_of(spark, p).transform(observe.account_late(**BY_ALL)) for p in [*parts, []]]
    merge = observe.merge_accounts(by=KEYS)
    whole = account([late for late, _ in rows], SCALE)
    dice.shuffle(counted)
    assert read_account(union_all(counted).transform(merge)) == whole
    # Merging is commutative, associative, and idempotent on one account.
    first = union_all(counted[:2]).transform(merge)
    assert read_account(union_all([*counted[2:], first]).transform(merge)) == whole
    fewer = [late._replace(key=late.key[3:]) for late, _ in rows]
    coarse = union_all(counted).transform(observe.merge_accounts(by="producer"))
    assert read_account(coarse, ("producer",)) == account(fewer, SCALE)
    assert coarse.columns == ["producer", *counted[0].columns[4:]]
    one = coarse.transform(observe.merge_accounts())
    assert read_account(one, ()) == account([late._replace(key=()) for late, _ in rows], SCALE)
    assert one.where("rows < 0").transform(observe.merge_accounts()).count() == 0
    other = frame_of(spark, rows).transform(observe.account_late(**BY_ALL, bounds=["1 hour"]))
    with pytest.raises(AnalysisException):
        union_all([counted[0], other]).collect()


@pytest.mark.parametrize("share", ["0.5", "0.99", "1", "0.07", "1e-7"])
def test_the_lateness_needed_equals_the_oracle(spark: SparkSession, share: str) -> None:
    rows = [(late, key) for late, key in draw_late_rows(7, 3_000) if late.lateness != CENTURIES + 1]
    counted = frame_of(spark, rows).transform(observe.account_late(**BY_ALL)).persist()
    for by in ((), ("producer",), ("reason",)):
        answer = counted.transform(observe.lateness_needed(share=float(share), by=by))
        assert answer.columns == [*by, "rows", "needed", "saved", "not_enough"]
        found = {
            row[: len(by)]: tuple(
                value // dt.timedelta(microseconds=1) if isinstance(value, dt.timedelta) else value
                for value in row[len(by) :]
            )
            for row in answer.collect()
        }
        groups: dict[Any, list[Late]] = {}
        for late, _ in rows:
            position = {"reason": 2, "producer": 3}
            groups.setdefault(tuple(late.key[position[name]] for name in by), []).append(late)
        assert found == {key: needed(group, SCALE, share) for key, group in groups.items()}
    counted.unpersist()


def history(seed: int) -> list[list[dict[str, Any]]]:
    """Micro-batches of rows: mostly in order, some late, two without an event time."""
    dice = random.Random(seed)
    script: list[list[dict[str, Any]]] = []
    for number in range(12):
        late = (dice.choice([0, 0, 5, 90, 130, 160, 400, 3_000]) for _ in range(10))
        times = [60 * number + dice.randrange(60) - lateness for lateness in late]
        script.append([{"k": dice.choice("ab"), "ts": at(t, dice.randrange(10**6))} for t in times])
    script[5] += [{"k": "a", "ts": None}, {"k": "b", "ts": None}]
    return script


@pytest.mark.parametrize(
    "make",
    [
        lambda **arguments: windows.tumbling("30 seconds", **arguments).options(shards=SHARDS),
        lambda **arguments: windows.hopping("1 minute", "20 seconds", **arguments).options(
            shards=SHARDS
        ),
        lambda **arguments: windows.session("10 seconds", **arguments).options(shards=SHARDS),
        lambda **arguments: windows.sliding("30 seconds", **arguments).options(shards=SHARDS),
    ],
    ids=["tumbling", "hopping", "session", "sliding"],
)
def test_saved_rows_are_those_that_a_larger_allowed_lateness_accepts(
    spark: SparkSession, make: Any
) -> None:
    arguments = {"time": "ts", "by": "k", "agg": {"n": agg.count()}, "delay": "5 seconds"}
    script, schema = history(3), pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    routed = replay(make(**arguments, stragglers="route"), script, schema=schema)
    # Combined: PySpark takes a table whose first chunk is empty for an empty table.
    late = pa.concat_tables([result.late for result in routed]).combine_chunks()
    (row,) = (
        spark.createDataFrame(late)
        .transform(observe.account_late())
        .transform(observe.merge_accounts())
        .collect()
    )
    counts = [result.counts for result in routed]
    assert row["lateness"]["any"] == sum(c.stragglers + c.too_late for c in counts)
    assert row["rows"] == row["lateness"]["any"] + sum(c.rejected for c in counts)
    assert row["lateness"]["any"] > 20
    for bound in ("1 second", "30 seconds", "1 minute", "10 minutes", "1 hour"):
        again = replay(
            make(**arguments, stragglers="retract", allowed_lateness=bound), script, schema=schema
        )
        refused = sum(result.counts.too_late for result in again)
        saved = row["saved"]["with_" + bound.replace(" ", "_")]
        assert saved == row["lateness"]["any"] - refused, bound


SCRIPT = [
    [{"device": "x", "ts": at(1)}, {"device": "y", "ts": at(2)}],
    [{"device": "x", "ts": at(100)}],
    [{"device": "x", "ts": at(101)}],
    [{"device": "x", "ts": at(3)}, {"device": "y", "ts": at(50)}, {"device": "y", "ts": None}],
    [{"device": "y", "ts": at(4)}, {"device": "x", "ts": at(200)}],
]
ROUTED: dict[str, Any] = {
    "time": "ts",
    "agg": {"n": agg.count()},
    "delay": "0 seconds",
    "stragglers": "route",
}
EXPECTED = {
    (None, "y", "null_time"): (1, 0),
    (at(0), "x", "too_late"): (1, 1),
    (at(0), "y", "too_late"): (1, 1),
    (at(50), "y", "too_late"): (1, 1),
}


def counted(rows: list[dict[str, Any]]) -> dict[Any, tuple[int, int]]:
    return {
        (row["window_start"], row["producer"], row["reason"]): (
            row["rows"],
            row["lateness"]["any"],
        )
        for row in rows
    }


def test_accounts_of_foreach_batch_can_be_merged_from_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    account = observe.account_late(by="window_start", producer="device")
    table = str(tmp_path / "accounts")

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        _, late = split_side_output(batch)
        late.transform(account).write.mode("overwrite").parquet(f"{table}/batch={number}")
        batch.unpersist()

    frame = micro_batches(spark, SCRIPT, directory=tmp_path / "in")
    query = (
        frame.transform(windows.tumbling("10 seconds", **ROUTED).options(shards=SHARDS))
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(write)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    totals: Counter[str] = Counter()
    for progress in query.recentProgress:
        metrics = progress.observedMetrics.get("tumbling")
        totals.update({name: (metrics and metrics[name]) or 0 for name in ("too_late", "rejected")})
    merged = spark.read.parquet(table).transform(
        observe.merge_accounts(by=["window_start", "producer", "reason"])
    )
    assert counted(merged.toArrow().to_pylist()) == EXPECTED
    assert totals == {"too_late": 3, "rejected": 1}


def test_an_account_can_be_a_streaming_aggregation(spark: SparkSession, tmp_path: Path) -> None:
    frame = micro_batches(spark, SCRIPT, directory=tmp_path / "in")
    _, late = split_side_output(
        frame.transform(windows.tumbling("10 seconds", **ROUTED).options(shards=SHARDS))
    )
    rows: list[dict[str, Any]] = []
    query = (
        late.transform(observe.account_late(by="window_start", producer="device"))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, _: rows.extend(batch.toArrow().to_pylist()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    assert counted(rows) == EXPECTED
