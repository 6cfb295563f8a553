"""Lookups on Spark: when the table is read, and which entry a row is joined with."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import joins
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError
from streamops.testing import micro_batches

pytestmark = pytest.mark.spark

ROWS = [("EWR", 1), ("JFK", 2), (None, 3), ("XXX", 4)]


def flights(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "code string, n int")


def airports(spark: SparkSession, *more: Any, city: str = "Newark") -> DataFrame:
    rows = [("EWR", city, {"runways": 3}), ("JFK", "New York", None), (None, "?", None), *more]
    return spark.createDataFrame(rows, "code string, city string, extra map<string,int>")


def arguments(frame: DataFrame) -> list[Any]:
    return sorted((row.code, row.city, row.status) for row in frame.collect() if row.code)


def test_a_row_is_joined_with_the_entry_of_its_key(spark: SparkSession) -> None:
    found = flights(spark).transform(joins.lookup(airports(spark), by="code"))
    assert found.columns == ["code", "n", "city", "extra", "status"]
    rows = {row.n: (row.city, row.extra, row.status) for row in found.collect()}
    assert rows == {
        1: ("Newark", {"runways": 3}, "matched"),
        2: ("New York", None, "matched"),
        3: (None, None, "missing"),  # a null matches nothing
        4: (None, None, "missing"),
    }
    inner = joins.lookup(
        airports(spark).withColumnRenamed("code", "Code").withColumnRenamed("city", "N"),
        by={"code": "Code"},
        how="inner",
        into="found",
    )
    found = flights(spark).transform(inner)
    assert found.columns == ["code", "n", "N_right", "extra", "found"]
    assert sorted(row.n for row in found.collect()) == [1, 2]


def test_when_the_table_is_read(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    cities = (f"city {i}" for i in itertools.count())

    def load(session: SparkSession) -> DataFrame:
        return airports(session, city=next(cities))

    def seen(lookup: joins.lookup, times: int) -> list[str]:  # type: ignore[valid-type]
        frames = [flights(spark).transform(lookup) for _ in range(times)]  # type: ignore[arg-type]
        return [arguments(frame)[0][1] for frame in frames]

    assert seen(joins.lookup(load, by="code"), 2) == ["city 0", "city 0"]
    assert seen(joins.lookup(load, by="code", refresh="every batch"), 2) == ["city 1", "city 2"]
    clock = iter([100.0, 159.0, 160.0, 161.0])
    module = sys.modules["streamops.joins.lookup"]  # the name stands for the function
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    every_minute = joins.lookup(load, by="code", refresh="1 minute")
    assert seen(every_minute, 4) == ["city 3", "city 3", "city 4", "city 4"]
    assert repr(every_minute) == "joins.lookup(by='code', refresh='1 minute')"


def test_a_stream_uses_the_table_at_its_start(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "airports")
    airports(spark).write.parquet(path)
    script = [[{"code": "EWR", "n": 1}], [{"code": "LGA", "n": 2}]]
    frame = micro_batches(spark, script, directory=tmp_path / "rows")
    joined = frame.transform(joins.lookup(lambda s: s.read.parquet(path), by="code"))
    spark.createDataFrame(
        [("LGA", "New York", None)], "code string, city string, extra map<string,int>"
    ).write.mode("overwrite").parquet(path)
    stored: list[Any] = []
    query = (
        joined.writeStream.foreachBatch(lambda batch, _: stored.append(arguments(batch)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    assert stored[:2] == [[("EWR", "Newark", "matched")], [("LGA", None, "missing")]]


@pytest.mark.parametrize(
    ("given", "dtype", "code"),
    [
        ({"refresh": "every batch"}, SpecError, "PARAMETER_WITHOUT_EFFECT"),
        ({"refresh": "1 month"}, SpecError, "INVALID_DURATION"),
        ({"how": "full"}, SpecError, "UNKNOWN_CHOICE"),
        ({"by": []}, SpecError, "PARAMETER_MISSING"),
        ({"by": "kode"}, ColumnNotFound, "COLUMN_NOT_FOUND"),
        ({"by": {"n": "code"}}, SchemaError, "COLUMN_TYPE"),
        ({"by": {"code": "extra"}}, SchemaError, "TYPE_UNSUPPORTED"),
        ({"into": "city"}, SchemaError, "NAME_TAKEN"),
    ],
)
def test_mistakes_are_refused(
    spark: SparkSession, given: dict[str, Any], dtype: type[StreamopsError], code: str
) -> None:
    with pytest.raises(dtype) as caught:
        flights(spark).transform(joins.lookup(airports(spark), **({"by": "code"} | given)))
    assert caught.value.code == code


def test_values_other_than_frames_are_refused(spark: SparkSession) -> None:
    for table in (None, 5, "airports"):
        with pytest.raises(SpecError) as caught:
            joins.lookup(table, by="code")  # type: ignore[arg-type]
        assert caught.value.code == "NOT_A_FRAME"
    assert caught.value.fix.startswith("spark.table('airports')")
    loaded = joins.lookup(lambda _: "airports", by="code")  # type: ignore[arg-type, return-value]
    with pytest.raises(SpecError, match="NOT_A_FRAME"):
        flights(spark).transform(loaded)
    times: dict[str, Any] = {"by": "code", "time": "at", "delay": "1 minute"}
    copied: dict[str, Any] = {"by": "code", "sequence": "n", "horizon": 1}
    for join in (
        joins.interval("airports", "0 seconds", "1 minute", **times),  # type: ignore[arg-type]
        joins.tables("airports", by="code"),  # type: ignore[arg-type]
        joins.enrich("airports", **copied),  # type: ignore[arg-type]
        joins.enrich("airports", snapshot=airports(spark), **copied),  # type: ignore[arg-type]
    ):
        with pytest.raises(SpecError, match="NOT_A_FRAME") as caught:
            flights(spark).transform(join)
        assert "the right frame is not a DataFrame" in str(caught.value)
    begun = joins.enrich(airports(spark), snapshot="airports", **copied)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="NOT_A_FRAME") as caught:
        flights(spark).transform(begun)
    assert "the snapshot is not a DataFrame" in str(caught.value)


def test_types_without_arrow_support_and_metadata_of_another_query(
    spark: SparkSession,
) -> None:
    spans = flights(spark).withColumn("span", F.make_ym_interval(F.col("n")))
    stale = {"spark.watermarkDelayMs": 1_000, "comment": "where it is"}
    marked = airports(spark).select("code", F.col("city").alias("city", metadata=stale))
    found = spans.transform(joins.lookup(marked, by="code"))
    assert found.columns == ["code", "n", "span", "city", "status"]
    assert found.schema["city"].metadata == {"comment": "where it is"}
    stored = {
        r.n: r.stored
        for r in found.select("n", F.col("span").cast("string").alias("stored")).collect()
    }
    assert stored == {
        r.n: r.stored
        for r in spans.select("n", F.col("span").cast("string").alias("stored")).collect()
    }


def test_entries_may_be_null_where_their_fields_are_not(spark: SparkSession) -> None:
    inner = spark.range(1).selectExpr("id", "named_struct('q', 5) AS s")
    inner = inner.selectExpr("id", "s", "array(s) AS l", "map('m', s) AS m", "array() AS none")
    table = spark.range(2).join(inner, "id", "left")
    found = spark.range(3).transform(joins.lookup(table, by="id")).orderBy("id").collect()
    assert [row["status"] for row in found] == ["matched", "matched", "missing"]
    assert found[0].asDict(recursive=True) == {
        "id": 0, "s": {"q": 5}, "l": [{"q": 5}], "m": {"m": {"q": 5}}, "none": [], "status": "matched",
    }  # fmt: skip
    assert tuple(found[1]) == (1, None, None, None, None, "matched")
    vectors = spark.createDataFrame([(1, Vectors.dense([1.0]))], ["id", "v"])
    with pytest.raises(SchemaError, match=r"\[TYPE_UNSUPPORTED\].*\n.*vector") as caught:
        spark.range(3).transform(joins.lookup(vectors, by="id"))
    assert "vector_to_array" in caught.value.fix
    whole = vectors.withColumn("v", vector_to_array("v"))
    (row,) = spark.range(3).transform(joins.lookup(whole, by="id", how="inner")).collect()
    assert row["v"] == [1.0]


def test_a_change_stream_with_a_refreshed_table_is_refused(
    spark: SparkSession,
) -> None:
    changes = flights(spark).withColumn("_change_type", F.lit("insert"))
    still = joins.lookup(airports(spark), by="code")
    assert "status" in changes.transform(still).columns
    moving = joins.lookup(lambda session: airports(session), by="code", refresh="every batch")
    with pytest.raises(SchemaError, match="ROWS_REVISED") as caught:
        changes.transform(moving)
    assert "joins.tables" in caught.value.fix


def test_duplicate_keys_are_refused(spark: SparkSession) -> None:
    twice = airports(spark, ("JFK", "Idlewild", None), (None, "??", None))
    with pytest.raises(SchemaError) as caught:
        flights(spark).transform(joins.lookup(twice, by="code"))
    assert caught.value.code == "KEY_NOT_UNIQUE"
    assert caught.value.got == "1 rows too many, for example of [{'code': 'JFK'}]"


def test_streams_are_refused_as_tables_and_with_refresh(spark: SparkSession) -> None:
    stream = micro_batches(spark, [[{"code": "EWR", "n": 1}]])
    with pytest.raises(SpecError) as caught:
        stream.transform(joins.lookup(airports, by="code", refresh="every batch"))
    assert caught.value.code == "PARAMETER_WITHOUT_EFFECT"
    with pytest.raises(SpecError) as caught:
        flights(spark).transform(joins.lookup(stream, by="code"))
    assert caught.value.code == "STREAMING_FRAME"
