"""What is not the output of an operator that routes late rows cannot be split."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

from streamops.kernel.errors import SchemaError
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
        {"k": TEXT, "late": LATE},
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
        "  expected:  'window_end' and 'late', a struct of reason, lateness, watermark, row\n"
        "  fix:       stragglers='route', or too_late='route' beside 'update' and 'retract'"
    )
