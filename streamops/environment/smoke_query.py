"""A small stateful query that tests a session."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from streamops.kernel.errors import located
from streamops.kernel.versions import spark_class
from streamops.spark.state_apis import choose_state_api

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
else:
    StatefulProcessor = spark_class("sql.streaming.stateful_processor", "StatefulProcessor")


class _RunningCount(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._rows = handle.getValueState("rows", "rows long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        before = self._rows.get() or (0,)
        count = before[0] + sum(map(len, rows))
        self._rows.update((count,))
        yield pd.DataFrame({"key": [key[0]], "rows": [count]})

    def close(self) -> None:
        pass


def _count(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    count = (state.get[0] if state.exists else 0) + sum(map(len, frames))
    state.update((count,))
    yield pd.DataFrame({"key": [key[0]], "rows": [count]})


def count_in_state(spark: SparkSession) -> dict[int, int]:
    """Count 20 rows of two keys over two micro-batches, with the counts in state.

    The query uses Java, Python workers, Arrow, the state store, and the state API that operators use in
    the session.

    Parameters
    ----------
    spark : SparkSession
        The session.

    Returns
    -------
    dict of int to int
        The last count of each key: ``{0: 10, 1: 10}`` if everything works.
    """
    name = f"streamops_smoke_{uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="streamops-smoke-") as folder:
        rows = spark.range(20).selectExpr("id % 2 AS key")
        rows.repartition(2).write.parquet(f"{folder}/rows")
        source = spark.readStream.schema("key long").option("maxFilesPerTrigger", 1)
        frame = source.parquet(f"{folder}/rows")
        keys, schema = frame.groupBy("key"), "key long, rows long"
        with located("smoke query"):
            choice = choose_state_api([frame], "auto")
        if choice.api == "applyInPandasWithState":
            counted = keys.applyInPandasWithState(
                _count, schema, "rows long", "update", GroupStateTimeout.NoTimeout
            )
        else:
            counted = keys.transformWithStateInPandas(
                _RunningCount(), schema, outputMode="Update", timeMode="None"
            )
        query = (
            counted.writeStream.format("memory")
            .queryName(name)
            .outputMode("update")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            counts = spark.table(name).groupBy("key").max("rows").collect()
        finally:
            query.stop()
            spark.catalog.dropTempView(name)
    return {key: count for key, count in counts}
