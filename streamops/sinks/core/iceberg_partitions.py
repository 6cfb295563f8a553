"""Which partition of an Iceberg table a row belongs to, and which files can have a row."""

from __future__ import annotations

import importlib
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.groups import Ids

Key = tuple[Any, ...]
"""The values of a partition, as Iceberg represents them: a date is a number of days."""


def unsupported(metadata: Any) -> list[str]:
    """Return the fields of the partition that are not written.

    Readers take a column from its partition, where -0.0 and 0.0 are one, and so is each NaN.
    """
    schema, result = metadata.schema(), []
    for part in metadata.spec().fields:
        name, dtype = str(part.transform), schema.find_field(part.source_id).field_type
        is_float = str(dtype) in {"float", "double"}
        if type(part.transform).__name__ == "UnknownTransform" or (name == "identity" and is_float):
            result.append(f"a partition by {name} of {dtype}")
    return result


def divide(rows: pa.Table, metadata: Any) -> Iterator[tuple[Key, pa.Table]]:
    """Yield the rows of each partition."""
    if not metadata.spec().fields:
        yield (), rows
        return
    columns, codes = partition_of(rows, metadata)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for at in np.split(order, starts[1:]) if len(rows) else ():
        yield tuple(column[int(at[0])].as_py() for column in columns), take(rows, at)


def partition_of(rows: pa.Table, metadata: Any) -> tuple[list[pa.Array], Ids]:
    """The values of the partition of each row, and a number of it."""
    fields = metadata.spec().fields
    columns = [_transformed(rows, metadata.schema(), part) for part in fields]
    return columns, key_codes(columns, len(rows))


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a partition."""

    path: str

    def to_path(self) -> str:
        """The path below the folder of the table."""
        return self.path


def folder(key: Key, metadata: Any) -> Folder | None:
    """The folder of a partition; None if the table has none."""
    if not key:
        return None
    record = importlib.import_module("pyiceberg.typedef").Record(*key)
    return Folder(metadata.spec().partition_to_path(record, metadata.schema()))


def _transformed(rows: pa.Table, schema: Any, part: Any) -> pa.Array:
    """The value of a field of the partition in each row."""
    source = schema.find_field(part.source_id)
    values = _plain(_source(rows, schema, part.source_id))
    name = str(part.transform)
    if name == "identity":
        return values
    if name == "void":
        return pa.nulls(len(rows), pa.int32())
    encoded = values.dictionary_encode()
    function = part.transform.transform(source.field_type)
    results = [function(value) for value in encoded.dictionary.to_pylist()]
    dtype = values.type if name.startswith("truncate") else pa.int32()
    return pa.array(results, dtype).take(encoded.indices)


def _source(rows: pa.Table, schema: Any, number: int) -> pa.Array:
    """A column, or a field of one."""
    parts, found = schema.fields, None
    path: list[str] = []
    remaining: list[tuple[tuple[str, ...], Any]] = [((), part) for part in parts]
    while remaining:
        before, part = remaining.pop()
        if part.field_id == number:
            path, found = [*before, part.name], part
            break
        for child in getattr(part.field_type, "fields", ()):
            remaining.append(((*before, part.name), child))
    assert found is not None
    array = combine_chunks(rows.column(path[0]))
    for name in path[1:]:
        array = pc.struct_field(array, [name])
    return array


def _plain(array: pa.Array) -> pa.Array:
    """Dates and times as numbers."""
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32())
    if pa.types.is_timestamp(array.type) or pa.types.is_time64(array.type):
        return array.cast(pa.int64())
    return array


def candidates(
    files: Sequence[Any],
    wanted: pa.Table,
    by: Sequence[str],
    metadata: Any,
    *,
    is_range: bool = False,
) -> list[bool]:
    """Return which data files can have a row that is like a wanted one, in these columns.

    By the lowest and the highest value of a column in a file, and by the values of its partition. With
    `is_range`, a wanted row is one between the lowest and the highest.
    """
    schema = metadata.schema()
    possible = np.full(len(files), is_range or len(wanted) > 0)
    for name in by:
        part = next(of for of in schema.fields if of.name == name)
        column = combine_chunks(wanted.column(name))
        possible &= _by_bounds(files, column, part, is_range)
    for spec_id, spec in () if is_range else metadata.specs().items():
        of_spec = np.array([file.spec_id == spec_id for file in files], np.bool_)
        for position, field in enumerate(spec.fields):
            source = next((of for of in schema.fields if of.field_id == field.source_id), None)
            if source is None or source.name not in by or not (of_spec & possible).any():
                continue
            values = _transformed(wanted, schema, field).unique().to_pylist()
            allowed = set(values)
            for number in np.flatnonzero(of_spec & possible):
                possible[number] = files[int(number)].partition[position] in allowed
    return [bool(value) for value in possible]


def _by_bounds(
    files: Sequence[Any], column: pa.Array, part: Any, is_range: bool
) -> npt.NDArray[np.bool_]:
    """Which files can have a value of a column, by its bounds and its number of nulls."""
    number, dtype = part.field_id, column.type
    result = np.ones(len(files), np.bool_)
    values = column.drop_null()
    if pa.types.is_floating(dtype):
        if pc.any(pc.is_nan(values)).as_py():
            return result  # bounds do not include NaN
        ordered = np.unique(values.to_numpy(zero_copy_only=False).astype(np.float64))
    elif pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        texts = values.cast(pa.binary()).unique()
        ordered = texts.take(pc.sort_indices(texts)).to_numpy(zero_copy_only=False)
    elif pa.types.is_integer(dtype) or pa.types.is_date32(dtype) or pa.types.is_timestamp(dtype):
        ordered = np.unique(_plain(values).cast(pa.int64()).to_numpy(zero_copy_only=False))
    else:
        return result
    wants_null = column.null_count > 0
    for at, file in enumerate(files):
        nulls, count = (file.null_value_counts or {}).get(number), file.record_count
        if wants_null and nulls != 0:
            continue
        low, high = (
            None if (bounds or {}).get(number) is None else _decode(bounds[number], dtype)
            for bounds in (file.lower_bounds, file.upper_bounds)
        )
        if nulls is not None and nulls == count:
            result[at] = False
            continue
        first = 0 if low is None else bisect_left(ordered, low)
        is_open = high is None or high != high  # NaN, which old writers have
        lowest = 0 if is_range else first
        result[at] = first < len(ordered) and (is_open or ordered[lowest] <= high)
    return result


def _decode(data: bytes, dtype: pa.DataType) -> Any:
    """A bound. It may be of a narrower type than the column, which was widened since."""
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        return data
    if pa.types.is_floating(dtype):
        return struct.unpack("<f" if len(data) == struct.calcsize("f") else "<d", data)[0]
    return int.from_bytes(data, "little", signed=True)
