"""Apply changes on Spark: a table and a history, in a stream with a restart and in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import changes, split_side_output
from streamops.testing import assert_rows, replay, stream
from tests.changes.test_normalize import SCHEMA, delete, upsert

pytestmark = pytest.mark.spark

SCRIPT: list[list[dict[str, Any]]] = [
    [upsert("a", 5, 1), upsert("a", 9, 3), upsert(None, 1), upsert("b", 4, 1)],
    [delete("b", 6), upsert("a", 7, None, "x", _unavailable=["v"]), upsert("a", 9, 4)],
    [delete("a", 11), upsert("b", 5, 9), upsert("c", 3, None, "x")],
    [upsert("c", 1, 0)],  # late: it supplies the null value if nulls are ignored
]


@pytest.mark.parametrize(
    ("history", "ignore_nulls"),
    [("intervals", False), ("overwrite", False), ("intervals", True), ("overwrite", True)],
)
def test_a_stream_equals_the_replay_and_folds_to_the_batch_result(
    spark: SparkSession, tmp_path: Path, history: Any, ignore_nulls: bool
) -> None:
    applied = changes.apply(
        "k", sequence="lsn", horizon=100, history=history, ignore_nulls=ignore_nulls
    ).options(shards=2)
    got = [
        result
        for part in (SCRIPT[:1], SCRIPT[1:])
        for result in stream(spark, applied, part, schema=SCHEMA, directory=tmp_path)
    ]
    expected = replay(applied, SCRIPT, schema=SCHEMA, restart=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
    key = ["k", "valid_from"] if history == "intervals" else ["k"]
    published = spark.createDataFrame(pa.concat_tables([result.table for result in got]))
    folded = published.transform(changes.fold(key)).drop("revision")
    rows = [row for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA))
    batch, rejected = split_side_output(frame.transform(applied))
    # The stream published the lesser change before, and retracts it: no conflict is rejected.
    reasons = sorted(row["rejected"]["reason"] for row in rejected.collect())
    assert reasons == ["conflict", "null_key"]
    batch = batch.drop("revision", "_change_type")
    changes.differences(folded, batch, key=key).raise_if_any()
    assert batch.count() == (7 if history == "intervals" else 1)
    last = batch.where("k = 'c' and w = 'x'").select("v").first()
    assert last is not None
    assert last["v"] == (0 if ignore_nulls else None)
