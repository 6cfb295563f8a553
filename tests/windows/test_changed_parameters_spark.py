"""A streaming query continues its checkpoint with other parameters of windows."""

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

BEFORE: dict[str, Any] = {"stragglers": "drop"}
AFTER: dict[str, Any] = {"stragglers": "update", "allowed_lateness": "1 minute"}
BATCHES = [
    [[{"k": "a", "ts": at(1)}, {"k": "b", "ts": at(22)}], [{"k": "a", "ts": at(23)}]],
    [
        [{"k": "a", "ts": at(2)}, {"k": "a", "ts": at(25)}],  # the window of the first is final
        [{"k": "a", "ts": at(90)}],
        [{"k": "a", "ts": at(90)}],
        [{"k": "b", "ts": at(24)}],  # a straggler
    ],
]


def counting(api: Any, **given: Any) -> Operator:
    operator = windows.tumbling(
        "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds", **given
    )
    return operator.options(state_api=api)


@pytest.mark.parametrize("api", ["applyInPandasWithState", "transformWithStateInPandas"])
def test_stragglers_are_accepted_from_the_restart_on(
    spark: SparkSession, tmp_path: Path, api: str
) -> None:
    found: list[tuple[Any, ...]] = []
    for given, batches in zip((BEFORE, AFTER), BATCHES, strict=True):
        stream = micro_batches(spark, batches, directory=tmp_path / "source", source="files")
        frame = stream.transform(counting(api, **given))
        state.check(frame, str(tmp_path / "checkpoint"))

        def collect(batch: Any, number: int) -> None:
            rows = batch.drop("window_end").collect()
            found.extend(sorted((row[0], row[1].second, *row[2:]) for row in rows))

        query = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.start().awaitTermination()
    assert found == [("a", 0, 1), ("a", 20, 2, 0), ("b", 20, 1, 0), ("b", 20, 2, 1)]
