"""Which state API a query gets, what its plan says about it, and what a restart may change."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import joins, windows
from streamops.environment.doctor import run_smoke_query
from streamops.environment.java import find_java
from streamops.environment.settings import PROVIDER, ROCKSDB
from streamops.kernel.errors import RequirementError, SpecError
from streamops.testing import at, micro_batches
from streamops.testing.streaming import run_query

pytestmark = pytest.mark.spark

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
GROUPS: Any = "applyInPandasWithState"
TRANSFORM: Any = "transformWithStateInPandas"
ROWS = [[{"k": "a", "ts": at(1)}, {"k": "a", "ts": at(2)}], [{"k": "b", "ts": at(25)}]]
MORE = [[{"k": "a", "ts": at(45)}]]
COUNTS = windows.tumbling(
    "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds"
).options(shards=2)


@contextlib.contextmanager
def state_store(spark: SparkSession, provider: str) -> Iterator[None]:
    """The session with another state store, as one that was not configured."""
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, provider)
    try:
        yield
    finally:
        spark.conf.set(PROVIDER, str(before))


def events(spark: SparkSession, batches: list[Any], folder: Path) -> DataFrame:
    return micro_batches(spark, batches, directory=folder / "input", source="files")


def described(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    """The line of the plan about the state API."""
    capsys.readouterr()
    frame.explain(extended=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if " by apply" in line]
    return lines[0].lstrip(" +-:~").replace("`", "")


def test_a_stock_session_runs_an_operator_and_its_plan_has_the_reason(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with state_store(spark, HDFS):
        result = events(spark, ROWS, tmp_path).transform(COUNTS)
        assert described(result, capsys) == (
            "SubqueryAlias windows.tumbling by applyInPandasWithState: state_api='auto', and the "
            "state store of the session is not RocksDB"
        )
        rows = [
            row for _, table, _ in run_query(result, tmp_path, 300) for row in table.to_pylist()
        ]
        assert [(row["k"], row["n"]) for row in rows] == [("a", 2)]
        assert run_smoke_query(spark).ok


def test_on_a_stock_session_chains_are_refused_with_the_setting(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value % 2 k", "timestamp ts")
    fix = f'spark.conf.set("{PROVIDER}", "{ROCKSDB}") before the first operator of the query is applied'
    per_hour = windows.tumbling("1 hour", time="window_start", agg={"n": agg.sum("n")})
    aggregated = stream.withWatermark("ts", "1 minute").groupBy(F.window("ts", "1 minute")).count()
    spark_windows = aggregated.selectExpr("window.start AS window_start", "count AS n", "window")
    table = spark.createDataFrame([("x", 1)], "k string, seq long")
    changes = stream.selectExpr("string(k) k", "unix_micros(ts) seq")
    posts = changes.selectExpr("'insert' _change_type", "k author", "seq id", "seq rank")
    follows = changes.selectExpr("'insert' _change_type", "k author", "k reader")
    in_two_steps = joins.timeline(
        follows, by="author", user="reader", key="id", ranked_by="rank", cap=3
    )
    with_snapshot = joins.enrich(changes, by="k", sequence="seq", horizon=10, snapshot=table)
    with state_store(spark, HDFS):
        results = stream.transform(COUNTS)
        unmarked = results.select("k", "n", F.current_timestamp().alias("window_start"))
        for frame, operator in (
            (results, per_hour),
            (spark_windows, per_hour),
            (unmarked, windows.running(by="k", agg={"n": agg.sum("n")})),
        ):
            with pytest.raises(SpecError, match="STATE_API_NOT_CHAINABLE") as refused:
                frame.transform(operator)
            assert refused.value.fix == fix
        for frame, operator, why in (
            (changes, with_snapshot, "its state starts with the rows of a frame"),
            (posts, in_two_steps, "its second step follows in the same query"),
        ):
            with pytest.raises(RequirementError, match="ROCKSDB_REQUIRED") as missing:
                frame.transform(operator)
            assert missing.value.fix == fix
            assert missing.value.expected.endswith(why)
    assert stream.transform(COUNTS).transform(per_hour).isStreaming


@pytest.mark.parametrize(
    ("first", "then"), [(HDFS, ROCKSDB), (ROCKSDB, HDFS)], ids=["to RocksDB", "from RocksDB"]
)
def test_a_checkpoint_refuses_the_state_api_of_changed_settings_and_continues_with_its_own(
    spark: SparkSession, tmp_path: Path, first: str, then: str
) -> None:
    totals = windows.running(by="k", agg={"n": agg.count()}).options(shards=1)
    with state_store(spark, first):
        run_query(events(spark, ROWS[:1], tmp_path).transform(totals), tmp_path, 300)
    with state_store(spark, then):
        more = events(spark, MORE, tmp_path)
        with pytest.raises(StreamingQueryException) as refused:
            run_query(more.transform(totals), tmp_path, 300)
        message = str(refused.value)
        assert "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA" in message
        # Spark takes the state store from the checkpoint, so the session needs no other setting.
        own = totals.options(state_api=GROUPS if first == HDFS else TRANSFORM)
        if first == ROCKSDB:
            spark.conf.set(PROVIDER, ROCKSDB)  # the plan is refused without it
        ran = run_query(more.transform(own), tmp_path, 300)
    rows = [row for _, table, _ in ran for row in table.to_pylist()]
    assert [(row["k"], row["n"]) for row in rows] == [("a", 3)]


FIRST_USE = """
from pyspark.sql import SparkSession
from streamops import aggregates as agg, windows

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("k string, ts timestamp").parquet("input")
counts = windows.tumbling("10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds")
query = rows.transform(counts).writeStream.format("memory").queryName("counts")
query.trigger(availableNow=True).start().awaitTermination()
print(sorted((row.k, row.n) for row in spark.table("counts").collect()))
"""


@pytest.mark.slow
def test_a_session_without_any_setting_runs_an_operator(tmp_path: Path) -> None:
    """In a process of its own: a session that was never configured, with 200 partitions."""
    (tmp_path / "input").mkdir()
    rows = [row for batch in ROWS for row in batch]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "input" / "rows.parquet")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    environ |= {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines() == ["[('a', 2)]"], done.stderr
