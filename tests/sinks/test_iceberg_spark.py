"""Tasks of Spark write the appended rows of a large micro-batch to Iceberg."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sinks
from streamops.errors import SinkError

catalogs = pytest.importorskip("pyiceberg.catalog")

pytestmark = pytest.mark.spark
TABLE = "shop.rows"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}"}


def files(properties: Any) -> list[Any]:
    table = catalogs.load_catalog(**properties).load_table(TABLE)
    return [task.file for task in table.scan().plan_files()]


def numbers(properties: Any, column: str = "id") -> list[int]:
    table = catalogs.load_catalog(**properties).load_table(TABLE)
    values: list[int] = table.scan().to_arrow().column(column).to_pylist()
    return sorted(values)


def test_tasks_write_the_files_and_one_commit_adds_them(
    spark: SparkSession, properties: Any
) -> None:
    frame = spark.range(0, 1000, numPartitions=3)
    sink = sinks.iceberg(properties, TABLE)
    for _ in range(2):
        sink.write(frame, query="job")
    assert numbers(properties) == list(range(1000))
    assert len(files(properties)) == 3
    table = catalogs.load_catalog(**properties).load_table(TABLE)
    assert len(table.metadata.snapshots) == 1
    with pytest.raises(SinkError, match="BATCH_DIFFERS"):
        sinks.iceberg(properties, TABLE).write(spark.range(999), query="job")
    # Another one adds columns, and the third replaces all rows.
    more = frame.withColumn("more", F.lit(1))
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        sinks.iceberg(properties, TABLE).write(more, query="job", batch_id=1)
    sinks.iceberg(properties, TABLE, columns="add").write(more, query="job", batch_id=1)
    assert numbers(properties) == sorted([*range(1000), *range(1000)])
    replacing = sinks.iceberg(properties, TABLE, new_checkpoint="replace")
    replacing.write(spark.range(10), query="other")
    assert numbers(properties) == list(range(10))


def test_tasks_write_to_partitions(spark: SparkSession, properties: Any) -> None:
    catalog = catalogs.load_catalog(**properties)
    catalog.create_namespace("shop")
    frame = spark.range(0, 100, numPartitions=2).withColumn(
        "day", F.date_add(F.lit(dt.date(2026, 1, 1)), (F.col("id") % 3).cast("int"))
    )
    table = catalog.create_table(TABLE, frame.limit(0).toArrow().schema)
    with table.update_spec() as update:
        update.add_field("day", "day", "d")
    sinks.iceberg(properties, TABLE).write(frame, query="job")
    assert numbers(properties) == list(range(100))
    assert sorted(file.partition[0] for file in files(properties)) == [20454, 20454, 20455, 20455, 20456, 20456]  # fmt: skip


def test_a_null_that_the_table_refuses_fails_no_job_twice(
    spark: SparkSession, properties: Any
) -> None:
    catalog = catalogs.load_catalog(**properties)
    catalog.create_namespace("shop")
    schema = spark.range(1).toArrow().schema
    catalog.create_table(TABLE, schema.set(0, schema.field(0).with_nullable(False)))
    frame = spark.range(0, 10).withColumn("id", F.when(F.col("id") != 3, F.col("id")))
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        sinks.iceberg(properties, TABLE).write(frame, query="job")
    assert numbers(properties) == []
