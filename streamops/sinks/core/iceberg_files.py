"""Data files of Iceberg tables: read, searched, written and rewritten, in the driver or in a task.

What a task needs is plain text: the metadata of the table without its history, the properties of its file
system, and a description of each file. What it returns is the descriptions of the files that it has written,
which one commit makes visible.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from streamops.kernel.columns import combine_chunks, is_opaque, list_items, null_table
from streamops.kernel.versions import decimals_as_integers
from streamops.sinks import conditions
from streamops.sinks.core import iceberg_partitions
from streamops.sinks.core.net import is_like

File = dict[str, Any]
"""A data file, and the delete files that apply to it, as values of JSON."""

TARGET = "the Iceberg table"
FIELD_ID = b"PARQUET:field_id"

NOTE = "path"
"""How the names of files end that have the name of a data file."""

_ROW_GROUP_BYTES = 64 << 20
"""How many bytes of rows wait for a row group of a file."""

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def _iceberg(name: str) -> Any:
    """A module of pyiceberg, which is optional."""
    return importlib.import_module(f"pyiceberg.{name}")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """How a table stores rows: what a task needs to read and write its files.

    Parameters
    ----------
    metadata : str
        The metadata of the table as JSON, without its history.
    io : mapping of str to str
        Properties of the file system, such as credentials. They are not shown.
    notes : str
        Where to note the name of each file before it is written; an empty text for nowhere.
    """

    metadata: str
    io: Mapping[str, str] = field(repr=False)
    notes: str = ""

    @classmethod
    def of(cls, metadata: Any, io: Mapping[str, str]) -> TableFiles:
        """The files of a table with this metadata."""
        empty: dict[str, Any] = {
            name: []
            for name in (
                "snapshots",
                "snapshot_log",
                "metadata_log",
                "statistics",
                "partition_statistics",
            )
        }
        plain = metadata.model_copy(update={**empty, "refs": {}, "current_snapshot_id": None})
        return cls(plain.model_dump_json(), dict(io))

    @property
    def table(self) -> Any:
        """The metadata, parsed."""
        return _parse(self.metadata)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, all of which can be null."""
        return arrow_schema(self.table.schema())

    def file_io(self) -> Any:
        """The file system."""
        return _iceberg("io").load_file_io(dict(self.io), self.table.location)

    def filled(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, null where they have none."""
        schema = self.schema
        missing = pa.schema([part for part in schema if part.name not in rows.column_names])
        for part, column in zip(missing, null_table(missing, len(rows)).columns, strict=True):
            rows = rows.append_column(part, column)
        return rows.select(schema.names).cast(schema)

    def find_fault(self) -> str:
        """What pyiceberg and Arrow do not understand in the properties of the table; an empty text if all is well."""
        properties = self.table.properties
        try:
            _parse_settings(properties)
            writer, plan = _Writer(self, None), _iceberg("io.pyarrow").compute_statistics_plan
            with pq.ParquetWriter(pa.BufferOutputStream(), writer.schema, **writer.options) as file:
                file.write_table(null_table(writer.schema, 1))
            plan(self.table.schema(), properties)
            self.table.name_mapping()
            for path in (writer.locations.new_data_location("x"), properties.get(_METADATA_PATH)):
                if path:
                    writer.io.new_output(path)
        except _UNREADABLE as error:
            return f"{type(error).__name__}: {error}"
        return "encryption.key-id" if "encryption.key-id" in properties else ""

    def write(self, parts: Iterable[pa.Table], target: int | None = None) -> list[File]:
        """Write rows with all columns of the table, and return descriptions of the new files.

        Files are closed at `target` bytes. Default: what the table says.
        """
        writer = _Writer(self, target)
        try:
            for rows in parts:
                writer.add(rows)
            return writer.close()
        except BaseException:
            writer.abort()
            raise

    def find(
        self, files: Iterable[File], wanted: pa.Table, by: Sequence[str], names: Sequence[str]
    ) -> tuple[pa.Table, list[File]]:
        """Return the rows that are like a wanted one, in these columns, and the files that have one."""
        names = [name for name in self.schema.names if name in {*by, *names}]
        found, touched = [pa.schema([self.schema.field(n) for n in names]).empty_table()], []
        for file in files:
            rows = [
                part.filter(pa.array(is_like(part, wanted, by))) for part in self.read(file, names)
            ]
            if sum(map(len, rows)):
                touched.append(file)
                found.extend(rows)
        return pa.concat_tables(found), touched

    def rewrite(
        self, files: Iterable[File], removed: pa.Table, by: Sequence[str], added: pa.Table
    ) -> list[File]:
        """Write the rows of files without those that are like a removed one, and more rows."""
        return self.write(self._remaining(files, removed, by, added))

    def _remaining(
        self, files: Iterable[File], removed: pa.Table, by: Sequence[str], added: pa.Table
    ) -> Iterator[pa.Table]:
        for file in files:
            for rows in self.read(file):
                yield rows.filter(pa.array(~is_like(rows, removed, by)))
        yield added

    def read(self, file: File, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a file that are not deleted, a row group at a time."""
        io, path = self.file_io(), file["file_path"]
        _require_parquet(file["file_format"])
        deleted = _deleted_rows(io, path, file["deletes"])
        schema, start = self.table.schema(), 0
        wanted = [part for part in schema.fields if names is None or part.name in names]
        with io.new_input(path).open() as stream, pq.ParquetFile(stream) as parquet:
            mapping = self.table.name_mapping()
            ids = to_iceberg(parquet.schema_arrow, mapping)
            present = {part.field_id: part for part in ids}
            columns = [present[p.field_id].name for p in wanted if p.field_id in present]
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, columns=columns)
                count = parquet.metadata.row_group(group).num_rows
                arrays = [
                    _project(combine_chunks(rows.column(present[part.field_id].name)), present[part.field_id].field_type, part.field_type)
                    if part.field_id in present
                    else self._missing(part, file, count)
                    for part in wanted
                ]  # fmt: skip
                result = pa.table(dict(zip((p.name for p in wanted), arrays, strict=True)))
                if len(deleted):
                    stays = np.ones(count, np.bool_)
                    stays[deleted[(deleted >= start) & (deleted < start + count)] - start] = False
                    result = result.filter(pa.array(stays))
                start += count
                yield result

    def _missing(self, part: Any, file: File, count: int) -> pa.Array:
        """A column that a file does not have: of a partition, with a default, or of nulls."""
        spec = self.table.specs()[file["spec_id"]]
        value = part.initial_default
        for position, of in enumerate(spec.fields):
            if of.source_id == part.field_id and str(of.transform) == "identity":
                value = _partition_values(self.table, file)[position]
        dtype = arrow_type(part.field_type)
        return (
            pa.repeat(pa.scalar(value, dtype), count)
            if value is not None
            else pa.nulls(count, dtype)
        )


_METADATA_PATH = "write.metadata.path"
_OF_MAINTENANCE = {"history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"}
_UNREADABLE = (ValueError, TypeError, AttributeError, ImportError, OSError, OverflowError, pa.ArrowException)  # fmt: skip


def _parse_settings(properties: Mapping[str, str]) -> None:
    """Read each property that pyiceberg reads while it writes, and parse numbers and truth values as it does."""
    names, parse = _iceberg("table").TableProperties, _iceberg("utils.properties")
    for attribute, default in vars(names).items():
        name = getattr(names, attribute.removesuffix("_DEFAULT"), "")
        if not attribute.endswith("_DEFAULT") or name not in properties or name in _OF_MAINTENANCE:
            continue
        if isinstance(default, bool):
            parse.property_as_bool(properties, name, default)
        elif name == names.WRITE_PARTITION_SUMMARY_LIMIT:
            int(properties[name])  # an empty text is no default here
        elif isinstance(default, int):
            number = parse.property_as_int(properties, name, default)
            if name.startswith("write.parquet.") and number < 1:
                raise ValueError(f"{name}={number}, with which Arrow crashes or hangs")


@lru_cache(maxsize=16)
def _parse(metadata: str) -> Any:
    return _iceberg("table.metadata").TableMetadataUtil.parse_raw(metadata)


class _Writer:
    """Files that are being written, one at a time per partition."""

    def __init__(self, files: TableFiles, target: int | None) -> None:
        metadata = self.metadata = files.table
        properties = metadata.properties
        self.io, self.token, self.notes = files.file_io(), uuid.uuid4(), files.notes
        self.locations = _iceberg("table.locations").load_location_provider(
            metadata.location, properties
        )
        parquet = _iceberg("io.pyarrow")
        options = parquet._get_parquet_writer_kwargs(properties)
        names = _iceberg("table").TableProperties
        self.target = target or int(
            properties.get(
                names.WRITE_TARGET_FILE_SIZE_BYTES, names.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
            )
        )
        self.schema = arrow_schema(metadata.schema(), with_ids=True)
        self.options = {**options, **decimals_as_integers(self.schema), "store_schema": False}
        self.waiting: dict[Any, list[pa.Table]] = {}
        self.bytes: dict[Any, int] = {}
        self.open: dict[Any, tuple[str, Any, Any, list[int]]] = {}
        self.written: list[File] = []
        self.paths: list[str] = []

    def add(self, rows: pa.Table) -> None:
        """Take rows, and write those that fill a row group."""
        for key, part in iceberg_partitions.divide(rows, self.metadata):
            if len(part):
                self.waiting.setdefault(key, []).append(part)
                self.bytes[key] = self.bytes.get(key, 0) + part.nbytes
        while sum(self.bytes.values()) >= _ROW_GROUP_BYTES:
            self._write_group(max(self.bytes, key=self.bytes.__getitem__))

    def close(self) -> list[File]:
        """Write the rest, and return descriptions of all files."""
        for key in list(self.waiting):
            self._write_group(key)
        for key in list(self.open):
            self._finish(key)
        return self.written

    def abort(self) -> None:
        """Delete what was written."""
        for _, stream, writer, _ in self.open.values():
            writer.close()
            stream.close()
        remove(self.io.delete, self.paths)

    def _write_group(self, key: Any) -> None:
        rows = pa.concat_tables(self.waiting.pop(key))
        del self.bytes[key]
        if key not in self.open:
            name = f"{len(self.paths):05d}-streamops-{self.token}.parquet"
            partition = iceberg_partitions.folder(key, self.metadata)
            path = self.locations.new_data_location(name, partition)
            self.paths.append(path)
            if self.notes:
                note = f"{self.notes}/{uuid.uuid4().hex}.{NOTE}"
                with self.io.new_output(note).create() as stream:
                    stream.write(path.encode())
            stream = self.io.new_output(path).create(overwrite=True)
            writer = pq.ParquetWriter(stream, self.schema, **self.options)
            self.open[key] = path, stream, writer, []
        _, stream, writer, nans = self.open[key]
        nans.append(0)
        columns = [_conform(rows.column(part.name), part.type) for part in self.schema]
        writer.write_table(pa.Table.from_arrays(columns, schema=self.schema))
        if stream.tell() >= self.target:
            self._finish(key)

    def _finish(self, key: Any) -> None:
        path, stream, writer, _ = self.open.pop(key)
        with stream:
            writer.close()
            size = stream.tell()
        statistics = _statistics(writer.writer.metadata, self.metadata)
        file = _data_file(
            self.metadata.default_spec_id,
            file_path=path,
            file_format=_iceberg("manifest").FileFormat.PARQUET,
            partition=_iceberg("typedef").Record(*key),
            file_size_in_bytes=size,
            **statistics,
        )
        self.written.append(describe(file, self.metadata))


def filesystem(io: Any, location: str) -> pafs.FileSystem:
    """The files below a location, which is the root."""
    arrow = _iceberg("io.pyarrow").PyArrowFileIO
    scheme, host, path = arrow.parse_location(location, io.properties)
    if isinstance(io, arrow):
        return pafs.SubTreeFileSystem(path, io.fs_by_scheme(scheme, host))
    handler = pafs.FSSpecHandler(io.get_fs(scheme, host))
    return pafs.SubTreeFileSystem(path, pafs.PyFileSystem(handler))


def remove(delete: Callable[[str], Any], paths: Iterable[str]) -> None:
    """Delete files that no commit names. What cannot be deleted stays: nobody reads it."""
    for path in paths:
        with suppress(OSError):
            delete(path)


def _statistics(parquet: Any, metadata: Any) -> dict[str, Any]:
    """Counts and bounds of a file."""
    module, schema = _iceberg("io.pyarrow"), metadata.schema()
    paths = module.parquet_path_to_id_mapping(schema)
    mode = "write.metadata.metrics.default"
    for properties in (metadata.properties, {mode: "counts"}):
        plan = module.compute_statistics_plan(schema, properties)
        try:
            found = module.data_file_statistics_from_parquet_metadata(parquet, plan, paths)
            return dict(found.to_serialized_dict())
        except (OverflowError, ValueError):
            continue  # instants that Python's datetime does not have: the file gets no bounds
    return {"record_count": parquet.num_rows}


def describe(file: Any, metadata: Any, deletes: Iterable[Any] = ()) -> File:
    """Describe a data file, and the delete files that apply to it."""
    types = _partition_types(metadata, file.spec_id)
    to_bytes = _iceberg("conversions").to_bytes
    values = [file.partition[position] for position in range(len(types))]
    result: File = {
        "file_path": file.file_path,
        "file_format": str(file.file_format.value),
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        "split_offsets": file.split_offsets,
        "spec_id": file.spec_id,
        "partition": [
            None if value is None else to_bytes(dtype, value).hex()
            for dtype, value in zip(types, values, strict=True)
        ],
        "deletes": sorted([d.file_path, str(d.file_format.value)] for d in deletes),
    }
    for name in _COUNTS:
        result[name] = [list(pair) for pair in (getattr(file, name) or {}).items()]
    for name in _BOUNDS:
        result[name] = [
            (number, data.hex()) for number, data in (getattr(file, name) or {}).items()
        ]
    return result


def data_file(file: File, metadata: Any) -> Any:
    """Return the data file of a description."""
    manifest = _iceberg("manifest")
    values = {name: value for name, value in file.items() if name != "deletes"}
    partition = _partition_values(metadata, values)
    for name in _COUNTS:
        values[name] = dict(values[name])
    for name in _BOUNDS:
        values[name] = {number: bytes.fromhex(text) for number, text in values[name]}
    values["partition"] = _iceberg("typedef").Record(*partition)
    values["file_format"] = manifest.FileFormat(values["file_format"])
    return _data_file(values.pop("spec_id"), **values)


def _data_file(spec_id: int, **values: Any) -> Any:
    """A data file without a sort order and a key of encryption."""
    manifest = _iceberg("manifest")
    nothing = dict.fromkeys(("sort_order_id", "equality_ids", "key_metadata"))
    file = manifest.DataFile.from_args(content=manifest.DataFileContent.DATA, **nothing, **values)
    file.spec_id = spec_id
    return file


def _partition_types(metadata: Any, spec_id: int) -> list[Any]:
    spec = metadata.specs()[spec_id]
    schema = iceberg_partitions.source_schema(metadata)
    types = [part.field_type for part in spec.partition_type(schema).fields]
    if "unknown" in map(str, types):
        raise conditions.ICEBERG_FEATURE.error(got="files in partitions by an unknown column")
    return types


def _partition_values(metadata: Any, file: File) -> list[Any]:
    from_bytes = _iceberg("conversions").from_bytes
    types = _partition_types(metadata, file["spec_id"])
    return [
        None if text is None else from_bytes(dtype, bytes.fromhex(text))
        for dtype, text in zip(types, file["partition"], strict=True)
    ]


def arrow_type(dtype: Any, with_ids: bool = False) -> pa.DataType:
    """The Arrow type of an Iceberg type."""
    types = _iceberg("types")
    if isinstance(dtype, types.StructType):
        return pa.struct([_arrow_field(part, with_ids) for part in dtype.fields])
    if isinstance(dtype, types.ListType):
        return pa.list_(_arrow_field(dtype.element_field, with_ids))
    if isinstance(dtype, types.MapType):
        key, value = (_arrow_field(p, with_ids) for p in (dtype.key_field, dtype.value_field))
        return pa.map_(key.with_nullable(False), value)
    found = _iceberg("io.pyarrow").schema_to_pyarrow(dtype)
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(found, found)


def _arrow_field(part: Any, with_ids: bool) -> pa.Field:
    metadata = {FIELD_ID: str(part.field_id).encode()} if with_ids else None
    return pa.field(part.name, arrow_type(part.field_type, with_ids), metadata=metadata)


def arrow_schema(schema: Any, with_ids: bool = False) -> pa.Schema:
    """The Arrow schema of an Iceberg schema, all of whose columns can be null."""
    return pa.schema([_arrow_field(part, with_ids) for part in schema.fields])


def find_null(array: pa.Array, part: Any) -> str:
    """The name of a required field, at any depth, that has a null; an empty text if there is none."""
    if part.required and array.null_count:
        return repr(part.name)
    dtype, types = part.field_type, _iceberg("types")
    if isinstance(dtype, types.StructType):
        # Fields of a struct that is null have no value.
        children = array.filter(array.is_valid()).flatten()
        fields = dtype.fields
    elif isinstance(dtype, types.ListType):
        children, fields = [list_items(array)[1]], (dtype.element_field,)
    elif isinstance(dtype, types.MapType):
        children, fields = list_items(array)[1].flatten(), (dtype.key_field, dtype.value_field)
    else:
        return ""
    found = (find_null(child, of) for child, of in zip(children, fields, strict=True))
    return next((f"{name} of {part.name!r}" for name in found if name), "")


def to_iceberg(schema: pa.Schema, mapping: Any) -> Any:
    """The fields of a Parquet file with their ids, which a mapping of names has if the file has none."""
    found = _iceberg("io.pyarrow").pyarrow_to_schema(
        schema, mapping, downcast_ns_timestamp_to_us=True
    )
    return found.fields


def _project(array: pa.Array, found: Any, wanted: Any) -> pa.Array:
    """The values of a column of a file, in the type of the table, whose fields are known by their ids."""
    types = _iceberg("types")
    dtype, missing = arrow_type(wanted), array.is_null()
    if isinstance(wanted, types.StructType):
        positions = {part.field_id: number for number, part in enumerate(found.fields)}
        children = array.flatten()
        parts = [
            _project(
                children[positions[part.field_id]],
                found.fields[positions[part.field_id]].field_type,
                part.field_type,
            )
            if part.field_id in positions
            else _default(part, len(array))
            for part in wanted.fields
        ]
        return pa.StructArray.from_arrays(parts, fields=list(dtype), mask=missing)
    if isinstance(wanted, types.ListType):
        lengths, items = list_items(array)
        items = _project(items, found.element_type, wanted.element_type)
        return pa.ListArray.from_arrays(_offsets(lengths), items, type=dtype, mask=missing)
    if isinstance(wanted, types.MapType):
        entries = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        lengths, items = list_items(array.cast(pa.list_(entries)))
        keys, values = items.flatten()
        keys = _project(keys, found.key_type, wanted.key_type)
        values = _project(values, found.value_type, wanted.value_type)
        return pa.MapArray.from_arrays(_offsets(lengths), keys, values, type=dtype, mask=missing)
    return array if array.type == dtype else array.cast(dtype)


def _default(part: Any, count: int) -> pa.Array:
    dtype = arrow_type(part.field_type)
    return pa.repeat(pa.scalar(part.initial_default, dtype), count)


def _offsets(lengths: Any) -> pa.Array:
    return pa.array(np.append(0, np.cumsum(lengths)), pa.int32())


def _conform(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """A column in a type of the same values, whose fields have ids."""
    return column if column.type == dtype and not is_opaque(dtype) else column.cast(dtype)


def _deleted_rows(io: Any, path: str, deletes: Iterable[Sequence[str]]) -> Any:
    """The positions of rows of a file that are deleted."""
    found = [np.zeros(0, np.int64)]
    for name, file_format in deletes:
        _require_parquet(file_format)
        with io.new_input(name).open() as stream:
            rows = pq.read_table(stream, columns=["file_path", "pos"])
        found.append(rows.column("pos").filter(pc.equal(rows.column("file_path"), path)).to_numpy())
    return np.concatenate(found)


def _require_parquet(file_format: str) -> None:
    if file_format != "PARQUET":
        raise conditions.ICEBERG_FEATURE.error(got=f"files of the format {file_format}")
