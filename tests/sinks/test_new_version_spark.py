"""The recipe of `docs/operations.md`: a new version of a job fills its own table, is compared, and takes over."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.cdc_mirror import query
from examples.feed import at, write
from streamops import aggregates as agg
from streamops import changes, sinks, windows

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

KEY = ["page", "window_start"]


def views(spark: SparkSession, folder: Path) -> DataFrame:
    """The retained log."""
    return spark.readStream.schema("page string, ts timestamp, ms bigint").json(str(folder))


def deliver(
    frame: DataFrame, values: dict[str, agg.Aggregate], table: str, url: str, folder: Path
) -> None:
    """Count the log into a table, from a checkpoint of the version."""
    per_minute = windows.tumbling("1 minute", time="ts", by="page", agg=values, delay="10 seconds")
    sink = sinks.postgres(url, table, key=KEY)
    query = (
        frame.transform(per_minute)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / table))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_new_version_is_filled_compared_and_switched(
    spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    host = next(part.removeprefix("host=") for part in postgres.split() if "host=" in part)
    url, log = f"postgresql://postgres@/postgres?host={host}", tmp_path / "log"
    rows = [{"page": f"p{n % 3}", "ts": at(9, n / 10), "ms": n * n % 97} for n in range(300)]
    write([rows[:200], rows[200:]], log)
    with psycopg.connect(postgres, autocommit=True) as server:
        for table, more in (("views_1", ""), ("views_2", ", slowest bigint")):
            server.execute(
                f"CREATE TABLE {table} (page text, window_start timestamptz, window_end timestamptz,"
                f" n bigint{more}, PRIMARY KEY (page, window_start))"
            )
        deliver(views(spark, log), {"n": agg.count()}, "views_1", url, tmp_path)
        server.execute("CREATE VIEW views AS SELECT * FROM views_1")

        more = {"n": agg.count(), "slowest": agg.max("ms")}
        deliver(views(spark, log), more, "views_2", url, tmp_path)
        old = query(url, "SELECT * FROM views_1", spark)
        new = query(url, "SELECT * FROM views_2", spark)
        assert old.count() > 50
        assert not changes.differences(new.select(old.columns), old, key=KEY)
        server.execute(
            "UPDATE views_2 SET n = n + 1 WHERE page = 'p1'"
        )  # as a fault of version 2 would
        found = changes.differences(
            query(url, "SELECT * FROM views_2", spark).select(old.columns), old, key=KEY
        )
        assert "different in n" in repr(found)
        # A column more at the end: readers of the view do not have to change.
        server.execute("CREATE OR REPLACE VIEW views AS SELECT * FROM views_2")
        names = [of.name for of in server.execute("SELECT * FROM views").description or ()]
    assert names == ["page", "window_start", "window_end", "n", "slowest"]
