"""The documentation of pipelines shows the example project, and errors in pipelines are replaced."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from streamops.kernel.errors import SpecError
from streamops.kernel.versions import has_transform
from streamops.spark.operator import refuse_pipeline_function

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "pipeline"


def as_block(path: Path) -> str:
    """A file as an indented block, without its docstring."""
    text = path.read_text().removeprefix('"""').split('"""\n\n', 1)[-1]
    return textwrap.indent(text, "    ")


@pytest.mark.parametrize("name", ["spark-pipeline.yml", "transformations/page_views.py"])
def test_the_page_shows_the_files_of_the_example(name: str) -> None:
    assert as_block(PROJECT / name) in (ROOT / "docs" / "pipelines.md").read_text()


@pytest.mark.skipif(not has_transform(), reason="Spark 4")
def test_sparks_error_inside_of_a_function_of_a_pipeline_is_replaced() -> None:
    message = "Operations that trigger DataFrame analysis are not allowed"
    original = AnalysisException(message, errorClass="ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION")
    with pytest.raises(SpecError) as caught, refuse_pipeline_function("windows.tumbling"):
        raise original
    assert caught.value.code == "SESSION_TYPE"
    assert "events.transform(windows.tumbling(...))" in caught.value.fix
    assert caught.value.__cause__ is original


@pytest.mark.skipif(not has_transform(), reason="Spark 4")
def test_other_errors_of_spark_are_not_replaced() -> None:
    message = "no such table"
    original = AnalysisException(message, errorClass="TABLE_OR_VIEW_NOT_FOUND")
    with pytest.raises(AnalysisException) as caught, refuse_pipeline_function("windows.tumbling"):
        raise original
    assert caught.value is original
