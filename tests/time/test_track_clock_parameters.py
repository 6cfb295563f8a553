"""What a user may say about clocks that are followed, and what every mistake is answered with."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from streamops import time
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, WatermarkError

INSTANT = pa.timestamp("us", tz="UTC")
TIME, TEXT = TimestampType(), StringType()
COLUMNS: list[tuple[str, DataType]] = [
    ("device", TEXT), ("ts", TIME), ("sent_at", TIME), ("received_at", TIME)
]  # fmt: skip


class FakeFrame:
    """A frame that is nothing but its columns."""

    def __init__(self, *kinds: tuple[str, DataType], mark: str = "") -> None:
        told = {"spark.watermarkDelayMs": 0}
        self.schema = StructType(
            [StructField(n, kind, metadata=told if n == mark else {}) for n, kind in kinds]
        )
        self.isStreaming = bool(mark)
        self.sparkSession = self.conf = self

    def _explain_string(self, extended: bool) -> str:
        return "+- ~EventTimeWatermark ts#0: timestamp, 1 minutes"

    def get(self, key: str) -> str:
        assert key == "spark.sql.caseSensitive"
        return "false"


def track(**changed: Any) -> Any:
    said = {"time": "ts", "by": "device", "sent": "sent_at", "received": "received_at"}
    return time.track_clock(**(said | changed))


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"by": 1}, "NOT_A_NAME"),
        ({"by": ["device", None]}, "NOT_A_NAME"),
        ({"sent": None}, "NOT_A_NAME"),
        ({"received": "sent_at"}, "SAME_COLUMN"),
        ({"horizon": "0 seconds"}, "DURATION_TOO_SMALL"),
        ({"horizon": "1 month"}, "CALENDAR_DURATION"),
        ({"horizon": None}, "BAD_DURATION"),
        ({"step": "-1 second"}, "DURATION_TOO_SMALL"),
        ({"tolerance": "-1 second"}, "DURATION_TOO_SMALL"),
        ({"longest_wait": "x"}, "BAD_DURATION"),
        ({"largest_offset": "-1 day"}, "DURATION_TOO_SMALL"),
        ({"otherwise": "now"}, "UNKNOWN_CHOICE"),
    ],
    ids=repr,
)
def test_a_parameter_out_of_range_is_refused_before_there_is_a_frame(
    changed: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        track(**changed)
    assert (caught.value.code, caught.value.where) == (code, "time.track_clock")
    assert next(iter(changed)) in str(caught.value)


@pytest.mark.parametrize("gone", ["device", "ts", "sent_at", "received_at"])
def test_a_column_that_does_not_exist_is_refused(gone: str) -> None:
    frame = FakeFrame(*(each for each in COLUMNS if each[0] != gone), (f"{gone}_", TEXT))
    with pytest.raises(ColumnNotFound) as caught:
        track()(frame)
    assert caught.value.where == "time.track_clock"
    assert caught.value.fix == f"did you mean '{gone}_'?"


def test_a_column_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        track()(FakeFrame(*COLUMNS[:3], ("received_at", LongType())))
    assert str(caught.value) == (
        "[COLUMN_TYPE] time.track_clock: column 'received_at' cannot be used as `received`\n"
        "  got:       'received_at' of type bigint\n"
        "  expected:  timestamp\n"
        "  fix:       df.withColumn('received_at', F.timestamp_millis('received_at')) for milliseconds since "
        "1970; timestamp_seconds, timestamp_micros for others"
    )


@pytest.mark.parametrize("taken", ["corrected_time", "Clock_Offset", "CLOCK_QUALITY"])
def test_a_frame_that_has_a_column_of_the_result_is_refused(taken: str) -> None:
    with pytest.raises(SchemaError) as caught:
        track()(FakeFrame(*COLUMNS, (taken, TEXT)))
    assert caught.value.code == "NAME_TAKEN"
    assert caught.value.fix == f"df.withColumnRenamed({taken!r}, ...) before this operator"


def test_behind_a_watermark_it_is_refused() -> None:
    with pytest.raises(WatermarkError) as caught:
        track()(FakeFrame(*COLUMNS, mark="ts"))
    assert str(caught.value) == (
        "[TRACK_BEHIND_WATERMARK] time.track_clock: the watermark is defined before the "
        "correction, on times that are not corrected\n"
        "  got:       a frame with a watermark on 'ts'\n"
        "  expected:  a frame without a watermark\n"
        "  fix:       correct first, then withWatermark('corrected_time', ...) or delay=..."
    )


def test_a_key_that_cannot_be_one_is_refused_in_sparks_words() -> None:
    schema = pa.schema([("device", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(SchemaError) as caught:
        track().parameters.resolve((schema,), carried=(None,), shards=8)
    assert (caught.value.code, caught.value.got) == ("KEY_NOT_HASHABLE", "map<string,bigint>")
    assert caught.value.where == "time.track_clock, key 'device'"


def test_the_state_knows_what_it_depends_on() -> None:
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


def test_the_example_of_the_docstring_is_true() -> None:
    outcome = doctest.testmod(importlib.import_module("streamops.time.track_clock"))
    assert (outcome.attempted, outcome.failed) == (2, 0)
