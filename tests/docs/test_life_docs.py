"""Run the examples of the guide to the life of a job from top to bottom, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.test_readme import ROOT, examples


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
    for example in examples(ROOT / "docs" / "life-of-a-job.md"):
        if example.runs_here:
            assert example.run(namespace) == example.output
