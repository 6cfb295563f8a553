"""The types of items, by the names that Spark gives them: as written into stored sketches.

An ``int`` and a ``bigint`` of the same value have different hashes. So a sketch that is asked
by value must know the type of its items.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["flat_type", "is_flat", "is_normal", "normal", "type_name"]

_FLAT: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": pa.duration("us"),
}
_NAMES = {kind: name for name, kind in _FLAT.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}
_DECIMAL = re.compile(r"decimal\(([1-9]\d?),(\d\d?)\)")


def type_name(kind: pa.DataType) -> str:
    """Spark's name of the type, with no spaces between the parts of a nested one.

    Examples
    --------
    >>> type_name(pa.struct([("a", pa.list_(pa.int64())), ("b", pa.decimal128(6, 2))]))
    'struct<"a":array<bigint>,"b":decimal(6,2)>'
    """
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "timestamp"  # an instant, whatever the zone it is shown in
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        parts = (f'"{_quoted(field.name)}":{type_name(field.type)}' for field in kind)
        return f"struct<{','.join(parts)}>"
    return _NAMES.get(kind, str(kind))


def flat_type(name: str) -> pa.DataType | None:
    """The type of this name; None for a nested one, and for what is none.

    Examples
    --------
    >>> flat_type("decimal(6,2)"), flat_type("array<int>")
    (Decimal128Type(decimal128(6, 2)), None)
    """
    found = _DECIMAL.fullmatch(name)
    if found:
        precision, scale = map(int, found.groups())
        return pa.decimal128(precision, scale) if scale <= precision <= 38 else None
    return _FLAT.get(name)


def is_flat(kind: pa.DataType) -> bool:
    """Whether :func:`flat_type` knows the type.

    Examples
    --------
    >>> is_flat(pa.string()), is_flat(pa.list_(pa.string()))
    (True, False)
    """
    return flat_type(type_name(kind)) is not None


def normal(items: pa.Array) -> pa.Array:
    """Items without a null, each as the one of all that are equal to it.

    -0.0 is 0.0, and every NaN is the one that Java writes.

    Examples
    --------
    >>> normal(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    if not pa.types.is_floating(items.type):
        return items
    values = items.to_numpy(zero_copy_only=False)
    return pa.array(np.where(np.isnan(values), np.nan, values + 0.0), items.type, from_pandas=False)


def is_normal(items: pa.Array) -> npt.NDArray[np.bool_]:
    """Which items are written as all are that are equal to them."""
    if not pa.types.is_floating(items.type):
        return np.ones(len(items), np.bool_)
    written, known = (each.to_numpy(zero_copy_only=False) for each in (items, normal(items)))
    width = f"i{written.itemsize}"
    same: npt.NDArray[np.bool_] = written.view(width) == known.view(width)
    return same


def _quoted(name: str) -> str:
    return name.replace('"', '""')
