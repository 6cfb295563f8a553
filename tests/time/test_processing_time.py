"""Parameters of processing_time, and the errors for invalid ones. No Spark."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from streamops import time
from streamops.kernel.errors import SchemaError, SpecError


class FakeFrame:
    """A frame with a schema and no rows."""

    isStreaming = False

    def __init__(self, *names: str) -> None:
        self.schema = StructType([StructField(name, TimestampType()) for name in names])
        self.sparkSession = self.conf = self

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return "false"


@pytest.mark.parametrize("arguments", [{"into": None}, {"into": 1}])
def test_invalid_names_are_refused_without_a_frame(arguments: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        time.processing_time(**arguments)
    ((parameter, value),) = arguments.items()
    assert str(caught.value) == (
        f"[PARAMETER_TYPE] time.processing_time: `{parameter}` is not a name\n"
        f"  got:       {value!r} of type {type(value).__name__}\n"
        "  expected:  text\n"
        '  fix:       write the name in quotes, such as "ts", and not F.col("ts")'
        "\n  see:       docs/errors.md#parameter_type"
    )


def test_repr_shows_parameters_and_options() -> None:
    text = repr(time.processing_time("at").options(name="clock"))
    assert text == "time.processing_time(into='at').options(name='clock')"


def test_a_frame_with_the_added_column_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        time.processing_time()(FakeFrame("ts", "Processed_At"))
    assert str(caught.value) == (
        "[NAME_TAKEN] time.processing_time: the frame already has a column 'Processed_At'\n"
        "  got:       columns ts, Processed_At\n"
        "  expected:  a frame without processed_at\n"
        "  fix:       df.withColumnRenamed('Processed_At', ...) before this operator"
        "\n  see:       docs/errors.md#name_taken"
    )


def test_docstring_examples_run() -> None:
    outcome = doctest.testmod(importlib.import_module("streamops.time.processing_time"))
    skipped = getattr(outcome, "skipped", 0)  # Python 3.13 counts these among the attempted ones
    assert (outcome.attempted - skipped, outcome.failed) == (3, 0)
