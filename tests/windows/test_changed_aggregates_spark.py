"""A streaming query continues its checkpoint with other aggregates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamops import aggregates as agg
from streamops import state, windows
from streamops.spark.operator import Operator
from streamops.testing import at, micro_batches

pytestmark = pytest.mark.spark


def counting(api: Any, **aggregates: Any) -> Operator:
    operator = windows.tumbling("10 seconds", time="ts", by="k", agg=aggregates, delay="5 seconds")
    return operator.options(state_api=api)


@pytest.mark.parametrize("api", ["applyInPandasWithState", "transformWithStateInPandas"])
def test_an_aggregate_is_added_one_is_moved_and_one_is_removed(
    spark: SparkSession, tmp_path: Path, api: str
) -> None:
    rows = [
        [{"k": "a", "v": 1, "ts": at(1)}, {"k": "b", "v": 2, "ts": at(12)}],
        [{"k": "a", "v": 4, "ts": at(13)}, {"k": "b", "v": 8, "ts": at(14)}],
        [{"k": "a", "v": 16, "ts": at(40)}],
    ]
    found: list[tuple[Any, ...]] = []
    before = counting(api, least=agg.min("v"), n=agg.count())
    after = counting(api, n=agg.count(), total=agg.sum("v"))
    for operator, batches in ((before, rows[:1]), (after, rows[1:])):
        stream = micro_batches(spark, batches, directory=tmp_path / "source", source="files")
        frame = stream.transform(operator)
        state.check(frame, str(tmp_path / "checkpoint"))

        def collect(batch: Any, number: int) -> None:
            found.extend(sorted(map(tuple, batch.drop("window_end").collect())))

        query = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.start().awaitTermination()
    values = [(row[0], *row[2:]) for row in found]
    # The window of "a" from 10 on has only rows from after the change.
    assert values == [("a", 1, None), ("a", 1, 4), ("b", 2, None)]
