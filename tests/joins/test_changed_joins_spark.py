"""A streaming query continues its checkpoint with other bounds and columns of a join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import joins, state
from streamops.kernel.errors import StateFormatError
from streamops.testing import at, micro_batches

RIGHT = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
LEFT = RIGHT.append(pa.field("v", pa.int64()))

pytestmark = pytest.mark.spark


def joined(left: Any, right: Any, upper: str, how: Any = "left") -> Any:
    operator = joins.interval(
        right, "0 seconds", upper, by="k", time="ts", how=how, delay="5 seconds"
    )
    return left.transform(operator.options(shards=2))


def test_a_bound_is_raised_and_a_column_is_added(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    found: list[tuple[Any, ...]] = []

    def run(lefts: list[Any], rights: list[Any], upper: str, *columns: str) -> None:
        left, right = (
            micro_batches(spark, [rows], schema=schema, directory=tmp_path / name, source="files")
            for name, rows, schema in (("left", lefts, LEFT), ("right", rights, RIGHT))
        )
        frame = joined(left.select("k", "ts", *columns), right, upper)
        state.check(frame, checkpoint)

        def collect(batch: Any, number: int) -> None:
            rows = batch.select("k", "ts", "ts_right", *columns, "status")
            found.extend(tuple(row) for row in rows.collect())

        query = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query.option("checkpointLocation", checkpoint).start().awaitTermination()

    run(
        [{"k": "a", "ts": at(10)}, {"k": "b", "ts": at(11)}],
        [{"k": "z", "ts": at(12)}],
        "10 seconds",
    )
    run(
        [{"k": "c", "ts": at(20), "v": 1}],
        # Its partner is 28 seconds before, and on time.
        [{"k": "a", "ts": at(38)}],
        "30 seconds",
        "v",
    )
    run(
        [{"k": "x", "ts": at(200), "v": 2}],
        [{"k": "x", "ts": at(200)}],
        "5 seconds",
        "v",
    )
    values = [
        (row[0], row[3] if len(row) == 5 else None, row[-1]) for row in sorted(found, key=str)
    ]
    assert values == [
        ("a", None, "matched"),
        ("b", None, "expired"),
        ("c", 1, "expired"),
        ("x", 2, "matched"),
    ]


def test_a_change_that_needs_history_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = [[{"k": "a", "ts": at(10)}]]

    def frame(how: str) -> Any:
        left, right = (
            micro_batches(spark, rows, directory=tmp_path / name, source="files")
            for name in ("left", "right")
        )
        return joined(left, right, "10 seconds", how)

    query = frame("inner").writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()
    with pytest.raises(StateFormatError, match="how needs which stored rows had a partner"):
        state.check(frame("full"), str(tmp_path / "state"))
