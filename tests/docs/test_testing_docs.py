"""Run the examples of the guide to testing from top to bottom, also on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.test_readme import ROOT, examples

PAGE = ROOT / "docs" / "testing.md"


@pytest.mark.spark
def test_every_example_runs_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"spark": spark}
    for example in examples(PAGE):
        assert example.run(namespace) == example.output
    namespace["test_hits_are_counted_on_spark"](spark)
