"""Helpers for Arrow columns of any type: concatenation, equality, keys, and type names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from streamops.kernel import conditions
from streamops.kernel.errors import ColumnNotFound, closest
from streamops.kernel.groups import Ids, Ints, Mask, pair_codes

_NULL_LIST = -2
_TYPE_NAMES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
}
_OPAQUE = {b"variant", b"geometry", b"geography"}


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as a single array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def column_not_found(
    column: str, available: Iterable[str], *, role: str, where: str = ""
) -> ColumnNotFound:
    """Return the error for a column that a frame does not have; ``role`` is the parameter that names it."""
    names = list(available)
    # The most common mistake is upper or lower case, which Spark ignores and Arrow does not.
    folded = {name.casefold(): name for name in reversed(names)}
    close = closest(column.casefold(), folded)
    whole, _, part = column.rpartition(".")
    condition = conditions.COLUMN_MISSPELT if close else conditions.COLUMN_NOT_FOUND
    if column.casefold() in folded:
        condition = conditions.COLUMN_IN_OTHER_CASE
    elif whole.partition(".")[0] in names:
        condition = conditions.COLUMN_IS_A_FIELD
    elif not close and not column.isidentifier() and any(name in column for name in names):
        condition = conditions.COLUMN_IS_AN_EXPRESSION
    return condition.error(
        where=where,
        column=column,
        role=role,
        names=", ".join(names),
        close=folded[close[0]] if close else None,
        part=part,
        got=column,
    )


def is_complete(rows: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which rows have no null in these columns."""
    complete = np.ones(len(rows), np.bool_)
    for name in names:
        column = rows.column(name)
        if column.null_count:
            complete &= np.asarray(combine_chunks(column).is_valid())
    return complete


def make_structs(table: pa.Table) -> pa.StructArray:
    """Return the rows as structs, also where `Table.to_struct_array` of PyArrow 20 fails: without rows."""
    columns = [combine_chunks(column) for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=[*table.schema])


def null_table(schema: pa.Schema, rows: int) -> pa.Table:
    """Return a table of nulls."""
    return pa.table([pa.nulls(rows, f.type) for f in schema], schema=schema)


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of one schema, with one chunk per column."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def integers(table: pa.Table, name: str) -> Ints:
    """A column of integers without nulls."""
    return np.asarray(combine_chunks(table.column(name)))


def filter_rows(table: pa.Table, mask: Mask) -> pa.Table:
    """Some of the rows; the same table if these are all."""
    return table if mask.all() else table.filter(pa.array(mask)).combine_chunks()


def by_name(schema: pa.Schema) -> pa.Schema:
    """The columns in the order of their names."""
    return pa.schema(sorted(schema, key=lambda column: column.name))


def take(table: pa.Table, rows: npt.NDArray[np.integer]) -> pa.Table:
    """Return the rows at these positions."""
    index = pa.array(rows)
    return pa.table(
        [combine_chunks(column).take(index) for column in table.columns], schema=table.schema
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Select and cast the columns of a schema.

    Spark labels timestamps with the time zone of the session and may use the large variants of
    strings. Neither changes a value, so neither may change a state.
    """
    table = table.select(schema.names)
    return table if table.schema.equals(schema) else table.cast(schema)


def with_large_types(table: pa.Table) -> pa.Table:
    """The same values, with the large variants of strings and binaries, also in nested columns.

    Examples
    --------
    >>> with_large_types(pa.table({"a": pa.array([["x"]])})).schema.field("a").type
    ListType(list<item: large_string>)
    """
    return table.cast(pa.schema([_large(field) for field in table.schema]))


def suit(result: pa.Table, passed: pa.DataType) -> pa.Table:
    """A result with large types, if Spark passed a column of bytes or text with one and so expects them.

    That is ``spark.sql.execution.arrow.useLargeVarTypes``.
    """
    is_large = pa.types.is_large_binary(passed) or pa.types.is_large_string(passed)
    return with_large_types(result) if is_large else result


def _large(field: pa.Field) -> pa.Field:
    dtype = field.type
    if pa.types.is_string(dtype):
        dtype = pa.large_string()
    elif pa.types.is_binary(dtype):
        dtype = pa.large_binary()
    elif pa.types.is_list(dtype):
        dtype = pa.list_(_large(dtype.value_field))
    elif pa.types.is_struct(dtype):
        dtype = pa.struct([_large(inner) for inner in dtype])
    elif pa.types.is_map(dtype):
        dtype = pa.map_(_large(dtype.key_field), _large(dtype.item_field))
    return field.with_type(dtype)


def timestamp_micros(column: pa.Array | pa.ChunkedArray) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Return the microseconds of a timestamp column, and where they are valid.

    Returns
    -------
    micros : array of int64
        0 where null.
    valid : array of bool
    """
    array = combine_chunks(column)
    micros = array.cast(pa.int64())
    if not array.null_count:  # no copy
        return micros.to_numpy(), np.ones(len(array), np.bool_)
    return np.asarray(micros.fill_null(0)), np.asarray(array.is_valid())


def to_floats(array: pa.Array) -> npt.NDArray[np.float64]:
    """Return the values as doubles, NaN where null."""
    values: npt.NDArray[np.float64] = (
        # A safe cast refuses to round integers beyond 2^53; Spark rounds them, too.
        array.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
    )
    return values


def plain_floats(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the values with one zero and one NaN, which is the greatest by its bits."""
    with np.errstate(invalid="ignore"):  # a NaN that signals
        values = values + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    return values


def to_doubles(array: pa.Array) -> npt.NDArray[np.float64]:
    """Return the nearest doubles, also of decimals; NaN where null.

    Examples
    --------
    >>> from decimal import Decimal
    >>> to_doubles(pa.array([Decimal("0.300"), None])).tolist()
    [0.3, nan]
    """
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.string())  # parsed from its digits, a number is rounded once
    return to_floats(array)


def normalize_floats(array: pa.Array) -> pa.Array:
    """Return the values with one form of equal floats: 0.0 for -0.0, and one NaN; at any depth.

    For what compares bytes or text. Elsewhere, :func:`value_codes` compares, and values stay as they are.

    Examples
    --------
    >>> normalize_floats(pa.array([[-0.0, 1.5], None])).to_pylist()
    [[0.0, 1.5], None]
    """
    dtype = array.type
    if pa.types.is_floating(dtype):
        zero, nan = (pa.scalar(value, dtype) for value in (0.0, float("nan")))
        return pc.if_else(pc.is_nan(array), nan, pc.add(array, zero))
    return map_parts(normalize_floats, array)


def map_parts(function: Callable[[pa.Array], pa.Array], array: pa.Array) -> pa.Array:
    """Return structs and lists with other fields and items. Values of other types stay as they are."""
    dtype, missing = array.type, array.is_null()
    if pa.types.is_struct(dtype) and dtype.num_fields and not is_opaque(dtype):
        parts = [function(part) for part in array.flatten()]
        fields = [pa.field(f.name, p.type) for f, p in zip(dtype, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=missing)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        lengths, items = list_items(array)
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        return pa.ListArray.from_arrays(offsets, function(items), mask=missing)
    return array


def is_opaque(dtype: pa.DataType) -> bool:
    """Whether it is a Spark type that Arrow represents as a struct, such as VARIANT."""
    fields = [dtype.field(i) for i in range(dtype.num_fields)]
    return any(_OPAQUE.intersection(field.metadata or ()) for field in fields)


def key_codes(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> Ids:
    """Return one code per row, equal where all columns are equal.

    As in Spark's ``GROUP BY``: null equals null, NaN equals NaN, -0.0 equals
    0.0. Without columns every row has the same key.

    Examples
    --------
    >>> key_codes([pa.array(["a", None, "a", None]), pa.array([1.0, 2.0, 1.0, 2.0])], 4).tolist()
    [0, 3, 0, 3]
    """
    result: Ids | None = None
    for column in columns:
        code = value_codes(combine_chunks(column))
        result = code if result is None else pair_codes(result, code)
    return np.zeros(rows, np.int64) if result is None else result


def value_codes(array: pa.Array) -> Ids:
    """Return one code per value, equal where the values are equal, for any type."""
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        return value_codes(array.dictionary_decode())
    if pa.types.is_null(dtype):
        return np.zeros(len(array), np.int64)
    if pa.types.is_floating(dtype):
        return _float_codes(array)
    if pa.types.is_struct(dtype):
        children = [combine_chunks(child) for child in array.flatten()]
        return key_codes([array.is_valid(), *children], len(array))
    if pa.types.is_map(dtype) or pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return _list_codes(array)
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64, copy=False)


def _float_codes(array: pa.Array) -> Ids:
    bits = plain_floats(to_floats(array)).view(np.int64)
    return value_codes(pa.array(bits, mask=np.asarray(array.is_null())))


def _list_codes(array: pa.Array) -> Ids:
    lengths, elements = list_items(array, by=value_codes)
    codes = value_codes(elements)
    result = list_codes(codes - codes.min(initial=0), lengths, pair_codes)
    result[np.asarray(array.is_null())] = _NULL_LIST
    return result


def list_items(
    array: pa.Array, *, by: Callable[[pa.Array], Ids] | None = None
) -> tuple[Ids, pa.Array]:
    """Return the length of each list or map, 0 where null, and the items of all lists.

    The order of entries of a map has no meaning: with `by` they are sorted by these codes of keys.
    """
    is_map = pa.types.is_map(array.type)
    if is_map:
        # Without a cast, which damages slices with a part of the null type.
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        parts: dict[str, Any] = {"offset": array.offset, "children": [entries]}
        own = array.buffers()[:2]
        array = pa.Array.from_buffers(pa.list_(entries.type), len(array), own, **parts)
    lengths = np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64)
    items = array.flatten()
    if is_map and by is not None and lengths.max(initial=0) > 1:
        owners = np.repeat(np.arange(len(lengths)), lengths)
        items = items.take(pa.array(np.lexsort((by(items.field("key")), owners))))
    return lengths, items


def list_codes(items: Ids, lengths: Ids, combine: Callable[[Ids, Ids], Ids]) -> Ids:
    """Return one code per list, computed from the codes of the items of all lists.

    Neighbouring codes are combined until every list is one code, in log2(longest list) rounds.
    An empty list is -1.

    Parameters
    ----------
    items : array of int64
        A code >= 0 for each item.
    lengths : array of int64
        Items per list.
    combine : callable
        With ``pair_codes`` codes are equal where lists are equal. With ``ordered_pair_codes`` they
        also sort like lists: by the first differing items, and a prefix before the longer list.

    Examples
    --------
    >>> from streamops.kernel.groups import ordered_pair_codes
    >>> items, lengths = np.array([7, 5, 7, 5, 7]), np.array([2, 1, 0, 2])
    >>> list_codes(items, lengths, ordered_pair_codes).argsort().tolist()  # [], [5, 7], [7], [7, 5]
    [2, 3, 1, 0]
    """
    while lengths.max(initial=0) > 1:
        ends = np.cumsum(lengths)
        position = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
        left = np.flatnonzero(position % 2 == 0)
        right = np.append(items, -1)[left + 1]
        right[position[left] + 1 == np.repeat(lengths, lengths)[left]] = -1  # the list ends before
        items, lengths = combine(items[left], right), (lengths + 1) // 2
    result = np.full(len(lengths), -1, np.int64)
    result[lengths > 0] = items
    return result


def rows_differ(old: Sequence[pa.Array], new: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Return where at least one column differs; null equals null, NaN equals NaN."""
    result = np.zeros(len(new[0]) if new else 0, np.bool_)
    for before, after in zip(old, new, strict=True):
        both = value_codes(pa.concat_arrays([before, after]))
        result |= both[: len(before)] != both[len(before) :]
    return result


def type_name(dtype: pa.DataType) -> str:
    """Return Spark's name of the type, or Arrow's if Spark has none.

    Examples
    --------
    >>> type_name(pa.list_(pa.int64())), type_name(pa.timestamp("us", "UTC"))
    ('array<bigint>', 'timestamp')
    """
    if pa.types.is_duration(dtype):
        return "interval day to second"
    if pa.types.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    if pa.types.is_timestamp(dtype):
        return "timestamp_ntz" if dtype.tz is None else "timestamp"
    if pa.types.is_time64(dtype):
        return "time(6)"
    if (
        pa.types.is_list(dtype)
        or pa.types.is_large_list(dtype)
        or pa.types.is_fixed_size_list(dtype)
    ):
        return f"array<{type_name(dtype.value_type)}>"
    if pa.types.is_map(dtype):
        return f"map<{type_name(dtype.key_type)},{type_name(dtype.item_type)}>"
    if pa.types.is_struct(dtype):
        if any((field.metadata or {}).get(b"variant") == b"true" for field in dtype):
            return "variant"
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in dtype)}>"
    return _TYPE_NAMES.get(dtype, str(dtype))


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_EXACT = {pa.int8(): 24, pa.int16(): 24, pa.int32(): 53}
"""The bits that a float needs for all integers of a type: none has 64."""
_FLOATS = {pa.float32(): 24, pa.float64(): 53}
_MOST_DIGITS = 38


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The least type of Spark that has all values of two types; None if there is none.

    Examples
    --------
    >>> common_type(pa.int32(), pa.int64()), common_type(pa.decimal128(10, 0), pa.decimal128(10, 2))
    (DataType(int64), Decimal128Type(decimal128(12, 2)))
    >>> common_type(pa.int64(), pa.float64())  # a double does not have 2^53 + 1
    """
    return one if one == other else _directed(one, other) or _directed(other, one)


def _directed(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The common type, or None if it is that of `other` and `one`."""
    if pt.is_null(one) or (one, other) in (
        (pa.float32(), pa.float64()),
        (pa.string(), pa.binary()),  # not the reverse: not all bytes are text
        (pa.date32(), pa.timestamp("us")),
    ):
        return other
    if one == pa.date32() and pt.is_timestamp(other):
        return other  # the midnight in the time zone of the session
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    if one in _EXACT and other in _FLOATS:
        return other if _EXACT[one] <= _FLOATS[other] else pa.float64()
    if pt.is_decimal(other) and (pt.is_decimal(one) or one in _DIGITS):
        digits, scale = (one.precision, one.scale) if pt.is_decimal(one) else (_DIGITS[one], 0)
        scale = max(scale, other.scale)
        digits = max(
            digits - (one.scale if pt.is_decimal(one) else 0), other.precision - other.scale
        )
        return pa.decimal128(digits + scale, scale) if digits + scale <= _MOST_DIGITS else None
    # Texts of floats distinguish -0.0 from 0.0, those of instants lose an hour when clocks are set back.
    if other == pa.string() and (one in _DIGITS or pt.is_boolean(one) or one == pa.date32()):
        return other
    if pt.is_list(one) and pt.is_list(other):
        item = common_type(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if pt.is_struct(one) and pt.is_struct(other):
        fields = [
            (of.name, common_type(of.type, to.type)) for of, to in zip(one, other, strict=False)
        ]
        same = [of.name for of in one] == [of.name for of in other]
        return pa.struct(fields) if same and all(dtype for _, dtype in fields) else None
    return None


def fix_types(
    columns: tuple[str, str], types: tuple[pa.DataType, pa.DataType], frames: tuple[str, str]
) -> str:
    """The remedy for two columns that must have one type.

    Examples
    --------
    >>> fix_types(("id", "id"), (pa.int64(), pa.int32()), ("left", "right"))
    "cast one of them: right.withColumn('id', F.col('id').cast('bigint'))"
    """
    common = common_type(*types)
    if common is None:
        names = " and ".join(map(type_name, types))
        return f"no type has all values of {names}: convert one column, and decide what becomes of the others"
    # "timestamp" is what spark.sql.timestampType says.
    name = re.sub(r"\btimestamp\b", "timestamp_ltz", type_name(common))
    casts = [
        f"{frame}.withColumn({column!r}, F.col({column!r}).cast({name!r}))"
        for column, dtype, frame in zip(columns, types, frames, strict=True)
        if dtype != common
    ]
    return f"cast {'one of them' if len(casts) == 1 else 'both'}: {', '.join(casts)}"
