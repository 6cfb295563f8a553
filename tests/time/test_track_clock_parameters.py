"""Parameters of track_clock, and the errors for invalid ones. No Spark."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from streamops import time
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, WatermarkError, located

INSTANT = pa.timestamp("us", tz="UTC")
TIME, TEXT = TimestampType(), StringType()
COLUMNS: list[tuple[str, DataType]] = [
    ("device", TEXT), ("ts", TIME), ("sent_at", TIME), ("received_at", TIME)
]  # fmt: skip


class FakeFrame:
    """A frame with a schema and no rows."""

    isStreaming = False

    def __init__(self, *columns: tuple[str, DataType], mark: str = "") -> None:
        metadata = {"spark.watermarkDelayMs": 0}
        self.schema = StructType(
            [StructField(n, t, metadata=metadata if n == mark else {}) for n, t in columns]
        )
        self.isStreaming = bool(mark)
        self.sparkSession = self.conf = self

    def _explain_string(self, extended: bool) -> str:
        return "+- ~EventTimeWatermark ts#0: timestamp, 1 minutes"

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return "false"


def track(**changed: Any) -> Any:
    arguments = {"time": "ts", "by": "device", "sent": "sent_at", "received": "received_at"}
    return time.track_clock(**(arguments | changed))


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"by": 1}, "PARAMETER_TYPE"),
        ({"by": ["device", None]}, "PARAMETER_TYPE"),
        ({"sent": None}, "PARAMETER_TYPE"),
        ({"received": "sent_at"}, "DUPLICATE_COLUMN"),
        ({"horizon": "0 seconds"}, "INVALID_DURATION"),
        ({"horizon": "1 month"}, "INVALID_DURATION"),
        ({"horizon": None}, "INVALID_DURATION"),
        ({"step": "-1 second"}, "INVALID_DURATION"),
        ({"tolerance": "-1 second"}, "INVALID_DURATION"),
        ({"longest_wait": "x"}, "INVALID_DURATION"),
        ({"largest_offset": "-1 day"}, "INVALID_DURATION"),
        ({"otherwise": "now"}, "UNKNOWN_CHOICE"),
    ],
    ids=repr,
)
def test_invalid_parameters_are_refused_without_a_frame(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as caught:
        track(**changed)
    assert (caught.value.code, caught.value.where) == (code, "time.track_clock")
    assert next(iter(changed)) in str(caught.value)


@pytest.mark.parametrize("missing", ["device", "ts", "sent_at", "received_at"])
def test_a_column_that_does_not_exist_is_refused(missing: str) -> None:
    frame = FakeFrame(
        *(column for column in COLUMNS if column[0] != missing), (f"{missing}_", TEXT)
    )
    with pytest.raises(ColumnNotFound) as caught:
        track()(frame)
    assert caught.value.where == "time.track_clock"
    assert caught.value.fix == f"did you mean '{missing}_'?"


def test_a_column_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        track()(FakeFrame(*COLUMNS[:3], ("received_at", LongType())))
    assert str(caught.value) == (
        "[COLUMN_TYPE] time.track_clock: column 'received_at' cannot be used as `received`\n"
        "  got:       'received_at' of type bigint\n"
        "  expected:  timestamp\n"
        "  fix:       df.withColumn('received_at', F.timestamp_millis('received_at')) for milliseconds since "
        "1970; timestamp_seconds, timestamp_micros for others"
        "\n  see:       docs/errors.md#column_type"
    )


@pytest.mark.parametrize("taken", ["corrected_time", "Clock_Offset", "CLOCK_QUALITY"])
def test_a_frame_that_has_a_column_of_the_result_is_refused(taken: str) -> None:
    with pytest.raises(SchemaError) as caught:
        track()(FakeFrame(*COLUMNS, (taken, TEXT)))
    assert caught.value.code == "NAME_TAKEN"
    assert caught.value.fix == f"df.withColumnRenamed({taken!r}, ...) before this operator"


def test_tracking_after_a_watermark_is_refused() -> None:
    with pytest.raises(WatermarkError) as caught:
        track()(FakeFrame(*COLUMNS, mark="ts"))
    assert str(caught.value) == (
        "[WATERMARK_TOO_EARLY] time.track_clock: the watermark is defined before the "
        "correction, on times that are not corrected\n"
        "  got:       a frame with a watermark on 'ts'\n"
        "  expected:  a frame without a watermark\n"
        "  fix:       correct first, then withWatermark('corrected_time', ...) or delay=..."
        "\n  see:       docs/errors.md#watermark_too_early"
    )


def test_the_error_for_a_key_type_has_the_type_name_of_spark() -> None:
    schema = pa.schema([("device", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(SchemaError) as caught, located("time.track_clock"):
        track().parameters.resolve((schema,), carried=(None,), shards=8)
    assert (caught.value.code, caught.value.got) == ("TYPE_UNSUPPORTED", "map<string,bigint>")
    assert caught.value.where == "time.track_clock, key 'device'"


def test_a_checkpoint_depends_on_the_parameters_of_the_estimate() -> None:
    fields = [("device", pa.string()), ("sent_at", INSTANT), ("received_at", INSTANT)]
    spec = track(largest_offset="1 day", tolerance="1 second").parameters.resolve(
        (pa.schema(fields),), carried=(None,), shards=8
    )
    assert spec.identity == {
        "by": [["device", "string"]],
        "sent": "sent_at",
        "received": "received_at",
        "horizon": 3_600_000_000,
        "step": 60_000_000,
        "largest_offset": 86_400_000_000,
    }


def test_docstring_examples_run() -> None:
    outcome = doctest.testmod(importlib.import_module("streamops.time.track_clock"))
    assert (outcome.attempted, outcome.failed) == (2, 0)
