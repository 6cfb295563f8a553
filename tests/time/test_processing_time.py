"""What a user may say about processing time, and what every mistake is answered with. No Spark."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from streamops import time
from streamops.kernel.errors import SchemaError, SpecError


class FakeFrame:
    """A frame that is nothing but its columns."""

    isStreaming = False

    def __init__(self, *names: str) -> None:
        self.schema = StructType([StructField(name, TimestampType()) for name in names])
        self.sparkSession = self.conf = self

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return "false"


@pytest.mark.parametrize("said", [{"into": None}, {"into": 1}])
def test_what_is_no_name_is_refused_before_there_is_a_frame(said: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        time.processing_time(**said)
    ((parameter, value),) = said.items()
    assert str(caught.value) == (
        f"[NOT_A_NAME] time.processing_time: `{parameter}` is not a name\n"
        f"  got:       {value!r} of type {type(value).__name__}\n"
        "  expected:  text\n"
        '  fix:       write the name in quotes, such as "ts", and not F.col("ts")'
    )


def test_it_is_shown_as_it_is_written() -> None:
    shown = repr(time.processing_time("at").options(name="clock"))
    assert shown == "time.processing_time(into='at').options(name='clock')"


def test_a_frame_that_has_the_column_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        time.processing_time()(FakeFrame("ts", "Processed_At"))
    assert str(caught.value) == (
        "[NAME_TAKEN] time.processing_time: the frame already has a column 'Processed_At'\n"
        "  got:       columns ts, Processed_At\n"
        "  expected:  a frame without processed_at\n"
        "  fix:       df.withColumnRenamed('Processed_At', ...) before this operator"
    )


def test_the_example_of_the_docstring_is_true() -> None:
    outcome = doctest.testmod(importlib.import_module("streamops.time.processing_time"))
    assert (outcome.attempted, outcome.failed) == (3, 0)
