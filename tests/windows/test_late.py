"""What is not the output of an operator that routes late rows cannot be split."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.windows import split_late

TEXT = StringType()
LATE = StructType([StructField(n, TEXT) for n in ("reason", "lateness", "watermark", "row")])


class FakeFrame:
    """A frame that is nothing but its columns."""

    def __init__(self, **kinds: Any) -> None:
        self.schema = StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    "columns",
    [
        {"k": TEXT, "window_end": TimestampType()},
        {"late": BooleanType(), "window_end": TimestampType()},
        {"late": StructType([StructField("reason", TEXT)]), "window_end": TimestampType()},
    ],
    ids=lambda columns: ", ".join(columns),
)
def test_a_frame_that_was_not_routed_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        split_late(FakeFrame(**columns))
    assert str(caught.value) == (
        "[NOT_ROUTED] windows.split_late: the frame carries no late rows\n"
        f"  got:       columns {', '.join(columns)}\n"
        "  expected:  'late', a struct of reason, lateness, watermark, row\n"
        "  fix:       stragglers='route', or too_late='route' beside 'update' and 'retract'"
    )


def test_a_frame_without_windows_is_asked_for_its_event_time() -> None:
    with pytest.raises(SchemaError) as caught:
        split_late(FakeFrame(k=TEXT, ts=TimestampType(), late=LATE))
    assert str(caught.value) == (
        "[EVENT_TIME_UNKNOWN] windows.split_late: "
        "nothing tells which columns say what a late row is about\n"
        "  got:       columns k, ts, late\n"
        "  expected:  a column 'window_end', or time=...\n"
        "  fix:       name the event-time column of the operator, as in "
        'split_late(batch, time="ts") behind windows.sliding'
    )


def test_an_event_time_that_is_not_there_is_refused() -> None:
    frame = FakeFrame(k=TEXT, ts=TimestampType(), late=LATE)
    with pytest.raises(ColumnNotFound) as caught:
        split_late(frame, time="tss")
    assert (caught.value.where, caught.value.fix) == ("windows.split_late", "did you mean 'ts'?")
    with pytest.raises(SpecError, match="NOT_A_NAME"):
        split_late(frame, time=5)
