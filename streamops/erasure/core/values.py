"""Typed values as bytes: equal values have equal bytes, and the type restores them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from streamops.kernel.columns import normalize_floats

_FIXED: dict[pa.DataType, tuple[int, int]] = {
    # The code of the type in the header of a value, and the width of its values in bytes.
    pa.bool_(): (1, 1),
    pa.int8(): (2, 1),
    pa.int16(): (3, 2),
    pa.int32(): (4, 4),
    pa.int64(): (5, 8),
    pa.float32(): (6, 4),
    pa.float64(): (7, 8),
    pa.date32(): (11, 4),
    pa.timestamp("us", "UTC"): (12, 8),
    pa.timestamp("us"): (13, 8),
}
_ALIASES = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_DECIMAL_TEXT = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_MAX_PRECISION = 38

_DECIMAL, _STRING, _BINARY = 8, 9, 10
_DECIMAL_WIDTH = 16

_BY_CODE = {code: dtype for dtype, (code, _) in _FIXED.items()} | {
    _STRING: pa.string(),
    _BINARY: pa.binary(),
}

TYPES = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
"""The types whose values can be shredded, as Spark names them, by their codes from 1."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a shredded column, as the header of each value has it.

    Parameters
    ----------
    code : int
        The position of the type in ``TYPES``, from 1.
    precision, scale : int
        Of a decimal, else 0.
    dtype : DataType
        The Arrow type.
    """

    code: int
    precision: int
    scale: int
    dtype: pa.DataType

    @classmethod
    def of(cls, dtype: pa.DataType) -> ValueType | None:
        """The value type of an Arrow type; None if its values cannot be shredded.

        Examples
        --------
        >>> ValueType.of(pa.decimal128(10, 2))
        ValueType(code=8, precision=10, scale=2, dtype=Decimal128Type(decimal128(10, 2)))
        >>> ValueType.of(pa.list_(pa.int64())) is None
        True
        """
        if pt.is_timestamp(dtype) and dtype.tz is not None:
            dtype = pa.timestamp("us", "UTC")
        if dtype in _FIXED:
            return cls(_FIXED[dtype][0], 0, 0, dtype)
        if pt.is_decimal128(dtype):
            return cls(_DECIMAL, dtype.precision, dtype.scale, dtype)
        if pt.is_string(dtype) or pt.is_large_string(dtype):
            return cls(_STRING, 0, 0, pa.string())
        if pt.is_binary(dtype) or pt.is_large_binary(dtype):
            return cls(_BINARY, 0, 0, pa.binary())
        return None

    @classmethod
    def parse(cls, text: str) -> ValueType | None:
        """The value type of a name that Spark has for it; None if there is none.

        Examples
        --------
        >>> ValueType.parse("integer").dtype, ValueType.parse("DECIMAL(10, 2)").scale
        (DataType(int32), 2)
        >>> ValueType.parse("array<int>") is None
        True
        """
        name, bracket, rest = text.strip().lower().partition("(")
        name = _ALIASES.get(name.strip(), name.strip())
        if name == "decimal":
            found = _DECIMAL_TEXT.fullmatch(name + bracket + rest)
            precision, scale = (
                int(found[1] or 10) if found else 0,
                int(found[2] or 0) if found else 0,
            )
            if not (0 < precision <= _MAX_PRECISION and scale <= precision):
                return None
            return cls.of(pa.decimal128(precision, scale))
        if bracket or name not in TYPES:
            return None
        return cls.of(_BY_CODE[TYPES.index(name) + 1])

    @property
    def width(self) -> int | None:
        """The size of each value in bytes; None if sizes differ."""
        if self.code == _DECIMAL:
            return _DECIMAL_WIDTH
        return None if self.code in (_STRING, _BINARY) else _FIXED[self.dtype][1]

    def to_bytes(self, values: pa.Array) -> list[bytes | None]:
        """The bytes of each value; None for a null.

        Numbers, dates and instants are little-endian, in the width of their type. Text is in UTF-8. Of equal
        floats, 0.0 stands for -0.0, and one NaN for all.
        """
        values = normalize_floats(values.cast(self.dtype))
        if self.width is None:
            found: list[bytes | None] = values.cast(pa.binary()).to_pylist()
            return found
        if pt.is_boolean(values.type):
            values = values.cast(pa.int8())
        validity, data = values.buffers()
        cells = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(self.width), len(values), [validity, data], offset=values.offset
        )
        return cells.to_pylist()  # type: ignore[no-any-return]

    def from_bytes(self, cells: Sequence[bytes | None]) -> pa.Array:
        """The values of these bytes, each of which has the width of the type."""
        if self.width is None:
            # Spark does not validate strings, and gets back the bytes that it had.
            exact = pc.CastOptions(target_type=self.dtype, allow_invalid_utf8=True)
            return pc.cast(pa.array(cells, pa.binary()), options=exact)
        fixed = pa.array(cells, pa.binary(self.width))
        if pt.is_boolean(self.dtype):
            values = pa.Array.from_buffers(pa.int8(), len(fixed), fixed.buffers())
            return values.cast(self.dtype)
        return pa.Array.from_buffers(self.dtype, len(fixed), fixed.buffers())

    def accepts(self, cell: bytes) -> bool:
        """Whether decrypted bytes have the size of a value of the type."""
        return self.width is None or len(cell) == self.width
