"""Conditions under which `time` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

NOT_A_LIST = codes.PARAMETER_TYPE(
    "`expected` is not a list of producers",
    "a list of values of the column {column!r}",
    "expected=[{producer!r}]",
)
GUARD_FAILED = codes.ROW_REJECTED(
    "a row has an invalid event time: {reason}",
    "{expected}",
    'use {parameter}="route" to mark the row and continue',
)
EXPECTED_TYPE = codes.VALUE_TYPE.of(SchemaError)(
    "a value of `expected` does not have the type of the column of producers",
    "values of {column!r}",
    "use values of the column {column!r}",
)
GUARD_BEHIND_WATERMARK = codes.WATERMARK_TOO_EARLY(
    "the watermark is defined before the guard, so future event times advance it",
    "a frame without a watermark",
    "apply the guard first, then withWatermark({time!r}, ...) or delay=...",
)
TRACK_BEHIND_WATERMARK = codes.WATERMARK_TOO_EARLY(
    "the watermark is defined before the correction, on times that are not corrected",
    "a frame without a watermark",
    "correct first, then withWatermark('corrected_time', ...) or delay=...",
)
