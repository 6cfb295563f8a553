"""Values at and beyond the limits of each type of Spark, and of what Python and NumPy have."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa

_DAY = 86_400_000_000
_INSTANTS = [
    *(-(2**63), -(2**63) + 1, 2**63 - 1),  # of the type
    *(-62_135_596_800_000_001, -62_135_596_800_000_000),  # around the year 1
    *(253_402_300_799_999_999, 253_402_300_800_000_000),  # around the year 10000 in UTC
    *(253_402_282_799_999_999, 253_402_318_799_999_999),  # and five hours before and after it
    *(-1, 0),
]
_DAYS = [-(2**31), 2**31 - 1, -719_163, -719_162, 2_932_896, 2_932_897, -1, 0]
_TINY = 5e-324
_NUMBERS = {
    f"int{bits}": [-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 0] for bits in (8, 16, 32, 64)
}
_TYPED = {
    **{name: (getattr(pa, name)(), values) for name, values in _NUMBERS.items()},
    "boolean": (pa.bool_(), [True, False]),
    "float": (pa.float32(), [math.nan, math.inf, -math.inf, -0.0, 3.4028234663852886e38, 1e-45]),
    "double": (pa.float64(), [math.nan, math.inf, -math.inf, -0.0, 1.7976931348623157e308, _TINY]),
    "decimal": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0)]),
    "fraction": (pa.decimal128(38, 38), [Decimal("1e-38"), Decimal(f"-0.{'9' * 38}")]),
    "string": (pa.string(), ["", "\0", "'", '"', "\\", "\U0010ffff", "x" * 100]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff", b"'"]),
    "date": (pa.date32(), _DAYS),
    "time": (pa.time64("us"), [0, _DAY - 1]),
    "timestamp_ntz": (pa.timestamp("us"), _INSTANTS),
    "timestamp": (pa.timestamp("us", "UTC"), _INSTANTS),
    "timestamp in New York": (pa.timestamp("us", "America/New_York"), _INSTANTS),
    "timestamp in Tokyo": (pa.timestamp("us", "Asia/Tokyo"), _INSTANTS),
    "interval": (pa.duration("us"), [-(2**63), 2**63 - 1, -1, 0]),
}
EXTREMES = list(_TYPED)
"""The names of the columns."""


def column(name: str) -> pa.Array:
    """The values of one type, each once."""
    dtype, values = _TYPED[name]
    if pa.types.is_temporal(dtype):
        numbers = pa.array(values, pa.int32() if dtype == pa.date32() else pa.int64())
        return numbers.view(dtype)
    return pa.array(values, dtype)
