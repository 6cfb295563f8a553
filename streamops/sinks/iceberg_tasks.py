"""The data files of an Iceberg table, written and replaced by tasks, and what failed attempts of them have left."""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids
from streamops.sinks import leftovers
from streamops.sinks.copy_on_write import Files
from streamops.sinks.core import iceberg_files, iceberg_log, iceberg_partitions
from streamops.sinks.core.delta_commit import normalize
from streamops.sinks.core.iceberg_files import File, TableFiles
from streamops.sinks.core.ledger import Entry
from streamops.sinks.lake import state_of
from streamops.sinks.sink import refused
from streamops.sinks.tasks import Part


@dataclass(frozen=True, repr=False)
class IcebergFiles(Files):
    """The data files of a table.

    Parameters
    ----------
    table : TableFiles
        How the table stores rows.
    schema : Schema
        The columns of the table.
    wanted : Schema
        The rows in types of the table.
    key : tuple of str
        Columns whose floats are normalized.
    """

    table: TableFiles
    schema: pa.Schema
    wanted: pa.Schema
    key: tuple[str, ...]

    def filesystem(self) -> pafs.FileSystem:
        """The files below the location of the table, which is the root."""
        return iceberg_files.filesystem(self.table.file_io(), self.table.table.location)

    def convert(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, in its types. Refuses what the table does not take."""
        fields = self.table.table.schema().fields
        rows = converted(rows.select(self.wanted.names), self.wanted, fields)
        return self.table.filled(normalize(rows, self.key))

    def read(self, file: Part, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read columns of a file in its order, in pieces and in the types of the table."""
        return (rows.select(columns) for rows in self.table.read(file["file"], columns))

    def partition_of(self, rows: pa.Table) -> Ids:
        """A number of the partition of each row."""
        return iceberg_partitions.partition_of(rows, self.table.table)[1]

    def write(self, rows: pa.Table) -> Part:
        """Write rows of one partition to a new file, in their order."""
        (file,) = self.table.write([rows], target=sys.maxsize)
        return to_part(file)

    def rewrite(self, pieces: Iterator[pa.Table], like: Part) -> list[Part]:
        """Write the `stored` columns of rows of a file, or of several in its partition, to new files.

        They are in today's partitions, which can be others.
        """
        return [to_part(file) for file in self.table.write(pieces)]


def to_part(file: File) -> Part:
    """What tasks know of a file."""
    return {
        "path": file["file_path"],
        "rows": file["record_count"],
        "size": file["file_size_in_bytes"],
        "partition": [file["spec_id"], file["partition"]],
        "file": file,
    }


def converted(rows: pa.Table, schema: pa.Schema, fields: Sequence[Any]) -> pa.Table:
    """The rows in the types of the table, whose required fields must have a value."""
    rows = rows.cast(schema)
    for part in fields:
        if part.name in schema.names:
            found = iceberg_files.find_null(combine_chunks(rows.column(part.name)), part)
            if found:
                raise refused(
                    iceberg_files.TARGET, ValueError(f"null in {found}, which is required")
                )
    return rows


def state(metadata: Any, entry: Entry | None) -> str:
    """What files of a table depend on."""
    parts = (metadata.schema(), metadata.spec())
    return state_of([str(metadata.table_uuid), *(p.model_dump_json() for p in parts)], entry)


def _of_sink(table: Any, sink: str) -> str:
    """The folder of a sink below the location of a table. ``remove_orphan_files`` finds it, too.

    Another table at this location, also one that was registered in another catalog, has other folders.
    """
    catalog, metadata = table.catalog, table.metadata
    where = [catalog.name, *map(catalog.properties.get, ("uri", "warehouse")), table.name()]
    text = json.dumps([sink, str(metadata.table_uuid), where])
    return f"streamops/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def staging(table: Any, sink: str, folder: str) -> str:
    """The folder in which tasks stage what must be looked up, and note which data files they write."""
    return f"{_of_sink(table, sink)}/staged/{folder}"


def announce(table: Any, sink: str) -> str:
    """Store that tasks write files after the current snapshot, and return the name of a new folder."""
    folder = uuid.uuid4().hex[:16]
    filesystem = iceberg_files.filesystem(table.io, table.metadata.location)
    current = table.metadata.current_snapshot_id or 0
    leftovers.announce(filesystem, f"{_of_sink(table, sink)}/announced", folder, current)
    return folder


def clean_up(table: Any, sink: str) -> None:
    """Remove what tasks have written after announced snapshots, and what no snapshot has."""
    filesystem = iceberg_files.filesystem(table.io, table.metadata.location)
    # Other tables may have these files, such as one that this one was made from.
    is_owner = table.metadata.properties.get("gc.enabled", "true").lower() != "false"

    def remove(folder: str, committed: Collection[str]) -> None:
        for info in leftovers.list_files(filesystem, staging(table, sink, folder)):
            if info.extension == iceberg_files.NOTE and is_owner:
                with filesystem.open_input_stream(info.path) as stream:
                    path = stream.readall().decode()
                if path not in committed:
                    with suppress(FileNotFoundError):
                        table.io.delete(path)
        leftovers.remove(filesystem, staging(table, sink, folder))

    where = f"{_of_sink(table, sink)}/announced"
    leftovers.clean_up(filesystem, where, partial(_committed_since, table, sink), remove)


def _committed_since(table: Any, sink: str, number: int) -> set[str] | None:
    """The files that any snapshot has got since one; None if a sink can still commit others, or nobody knows.

    Also those of tags and branches, and of snapshots before a rollback.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    current, is_over = table.metadata.current_snapshot_id or 0, False
    while current != number:
        if current not in known:  # expired, or before a rollback: `remove_orphan_files` does it
            return None
        is_over = is_over or iceberg_log.is_of(known[current], sink)
        current = known[current].parent_snapshot_id or 0
    after = known[number].sequence_number or 0 if number in known else 0
    return iceberg_log.files_since(known.values(), after, table.io) if is_over else None
