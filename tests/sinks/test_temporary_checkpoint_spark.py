"""A query without checkpointLocation: a warning at its first start, and the cause at its second."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamops import sinks
from streamops.testing import micro_batches

pytestmark = pytest.mark.spark


def test_a_query_without_a_checkpoint_warns_and_later_names_the_cause(
    spark: SparkSession, tmp_path: Path, caplog: Any
) -> None:
    frame = micro_batches(spark, [[{"k": "a"}]], directory=tmp_path / "in", source="files")
    target = sinks.parquet(str(tmp_path / "out"))

    def run(**options: str) -> None:
        writer = frame.writeStream.foreachBatch(target).options(**options)
        writer.trigger(availableNow=True).start().awaitTermination(120)

    with caplog.at_level(logging.WARNING, logger="streamops.state"):
        run()
    assert 'option("checkpointLocation", ...)' in caplog.text
    with pytest.raises(StreamingQueryException) as failed:
        run()
    assert "[NEW_CHECKPOINT]" in str(failed.value)
    assert "the query has no checkpointLocation" in str(failed.value)
    caplog.clear()
    with pytest.raises(StreamingQueryException) as other:
        run(checkpointLocation=str(tmp_path / "checkpoint"))
    assert "[NEW_CHECKPOINT]" in str(other.value)
    assert "the query has no checkpointLocation" not in str(other.value)
    assert not [record for record in caplog.records if record.name == "streamops.state"]
