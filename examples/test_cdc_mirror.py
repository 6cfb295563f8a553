"""Tests of the mirror: its logic without Spark, then the job once on Spark and PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples import data
from examples.cdc_mirror import mirror, query, read, shorten, start
from examples.feed import Row, at, write
from streamops.testing import fold, replay


def change(lsn: int, type_: str, city: str | None = None, *, key: int = 1) -> Row:
    """A change as `read` emits it."""
    row: Row = {"id": key, "name": "Ada", "city": city, "_change_type": type_}
    return {**row, "_sequence": {"log": 0, "offset": lsn, "position": 0}, "_changed_at": at(9, lsn)}


def cities(*batches: list[Row]) -> dict[int, str]:
    """The mirror after these micro-batches."""
    return {row["id"]: row["city"] for row in fold(replay(mirror, batches), key="id")}


def test_the_position_in_the_log_decides_not_the_order_of_arrival() -> None:
    created, moved = change(1, "insert", "Oslo"), change(2, "update_postimage", "Porto")
    assert cities([created], [moved]) == cities([moved], [created]) == {1: "Porto"}


def test_a_record_that_is_delivered_again_changes_nothing() -> None:
    created, moved = change(1, "insert", "Oslo"), change(2, "update_postimage", "Porto")
    assert cities([created, moved], [created], [moved]) == {1: "Porto"}


def test_an_old_change_does_not_restore_a_deleted_customer() -> None:
    moved, deleted = change(2, "update_postimage", "Porto"), change(3, "delete")
    assert cities([change(1, "insert", "Oslo")], [deleted], [moved]) == {}
    assert cities([deleted], [change(4, "insert", "Lisbon")], [moved]) == {1: "Lisbon"}


def test_two_changes_at_one_position_are_a_conflict_that_is_rejected() -> None:
    script = [[change(1, "insert", "Oslo"), change(1, "insert", "Porto")]]
    (result,) = replay(mirror, script)
    rejected = [row["rejected"]["reason"] for row in result.rows if row["rejected"]]
    assert rejected == ["conflict"]


def test_the_mirror_equals_the_table(spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    folder = next(part.removeprefix("host=") for part in postgres.split() if "host=" in part)
    url = f"postgresql://postgres@/postgres?host={folder}"
    batches, table = data.customer_records()
    write(batches, tmp_path / "records")
    start(spark, tmp_path, url).awaitTermination()
    mirrored = query(url, "SELECT id, name, city FROM customers", spark)
    expected = spark.createDataFrame(list(table.values()), mirrored.schema)
    assert_df_equality(mirrored, expected, ignore_nullable=True, ignore_row_order=True)
    rejected = query(url, "SELECT DISTINCT reason FROM customers_rejected", spark)
    assert [row.reason for row in rejected.collect()] == ["unparsable_json"]


def test_a_compacted_log_has_the_last_change_of_each_customer(spark: SparkSession) -> None:
    batches, table = data.customer_records()
    records = [(row["key"], row["value"]) for batch in batches for row in batch]
    log = spark.createDataFrame(records, "key string, value string").transform(read)
    rows = log.transform(shorten).where("rejected IS NULL").collect()
    changed = {json.loads(key)["id"] for key, _ in records}
    last = {row.id: row.city for row in rows if row._change_type != "delete"}
    assert last == {key: row["city"] for key, row in table.items()}
    assert {row.id for row in rows} >= changed
