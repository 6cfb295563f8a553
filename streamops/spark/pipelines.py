"""Declarative Pipelines: Spark analyzes no frame inside of a function that defines a table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.errors import PySparkException

from streamops.spark import conditions

_CONDITION = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"


@contextlib.contextmanager
def refuse_pipeline_function(operator: str) -> Iterator[None]:
    """Replace Spark's error in a query function of a pipeline by one with a remedy.

    An operator reads the schema of its frames while it builds the plan. Spark's own stateful operators
    of Python do the same.

    Raises
    ------
    SpecError
        ``SESSION_TYPE``.
    """
    try:
        yield
    except PySparkException as error:
        if _CONDITION not in (error.getCondition() or str(error)):
            raise
        raise conditions.PIPELINE_FUNCTION.error(
            operator=operator,
            got="an operator that is applied inside of a function with @dp.table, "
            "@dp.materialized_view, @dp.temporary_view or @dp.append_flow",
        ) from error
