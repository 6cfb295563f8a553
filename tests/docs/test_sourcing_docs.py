"""The examples of docs/sourcing.md print what the page shows, in the page's order."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.test_readme import ROOT, examples


@pytest.mark.spark
def test_the_log_of_the_page_folds_to_its_state(spark: SparkSession) -> None:
    namespace: dict[str, Any] = {"spark": spark}
    ran = 0
    for example in examples(ROOT / "docs" / "sourcing.md"):
        assert example.run(namespace) == example.output
        ran += example.spark
    assert ran == 1
