"""The expressions of the Delta sink.

Names are quoted. Values are never part of an expression, except for numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from streamops.kernel.sql import quote

TARGET, SOURCE = "t", "s"


def equal(rows: pa.Table, names: Iterable[str]) -> str:
    """Whether the target has the values of these source rows in these columns. Null equals null.

    A plain ``=`` also excludes files by their statistics. Two ``IS NOT DISTINCT FROM`` in one condition
    are an error in deltalake, the same condition in other words is not.

    Examples
    --------
    >>> equal(pa.table({"a": [1], "b": ["x"]}), ["a", "b"])
    't."a" = s."a" AND t."b" = s."b"'
    >>> equal(pa.table({"a": [None]}), ["a"]), equal(pa.table({}), [])
    ('NOT (t."a" IS DISTINCT FROM s."a")', 'true')
    """
    return " AND ".join(_equal(rows.column(name), quote(name)) for name in names) or "true"


def _equal(values: pa.ChunkedArray, name: str) -> str:
    if values.null_count or pa.types.is_nested(values.type):
        return f"NOT ({TARGET}.{name} IS DISTINCT FROM {SOURCE}.{name})"
    return f"{TARGET}.{name} = {SOURCE}.{name}"


def assign(names: Iterable[str]) -> dict[str, str]:
    """Assignments of columns of the source to those of the target."""
    return {quote(name): f"{SOURCE}.{quote(name)}" for name in names}


def is_newer(sequence: Sequence[str]) -> str | None:
    """Whether the sequence of the source is above that of the target; None without a sequence.

    Null is the lowest. The source has none.

    Examples
    --------
    >>> is_newer(["a"])
    't."a" IS NULL OR t."a" < s."a"'
    """
    if not sequence:
        return None
    name, rest = quote(sequence[0]), is_newer(sequence[1:])
    first = f"{TARGET}.{name} IS NULL OR {TARGET}.{name} < {SOURCE}.{name}"
    return f"{first} OR ({TARGET}.{name} = {SOURCE}.{name} AND ({rest}))" if rest else first


_RANGES: dict[pa.DataType, tuple[pa.DataType, str]] = {
    **{dtype: (pa.int64(), "{}") for dtype in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.date32(): (pa.int32(), "arrow_cast({}, 'Date32')"),
    pa.timestamp("us"): (pa.int64(), "arrow_cast({}, 'Timestamp(Microsecond, None)')"),
    pa.timestamp("us", "UTC"): (
        pa.int64(),
        "arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')",
    ),
}


def select_range(name: str, values: pa.ChunkedArray) -> str | None:
    """Select rows between the lowest and the highest of these values, by which files are skipped.

    None if the values are not numbers, dates or timestamps, or if one is null.

    Examples
    --------
    >>> select_range("k", pa.chunked_array([[3, -1]]))
    '"k" >= -1 AND "k" <= 3'
    >>> select_range("k", pa.chunked_array([["a"]]))
    """
    if not len(values) or values.null_count or values.type not in _RANGES:
        return None
    whole, text = _RANGES[values.type]
    numbers = values.cast(whole).to_numpy()
    low, high = (text.format(int(number)) for number in (numbers.min(), numbers.max()))
    return f"{quote(name)} >= {low} AND {quote(name)} <= {high}"
