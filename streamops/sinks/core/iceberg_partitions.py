"""Which partition of an Iceberg table a row belongs to, and which files can have a row."""

from __future__ import annotations

import hashlib
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
from streamops.kernel.errors import SinkError
from streamops.kernel.groups import Ids
from streamops.sinks import conditions

Key = tuple[Any, ...]
"""The values of a partition, as Iceberg represents them: a date is a number of days."""


def unsupported(metadata: Any) -> list[str]:
    """Return the fields of the partition that are not written.

    Readers take a column from its partition, where -0.0 and 0.0 are one, and so is each NaN.
    """
    spec, result = metadata.spec(), []
    types = [part.field_type for part in spec.partition_type(metadata.schema()).fields]
    for part, dtype in zip(spec.fields, types, strict=True):
        name = str(part.transform)
        is_known = str(dtype) not in _INEXACT and type(part.transform).__name__ in _TRANSFORMS
        if name != "void" and not is_known:
            result.append(f"a partition by {name} of {dtype}")
    return result


def source_schema(metadata: Any) -> Any:
    """The columns of the table, and those that were dropped after files were partitioned by them."""
    schema, dropped = metadata.schema(), {}
    sources = {part.source_id for spec in metadata.specs().values() for part in spec.fields}
    for source in sources - schema.field_ids:
        found = [older for older in metadata.schemas if source in older.field_ids]
        if found:
            dropped[source] = found[-1].find_field(source).field_type
    if not dropped:
        return schema
    types, module = (importlib.import_module(f"pyiceberg.{name}") for name in ("types", "schema"))
    fields = (types.NestedField(number, f"dropped {number}", of) for number, of in dropped.items())
    return module.Schema(*schema.fields, *fields, schema_id=schema.schema_id)


_INEXACT = {"float", "double", "unknown"}
"""Types of partitions whose values are not compared. That of a column that was dropped is unknown."""

_TRANSFORMS = {f"{name}Transform" for name in ("Identity", "Bucket", "Truncate", "Year", "Month", "Day", "Hour")}  # fmt: skip


def is_exact(values: Any, spec: Any, schema: Any) -> bool:
    """Whether pyiceberg finds files by these values of their partition."""
    try:
        spec.partition_to_path(values, schema)
    except (OverflowError, ValueError):  # instants that Python's datetime does not have
        return False
    return not {str(of.field_type) for of in spec.partition_type(schema).fields} & _INEXACT


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
    """The folder of a partition; None if the table has none. No reader takes values from its name."""
    if not key:
        return None
    record = importlib.import_module("pyiceberg.typedef").Record(*key)
    spec, schema = metadata.spec(), source_schema(metadata)
    try:
        path = spec.partition_to_path(record, schema)
    except (OverflowError, ValueError) as error:  # instants that Python's datetime does not have
        names = ", ".join(schema.find_column_name(part.source_id) for part in spec.fields)
        raise _without_partition(names, ", ".join(str(p.transform) for p in spec.fields), error) from error  # fmt: skip
    if max(map(len, path.split("/"))) > _LONGEST_NAME:
        path = hashlib.sha256(path.encode()).hexdigest()[:32]
    return Folder(path)


def _without_partition(column: str, transform: str, error: Exception) -> SinkError:
    got = f"{type(error).__name__}: {error}"
    return conditions.NO_PARTITION.error(column=column, transform=transform, got=got)


_LONGEST_NAME = 200
"""Up to how many characters the name of a folder has: file systems have a limit."""

_MICROS_PER_HOUR = 3_600_000_000
_UNITS = {"year": "datetime64[Y]", "month": "datetime64[M]", "day": "datetime64[D]"}


def _transformed(rows: pa.Table, schema: Any, part: Any) -> pa.Array:
    """The value of a field of the partition in each row, as Iceberg's specification defines it.

    Raises
    ------
    SinkError
        ``TARGET_REFUSED``: the type of the partition does not have the value.
    """
    name = str(part.transform)
    if name == "void":
        return pa.nulls(len(rows), pa.int32())
    source = schema.find_field(part.source_id)
    array = _source(rows, schema, part.source_id)
    values = _plain(array)
    if name == "identity":
        return values
    try:
        if name in _UNITS or name == "hour":
            return _periods(values, name, is_date=pa.types.is_date(array.type)).cast(pa.int32())
        encoded = values.dictionary_encode()
        function = part.transform.transform(source.field_type)
        results = [function(value) for value in encoded.dictionary.to_pylist()]
        dtype = values.type if name.startswith("truncate") else pa.int32()
        return pa.array(results, dtype).take(encoded.indices)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise _without_partition(source.name, name, error) from error


def _periods(values: pa.Array, unit: str, *, is_date: bool) -> pa.Array:
    """Whole years, months, days or hours since 1970, of days or microseconds."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if unit == "hour":
        found = numbers // _MICROS_PER_HOUR
    else:
        days = numbers if is_date else numbers // (24 * _MICROS_PER_HOUR)
        found = days.astype("datetime64[D]").astype(_UNITS[unit]).astype(np.int64)
    return pa.array(found, mask=values.is_null().to_numpy(zero_copy_only=False))


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
            name = str(field.transform)
            if name == "identity" and str(source.field_type) in _INEXACT:
                continue  # -0.0 and 0.0 are one, and NaN is not equal to itself
            if type(field.transform).__name__ not in _TRANSFORMS:
                continue
            try:
                allowed = set(_transformed(wanted, schema, field).unique().to_pylist())
            except SinkError:
                continue  # of another partitioning than today's
            if name in _UNITS or name == "hour":  # old writers have rounded up before 1970
                allowed |= {value + 1 for value in allowed if value is not None and value < 0}
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
