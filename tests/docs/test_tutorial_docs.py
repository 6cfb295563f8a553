"""Run the examples of the tutorial from top to bottom, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamops.testing import micro_batches
from tests.docs.test_readme import ROOT, examples

PAGE = ROOT / "docs" / "tutorial.md"


@pytest.mark.spark
def test_every_example_runs_on_spark(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """`local_session` returns the session of the tests, and warns about its other settings."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"spark": spark}
    for example in examples(PAGE):
        assert example.run(namespace) == example.output
    # The frame of the job of the last section, on orders of which one is from the future.
    future = {**namespace["event"](namespace["orders"][0]), "ts": namespace["at"](10**9)}
    results = namespace["results"](micro_batches(spark, [*namespace["script"], [future]]))
    query = results.writeStream.format("memory").queryName("job").trigger(availableNow=True).start()
    query.awaitTermination(120)
    rows = spark.table("job").where("window_start IS NOT NULL").collect()
    assert sorted((row["revision"], row["sold"]) for row in rows) == [(0, 50.0), (1, 100.0)]
