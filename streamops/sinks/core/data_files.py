"""Which data files of a table can have rows with wanted values: the lowest and highest values of columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.groups import Mask

_EXACT_IN_A_DOUBLE = 15
"""Digits of decimals. Some writers store the statistics of decimals as doubles."""

_MILLISECOND = 1000
"""Writers cut the statistics of timestamps to milliseconds. A highest value was up to so many microseconds
higher."""


def has_range(dtype: pa.DataType) -> bool:
    """Whether files are excluded by values of this type.

    Floats are not: NaN and the two zeros have no agreed place in statistics.
    """
    return bool(
        pa.types.is_integer(dtype)
        or pa.types.is_date32(dtype)
        or pa.types.is_timestamp(dtype)
        or pa.types.is_string(dtype)
        or (pa.types.is_decimal(dtype) and dtype.precision <= _EXACT_IN_A_DOUBLE)
    )


def range_of(rows: pa.Table) -> pa.Table:
    """The lowest and the highest value of each column that has a range, and no null.

    Examples
    --------
    >>> range_of(pa.table({"a": [3, 1, 2], "b": [None, 1, 1], "c": [0.5] * 3})).to_pydict()
    {'a': [1, 3]}
    """
    found = {}
    for name in rows.column_names:
        values = rows.column(name)
        if len(values) and not values.null_count and has_range(values.type):
            ends = pc.min_max(values)
            found[name] = pa.array([ends["min"], ends["max"]], values.type)
    return pa.table(found)


def union_of(ranges: Sequence[pa.Table]) -> pa.Table:
    """The range of all values, of which some tables have these ranges."""
    names = [n for n in ranges[0].column_names if all(n in r.column_names for r in ranges)]
    return range_of(pa.concat_tables([part.select(names) for part in ranges]))


def find_candidates(
    wanted: pa.Table, lowest: pa.StructArray, highest: pa.StructArray, values: pa.StructArray
) -> Mask:
    """Return which files can have a row whose values are in the wanted ranges.

    Parameters
    ----------
    wanted : Table
        Ranges, as `range_of` returns them.
    lowest, highest : StructArray
        The statistics of each file. A missing column or value is unknown.
    values : StructArray
        The values of the partition of each file. Null is known.

    Examples
    --------
    >>> wanted = pa.table({"a": [4, 6]})
    >>> low, high = pa.array([{"a": 1}, {"a": 5}, {"a": None}]), pa.array([{"a": 3}, {"a": 9}, {"a": None}])
    >>> find_candidates(wanted, low, high, pa.array([{}] * 3)).tolist()
    [False, True, True]
    """
    possible = np.ones(len(values), np.bool_)
    for name in wanted.column_names:
        column = wanted.column(name)
        low, high = column[0], column[1]
        if values.type.get_field_index(name) >= 0:
            found = values.field(name)
            inside = pc.and_(pc.greater_equal(found, low), pc.less_equal(found, high))
            possible &= np.asarray(inside.fill_null(False))
            continue
        if min(part.type.get_field_index(name) for part in (lowest, highest)) < 0:
            continue
        first, last = lowest.field(name), highest.field(name)
        if pa.types.is_timestamp(last.type):
            last = pc.add(last.cast(pa.int64()), _MILLISECOND)
            high_enough = pc.greater_equal(last, low.cast(pa.int64()))
        else:
            high_enough = pc.greater_equal(last, low)
        possible &= np.asarray(pc.less_equal(first, high).fill_null(True))
        possible &= np.asarray(high_enough.fill_null(True))
    return possible
