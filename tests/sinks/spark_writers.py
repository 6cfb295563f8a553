"""Writes tables of Delta and Iceberg with their connectors: a program of an environment with the Spark of these."""

import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamops import sinks
from streamops.errors import StreamopsError
from streamops.sinks.sink import Sink
from streamops.spark.identity import Identity
from tests.jvm import SHORT_LIVED

RUN, NEXT = Identity("query", "run 1"), Identity("query", "run 2")
Row = tuple[Any, ...]


def start(jars: str, folder: str) -> SparkSession:
    settings = {
        "spark.driver.extraClassPath": ":".join(map(str, Path(jars).glob("*.jar"))),
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        # Micro-batches of some rows: to compile code for them takes longer than to run them.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{folder}/lake",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Table:
    """A table of Delta with deletion vectors, column mapping, partitions and a generated column."""

    def __init__(self, spark: SparkSession, folder: str, name: str) -> None:
        self.spark, self.path = spark, f"{folder}/{name}"
        self.name = f"delta.`{self.path}`"
        spark.sql(
            f"CREATE TABLE {self.name} (k bigint NOT NULL, `a b` string, revision bigint, "
            "g bigint GENERATED ALWAYS AS (k % 2)) USING delta PARTITIONED BY (g) TBLPROPERTIES "
            "('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')"
        )

    def frame(self, *rows: Row) -> DataFrame:
        return self.spark.createDataFrame(list(rows), "k bigint, `a b` string, revision bigint")

    def sink(self, **options: Any) -> Any:
        return sinks.delta(self.path, writer="spark", **options)

    def deliver(self, sink: Sink, batch: int, run: Identity, *rows: Row) -> None:
        sink._deliver(self.frame(*rows), batch, run)

    def rows(self) -> list[Row]:
        found = self.spark.table(self.name).select("k", "`a b`", "revision").collect()
        return sorted(map(tuple, found))

    def version(self) -> int:
        return self.spark.sql(f"DESCRIBE HISTORY {self.name}").count()


class IcebergTable(Table):
    """A table of Iceberg with deletion vectors, which pyiceberg does not write."""

    def __init__(self, spark: SparkSession, folder: str, name: str) -> None:
        self.spark, self.path, self.name = spark, f"shop.{name}", f"lake.shop.{name}"
        spark.sql(
            f"CREATE TABLE {self.name} (k bigint NOT NULL, `a b` string, revision bigint) "
            "USING iceberg PARTITIONED BY (bucket(2, k)) TBLPROPERTIES ('format-version' = '3', "
            "'write.merge.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read')"
        )

    def sink(self, **options: Any) -> Any:
        return sinks.iceberg("lake", self.path, writer="spark", **options)

    def rows(self) -> list[Row]:
        self.spark.catalog.refreshTable(self.name)  # the catalog of each session has a cache
        return super().rows()

    def version(self) -> int:
        return self.spark.table(f"{self.name}.snapshots").count()


TableType = type[Table]


def code_of(action: Any) -> str:
    try:
        action()
    except StreamopsError as error:
        return str(error.code)
    return ""


def check_appends(table_type: TableType, spark: SparkSession, folder: str) -> None:
    table = table_type(spark, folder, "appends")
    first = table.sink()
    table.deliver(first, 0, RUN, (1, "a", 1), (2, "b", 1))
    table.deliver(first, 1, RUN, (3, "c", 1))
    # The driver dies after the commit, before the checkpoint: the micro-batch comes again, once.
    second = table.sink()
    table.deliver(second, 1, NEXT, (3, "c", 1))
    assert second.read_ledger().generation == 2
    expected = [(1, "a", 1), (2, "b", 1), (3, "c", 1)]
    assert table.rows() == expected
    before = table.version()
    table.deliver(table.sink(), 1, NEXT, (3, "c", 1))
    assert table.version() == before, "a repeated micro-batch of the same run has no commit"
    assert code_of(lambda: table.deliver(first, 2, RUN, (9, "frozen", 1))) == "FENCED"
    assert code_of(lambda: table.deliver(second, 1, NEXT, (3, "other", 1))) == "BATCH_DIFFERS"
    assert code_of(lambda: table.deliver(second, 3, NEXT, (4, "d", 1))) == "BATCH_GAP"
    assert table.rows() == expected
    spark.sql(f"INSERT INTO {table.name} (k, `a b`, revision) VALUES (7, 'other', 1)")
    spark.sql(f"DELETE FROM {table.name} WHERE k = 1")
    table.deliver(second, 2, NEXT, (4, "d", 1))
    assert table.rows() == [*expected[1:], (4, "d", 1), (7, "other", 1)]
    if table_type is IcebergTable:
        # The first snapshot is that of an empty branch.
        start = spark.table(f"{table.name}.snapshots").sort("committed_at").collect()[1].snapshot_id
        spark.sql(f"CALL lake.system.rewrite_data_files('{table.path}')")
        assert table.sink().read_ledger().batch == 2
        assert not [
            ref for ref in spark.table(f"{table.name}.refs").collect() if ref.name != "main"
        ]
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.path}', {start})")
        assert code_of(lambda: table.deliver(second, 3, NEXT, (5, "e", 1))) == "BATCH_GAP"
        table.deliver(second, 1, NEXT, (3, "c", 1))
        assert table.rows() == expected
        return
    spark.sql(f"OPTIMIZE {table.name}")
    assert table.sink().read_ledger().batch == 2
    spark.sql(f"RESTORE TABLE {table.name} TO VERSION AS OF 1")
    assert code_of(lambda: table.deliver(second, 3, NEXT, (5, "e", 1))) == "LEDGER_LOST"


def check_upserts(table_type: TableType, spark: SparkSession, folder: str) -> None:
    table = table_type(spark, folder, "upserts")
    spark.sql(f"INSERT INTO {table.name} (k, `a b`, revision) SELECT id, 'old', 1 FROM range(4)")
    sink = table.sink(key="k")
    table.deliver(sink, 0, RUN, (1, "new", 2), (1, "newer", 3), (2, "older", 0), (9, "added", 1))
    expected = [(0, "old", 1), (1, "newer", 3), (2, "old", 1), (3, "old", 1), (9, "added", 1)]
    assert table.rows() == expected
    table.deliver(table.sink(key="k"), 0, NEXT, (1, "new", 2), (1, "newer", 3), (2, "older", 0), (9, "added", 1))  # fmt: skip
    assert table.rows() == expected
    assert code_of(lambda: table.deliver(sink, 1, RUN, (9, "frozen", 9))) == "FENCED"
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", "none") == "none"
    again = table.sink(key="k")
    table.deliver(again, 1, NEXT, (1, "older", 0))
    assert table.rows() == expected
    equal = (5, "x", 1), (5, "y", 1)
    before = table.version()
    assert code_of(lambda: table.deliver(again, 2, NEXT, *equal)) == "REVISION_OUT_OF_STEP"  # fmt: skip
    narrow = table.frame((5, "x", 1)).selectExpr("cast(k as string) k", "`a b`", "revision")
    wide = table.frame((5, "x", 1)).selectExpr("*", "1 AS more")
    changed = table.frame((5, "x", 1)).selectExpr("*", "'insert' AS _change_type")
    for frame, code in (narrow, "TARGET_TYPE"), (wide, "TARGET_COLUMNS"):
        assert code_of(lambda frame=frame: again._deliver(frame, 2, NEXT)) == code  # fmt: skip
    assert code_of(lambda: table.sink()._deliver(changed, 1, RUN)) == "TARGET_KIND"
    assert table.version() == before, "nothing is written"


def check_two_drivers(table_type: TableType, spark: SparkSession, folder: str) -> None:
    """A commit of a newer run between the decision of an older one and its commit."""
    table = table_type(spark, folder, "drivers")
    old, new = table.sink(), table.sink()
    table.deliver(old, 0, RUN, (1, "a", 1))
    sink_type = type(old)
    write = sink_type._write

    def frozen(self: Any, *args: Any) -> None:
        sink_type._write = write
        table.deliver(new, 1, NEXT, (2, "newer", 1))
        write(self, *args)

    sink_type._write = frozen
    assert code_of(lambda: table.deliver(old, 1, RUN, (2, "newer", 1))) == "FENCED"
    assert table.rows() == [(1, "a", 1), (2, "newer", 1)]


def check_changes(table_type: TableType, spark: SparkSession, folder: str) -> None:
    table = table_type(spark, folder, "changes")
    spark.sql(f"INSERT INTO {table.name} (k, `a b`, revision) SELECT id, 'old', 1 FROM range(3)")
    sink = table.sink(key="k")

    def deliver(batch: int, *rows: Row) -> str:
        names = "k bigint, `a b` string, revision bigint, _change_type string"
        frame = spark.createDataFrame(list(rows), names)
        return code_of(lambda: sink._deliver(frame, batch, RUN))

    pre, post = "update_preimage", "update_postimage"
    rows = (1, "old", 1, pre), (1, "new", 2, post), (2, "old", 1, "delete"), (8, "in", 1, "insert")
    assert not deliver(0, *rows)
    expected = [(0, "old", 1), (1, "new", 2), (8, "in", 1)]
    assert table.rows() == expected
    for row, code in (
        ((8, "again", 2, "insert"), "INSERTED_TWICE"),
        ((9, "none", 2, "delete"), "DELETED_UNPUBLISHED"),
    ):
        assert deliver(1, row, (5, "x", 1, "insert")) == code, code
    update = (1, "other", 2, pre), (1, "newer", 3, post)
    assert deliver(1, *update) == "PREIMAGE_NOT_PUBLISHED"
    assert deliver(1, (7, "other", 2, pre), (7, "newer", 3, post)) == "PREIMAGE_NOT_PUBLISHED"
    assert table.rows() == expected
    assert not deliver(1, (1, "new", 2, "delete"), (1, "back", 3, "insert"))
    assert not deliver(2)
    assert table.rows() == [(0, "old", 1), (1, "back", 3), (8, "in", 1)]


def check_crashes(table_type: TableType, spark: SparkSession, folder: str) -> None:
    """A driver that dies before or after a statement of the connector, or before it publishes a branch."""
    table = table_type(spark, folder, "crashes")
    table.deliver(table.sink(key="k"), 0, RUN, (1, "a", 1))
    sink_type, died = type(table.sink()), 0
    for number, name in enumerate(("_apply", "_apply", "_publish", "_publish")):
        method, run = getattr(sink_type, name, None), Identity("query", f"run {number + 2}")
        if method is None:
            continue

        def die(self: Any, *args: Any, is_after: int = number % 2, method: Any = method) -> None:
            if is_after:
                method(self, *args)
            raise KeyboardInterrupt

        rows = (number, "b", 1), (1, f"changed {number}", number + 2)
        setattr(sink_type, name, die)
        try:
            table.deliver(table.sink(key="k"), number + 1, run, *rows)
        except KeyboardInterrupt:
            died += 1
        finally:
            setattr(sink_type, name, method)
        again = table.sink(key="k")
        table.deliver(again, number + 1, Identity("query", f"run {number + 2} again"), *rows)
        assert table.rows().count((1, f"changed {number}", number + 2)) == 1, name
        assert again.read_ledger().batch == number + 1
    assert died == (4 if table_type is IcebergTable else 2)


def check_query(table_type: TableType, spark: SparkSession, folder: str) -> None:
    """A query that stops and starts again."""
    table = table_type(spark, folder, "query")
    source, checkpoint = (
        f"{folder}/source_{table_type.__name__}",
        f"{folder}/c_{table_type.__name__}",
    )
    for number in range(2):
        table.frame((number, "a", 1), (9, "b", number)).write.mode("append").parquet(source)
        rows = spark.readStream.schema(table.frame().schema).parquet(source)
        writer = rows.writeStream.foreachBatch(table.sink(key="k")).trigger(availableNow=True)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    assert table.rows() == [(0, "a", 1), (1, "a", 1), (9, "b", 1)]
    assert table.sink().read_ledger().batch == 1


CHECKS = check_query, check_appends, check_upserts, check_changes, check_two_drivers, check_crashes


def main(folder: str, jars: str, *names: str) -> None:
    spark = start(jars, folder)
    for table_type in Table, IcebergTable:
        for check in CHECKS:
            label = f"{table_type.__name__}.{check.__name__}"
            if not names or label in names:
                started = time.monotonic()
                check(table_type, spark, folder)
                print("PASSED", label, f"{time.monotonic() - started:.0f} s", flush=True)
    print("PASSED all", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
