"""Mistakes of newcomers in a session: the plan is refused, with the remedy."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.errors.mistakes import Mistake, code_of, raised
from tests.errors.mistakes_on_spark import ON_SPARK

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mistake", ON_SPARK, ids=lambda mistake: mistake.name)
def test_a_mistake_in_a_session_is_answered_with_its_remedy(
    spark: SparkSession, mistake: Mistake
) -> None:
    error = raised(mistake, spark)
    assert code_of(error).partition(".")[0] == mistake.code
    assert mistake.remedy in (getattr(error, "fix", None) or str(error))
