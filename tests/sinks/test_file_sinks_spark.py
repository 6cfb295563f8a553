"""The sinks for Delta, Parquet and SQLAlchemy under queries that fail and start again."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import changes, sinks, windows
from streamops.sinks.sink import Sink
from streamops.testing import fold

deltalake = pytest.importorskip("deltalake")
sa = pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.spark

BATCHES = 4


def test_revisions_without_a_key_are_warned_about_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = spark.range(2).withColumn("revision", F.lit(0))
    for key, warnings in ((None, 1), ("id", 1)):
        sink = sinks.sqlalchemy(f"sqlite:///{tmp_path}/x.db", f"t {key}", key=key)
        for batch in range(2):
            sink.write(frame.withColumn("revision", F.lit(batch)), query="q", batch_id=batch)
        assert caplog.text.count("for each revision") == warnings


def write_input(folder: Path) -> Path:
    """Files with rows, one per micro-batch; keys return, and one is null."""
    source = folder / "input"
    source.mkdir()
    for number in range(BATCHES):
        keys = [None if k == 3 else f"key {k * (number + 1) % 5}" for k in range(8)]
        rows = pa.table({"k": keys, "v": [number * 10 + k for k in range(8)]})
        pq.write_table(rows, source / f"{number}.parquet")
    return source


def run(
    spark: SparkSession, folder: Path, make_sink: Callable[[], Sink], mode: Any = "retract"
) -> None:
    """Run a query to its end. It fails after the commit of the target, and before that of Spark."""
    source = folder / "input" if (folder / "input").exists() else write_input(folder)
    counting = windows.running(by="k", agg={"n": agg.count(), "v": agg.sum("v")}, changes=mode)
    failed = set()
    for _ in range(3):
        sink = make_sink()

        def deliver(batch: DataFrame, number: int, sink: Sink = sink) -> None:
            sink(batch, number)
            if number in (0, 2) and number not in failed:
                failed.add(number)
                raise RuntimeError(f"stopped after {number}")

        stream = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
        query = (
            stream.parquet(str(source))
            .transform(counting)
            .writeStream.foreachBatch(deliver)
            .outputMode("append" if mode == "retract" else "update")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException:
            continue
    assert failed == {0, 2}
    entry = sink.read_ledger()
    assert entry is not None
    assert (entry.batch, entry.generation) == (BATCHES - 1, 3)


def expected(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    frame = spark.read.parquet(str(folder / "input")).groupBy("k")
    rows = frame.agg(F.count("*").alias("n"), F.sum("v").alias("v")).collect()
    return ordered(tuple(row) for row in rows)


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def test_a_delta_table_is_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    run(spark, tmp_path, lambda: sinks.delta(path, key="k"))
    found = pa.table(deltalake.DeltaTable(path).scan(columns=["k", "n", "v"]).read_all())
    assert ordered(tuple(row.values()) for row in found.to_pylist()) == expected(spark, tmp_path)


def test_a_parquet_folder_has_the_change_stream(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "archive [1] {x}")
    run(spark, tmp_path, lambda: sinks.parquet(path))
    stored = sinks.read_parquet(path, check="content").to_table().to_pylist()
    rows = fold(stored, key="k")
    assert ordered((r["k"], r["n"], r["v"]) for r in rows) == expected(spark, tmp_path)
    frame = sinks.read_parquet(path, spark=spark)
    folded = frame.transform(changes.fold("k")).select("k", "n", "v").collect()
    assert ordered(map(tuple, folded)) == expected(spark, tmp_path)
    # Types and times as Spark has them, also before the Gregorian calendar.
    old = spark.sql(
        "SELECT TIMESTAMP '0001-01-01 00:00:00' AS t, DATE '0001-01-01' AS d, NULL AS n"
    )
    other = sinks.parquet(str(tmp_path / "other"))
    other.write(old, query="job")
    other.write(old.limit(0), query="job", batch_id=1)
    again = sinks.read_parquet(str(tmp_path / "other"), spark=spark)
    text = [F.col(name).cast("string") for name in "tdn"]
    assert again.select(text).collect() == old.select(text).collect()
    empty = sinks.parquet(str(tmp_path / "empty"))
    empty.write(old.limit(0), query="job")
    assert sinks.read_parquet(str(tmp_path / "empty"), spark=spark).count() == 0


@pytest.mark.parametrize("mode", ["retract", "update"])
def test_a_table_of_a_database_is_the_batch_result(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    url = f"sqlite:///{tmp_path}/database"
    run(spark, tmp_path, lambda: sinks.sqlalchemy(url, "totals", key="k"), mode)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        table = sa.Table("totals", sa.MetaData(), autoload_with=connection)
        found = connection.execute(sa.select(table.c.k, table.c.n, table.c.v)).all()
    engine.dispose()
    assert ordered(map(tuple, found)) == expected(spark, tmp_path)
    nested = spark.sql("SELECT array(1, NULL) AS a, struct(1 AS x) AS s")
    sinks.sqlalchemy(url, "nested").write(nested, query="job")


def test_side_output_is_stored_in_every_target(spark: SparkSession, tmp_path: Path) -> None:
    late = (
        "named_struct('side', 'left', 'window', NULL, 'reason', 'too_late', "
        "'lateness', INTERVAL '1 00:00:01.5' DAY TO SECOND, 'watermark', TIMESTAMP '2026-01-01 00:00:00', 'row', named_struct('n', 7))"
    )
    frame = spark.sql(f"SELECT NULL AS n, {late} AS late UNION ALL SELECT 1, NULL")
    url = f"sqlite:///{tmp_path}/database"
    targets: dict[str, Callable[[str], Sink]] = {
        "delta": lambda name: sinks.delta(str(tmp_path / f"delta {name}")),
        "parquet": lambda name: sinks.parquet(str(tmp_path / f"parquet {name}")),
        "sqlalchemy": lambda name: sinks.sqlalchemy(url, name),
    }
    for make in targets.values():
        sink = sinks.side_outputs(
            results=make("results"), rejected=make("rejected"), operator="windows"
        )
        sink.write(frame, query="job")
    expected = [("too_late", Decimal("86401.5"))]
    table = sinks.read_parquet(str(tmp_path / "parquet rejected")).to_table()
    for found in (table, pa.table(deltalake.DeltaTable(str(tmp_path / "delta rejected")).scan().read_all())):  # fmt: skip
        assert [(r["reason"], r["lateness"]) for r in found.to_pylist()] == expected
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT reason, lateness FROM rejected")).all()
    engine.dispose()
    assert [(reason, Decimal(lateness)) for reason, lateness in rows] == expected


def test_spark_types_are_stored_in_delta(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "types")
    frame = spark.sql(
        "SELECT 1Y AS a, 2S AS b, 3 AS c, 4L AS d, 1.5F AS e, double('NaN') AS f, 1.25BD AS g, 'x' AS h, "
        "X'00FF' AS i, true AS j, DATE '0001-01-01' AS k, TIMESTAMP '9999-12-31 23:59:59.999999' AS l, "
        "TIMESTAMP_NTZ '2020-01-01 00:00:00' AS m, array(1, NULL) AS n, map('a', 1.5D) AS o, "
        "named_struct('x', array(named_struct('y', 1))) AS p, NULL AS q"
    )
    sinks.delta(path).write(frame, query="job")
    table = pa.table(deltalake.DeltaTable(path).scan().read_all())
    found = spark.createDataFrame(table.cast(_plain(table.schema)))
    assert repr(found.collect()) == repr(
        frame.withColumn("q", F.lit(None).cast("string")).collect()
    )


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_nested_values_do_not_depend_on_the_time_zone_of_the_session(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    """Also in the hours in which clocks are changed, and before time zones."""
    previous = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.sql(
            "SELECT t, array(t, NULL) AS a, named_struct('t', t, 'l', l, 'd', 1.10BD) AS s, map(t, 'x') AS m, "
            "array(named_struct('l', l)) AS n FROM VALUES "
            "(timestamp_micros(1772955000000001), TIMESTAMP_NTZ '2026-03-08 02:30:00.000001'), "
            "(timestamp_micros(1793511000123456), TIMESTAMP_NTZ '0001-01-01 00:00:00.000001'), "
            "(timestamp_micros(-62135596799999999), TIMESTAMP_NTZ '9999-12-31 23:59:59.999999') AS v(t, l)"
        )
        sinks.delta(str(tmp_path / "delta")).write(frame, query="job")
        sinks.parquet(str(tmp_path / "parquet")).write(frame, query="job")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(previous))
    delta = pa.table(deltalake.DeltaTable(str(tmp_path / "delta")).scan().read_all())
    micros = [1772955000000001, 1793511000123456, -62135596799999999]
    local = [1772937000000001, -62135596799999999, 253402300799999999]
    instant, plain = pa.timestamp("us", "UTC"), pa.timestamp("us")
    for found in (delta, sinks.read_parquet(str(tmp_path / "parquet"), check="content").to_table()):
        found = found.sort_by([("t", "descending")])
        at = [sorted(micros, reverse=True).index(value) for value in micros]
        found = found.take(pa.array(at))
        values = {name: found.column(name).combine_chunks() for name in ("t", "a", "s", "m", "n")}
        assert values["t"].cast(instant).cast(pa.int64()).to_pylist() == micros
        lists = values["a"].flatten().cast(instant).cast(pa.int64()).to_pylist()
        assert lists == [part for value in micros for part in (value, None)]
        assert values["s"].field("t").cast(instant).cast(pa.int64()).to_pylist() == micros
        assert values["s"].field("l").cast(plain).cast(pa.int64()).to_pylist() == local
        assert set(values["s"].field("d").to_pylist()) == {Decimal("1.10")}
        keys = values["m"].keys.cast(instant).cast(pa.int64()).to_pylist()
        assert sorted(keys) == sorted(micros)
        assert sorted(
            values["n"].flatten().field("l").cast(plain).cast(pa.int64()).to_pylist()
        ) == sorted(local)


@pytest.mark.parametrize("sink", ["delta", "parquet"])
@pytest.mark.parametrize(
    "value",
    ["make_interval(1, 2)", "INTERVAL '1-2' YEAR TO MONTH", "array(INTERVAL '1-2' YEAR TO MONTH)"],
)
def test_types_without_a_form_in_arrow_are_refused(
    spark: SparkSession, tmp_path: Path, sink: str, value: str
) -> None:
    path = tmp_path / "target"
    with pytest.raises(Exception, match="UNSUPPORTED"):
        getattr(sinks, sink)(str(path)).write(spark.sql(f"SELECT {value} AS v"), query="job")
    assert not path.exists()


def _plain(schema: pa.Schema) -> pa.Schema:
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([part.with_type(views.get(part.type, part.type)) for part in schema])
