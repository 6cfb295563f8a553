"""Micro-batches that tasks of Spark write, and those that pass the driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import sinks
from streamops.sinks import tasks
from streamops.sinks.core.net import digest
from streamops.sinks.parquet_folder import Folder
from streamops.sinks.tasks import Projection, deliver_nothing

pytestmark = pytest.mark.spark

COLUMNS = """id, cast(id AS string) AS s, cast(NULL AS void) AS n, cast(id AS decimal(20, 3)) AS d,
    timestamp_micros(id) AS t, cast(timestamp_micros(id) AS timestamp_ntz) AS tn, DATE '2020-01-01' AS da,
    array(id, NULL) AS a, map(cast(id AS string), id) AS m, struct(id AS x, 'y' AS y) AS st,
    X'00FF' AS b, cast(id AS float) AS f, cast(id AS double) / 3 AS g, cast(id % 100 AS tinyint) AS ti, TRUE AS bo,
    array(struct(id AS x)) AS ast"""


def rows(spark: SparkSession, count: int, partitions: int = 4) -> DataFrame:
    return spark.sql(f"SELECT {COLUMNS} FROM range(0, {count}, 1, {partitions})")


def test_the_digest_does_not_depend_on_who_writes_nor_on_the_session(spark: SparkSession) -> None:
    projection = Projection(rows(spark, 300))
    table = projection.collect()
    small = projection.collect_small(tasks.SMALL)
    assert small is not None
    assert projection.schema.equals(table.schema)
    receipts = projection.run_tasks(deliver_nothing)
    assert (receipts.rows, receipts.digest, receipts.former_digest) == (300, *digest(table))
    assert digest(small) == digest(table)
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        assert digest(projection.collect()) == digest(table)
        assert projection.run_tasks(deliver_nothing).digest == digest(table)[0]
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def test_a_micro_batch_that_is_not_small_is_not_collected(spark: SparkSession) -> None:
    numbers = spark.range(0, 1_000, 1, 4)  # of eight bytes
    assert Projection(numbers.where("id < 100")).collect_small(4_000) is not None
    assert Projection(numbers).collect_small(4_000) is None
    assert Projection(numbers.where("id < 250")).collect_small(4_000) is not None  # in one task
    text = numbers.where("id < 100").select(F.repeat(F.lit("x"), 100).alias("s"))
    assert Projection(text).collect_small(4_000) is None


@pytest.mark.smoke
def test_tasks_write_a_folder_until_micro_batches_are_small(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = rows(spark, 2_000)
    path = str(tmp_path / "archive")
    sink = sinks.parquet(path)
    sink.write(frame, query="job", batch_id=0)
    sink.session.is_small = False
    sink.write(frame.where("id < 10"), query="job", batch_id=1)
    assert sink.session.is_small
    sink.write(frame.where("id < 5"), query="job", batch_id=2)
    found = sinks.read_parquet(path, check="content").to_table()
    assert len(found) == 2_015
    files = {str(f.relative_to(path)) for f in Path(path, "_batches").rglob("*.parquet")}
    manifests = Folder(path, None).read_all("content")
    assert files == {file.path for manifest in manifests for file in manifest.files}
    assert len(manifests[0].files) == 4  # one per task
