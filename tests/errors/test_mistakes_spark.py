"""Errors in a session: a plan is refused with the remedy, and a query names where it failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamops import aggregates as agg
from streamops import sinks, windows
from streamops.testing import micro_batches, stream
from tests.errors.mistakes import Mistake, code_of, raised
from tests.errors.mistakes_on_spark import ON_SPARK

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mistake", ON_SPARK, ids=lambda mistake: mistake.name)
def test_a_mistake_in_a_session_is_answered_with_its_remedy(
    spark: SparkSession, mistake: Mistake
) -> None:
    error = raised(mistake, spark)
    if mistake.code:
        assert code_of(error) == mistake.code
    assert mistake.remedy in (getattr(error, "fix", None) or str(error))


ROWS = [[{"k": "a"}, {"k": "b"}]]


def fail_in_a_worker(spark: SparkSession, folder: Path) -> None:
    counting = windows.running(by="k", agg={"n": agg.count()}, max_keys=1).options(shards=1)
    stream(spark, counting, ROWS, directory=folder, source="files")


def fail_in_a_sink(spark: SparkSession, folder: Path) -> None:
    frame = micro_batches(spark, ROWS, directory=folder / "in", source="files")
    frame = frame.selectExpr("k", "upper(k) AS k")
    writer = frame.writeStream.foreachBatch(sinks.parquet(str(folder / "daily")))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(120)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (fail_in_a_worker, "[STATE_FULL] windows.running: there are more keys than `max_keys`"),
        (fail_in_a_sink, "[DUPLICATE_COLUMN] sinks.parquet('{folder}/daily'): "),
    ],
    ids=["in a Python worker", "in a sink"],
)
def test_a_query_that_fails_names_the_operator_or_the_sink(
    spark: SparkSession, tmp_path: Path, fail: Callable[..., Any], expected: str
) -> None:
    with pytest.raises(StreamingQueryException) as failed:
        fail(spark, tmp_path)
    assert expected.format(folder=tmp_path) in str(failed.value)
