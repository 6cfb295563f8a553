"""The rows of Delta sources: the files that the versions of a table added, by the offsets of micro-batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from streamops.kernel.calls import explain_call
from streamops.kernel.parameters import require_package
from streamops.kernel.time import Duration
from streamops.observe import conditions
from streamops.observe.log_files import read_parquet
from streamops.observe.plan import Piece, Prepare, Recorded, RecordedSource

Add = Mapping[str, Any]
"""An action that adds a file: its path and the values of its partition."""


@dataclass(frozen=True, kw_only=True)
class TableSource(RecordedSource):
    """The table that a Delta source of a query read. See :func:`table`."""

    path: str
    starting_version: int | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    OFFSET: ClassVar[str | None] = "reservoirVersion"

    def scan(self, recorded: Recorded, wanted: Mapping[str, Any] | None) -> Iterator[Piece]:
        """Yield the rows of each file."""
        table = self._open(None)
        settings, schema = table.metadata().configuration, pa.schema(table.schema().to_arrow())
        if settings.get("delta.columnMapping.mode", "none") != "none":
            raise conditions.TABLE_UNFIT.error(got="delta.columnMapping.mode")
        partitions = table.metadata().partition_columns
        for name in partitions:
            type_ = schema.field(name).type
            if pa.types.is_timestamp(type_) or pa.types.is_binary(type_):
                raise conditions.TABLE_UNFIT.error(got=f"a partition by {name} of type {type_}")
        yield 0, schema.empty_table()
        missing, ids, own = list[str](), set[str](), str(table.metadata().id)
        stored = pa.schema([of for of in schema if of.name not in partitions])
        pushed = {n: value for n, value in (wanted or {}).items() if n not in partitions}
        system = _file_system(self.path, dict(self.storage_options))
        for at, (start, end) in enumerate(recorded.ranges):
            ids.add(own if end is None else json.loads(end)["reservoirId"])
            for add in () if end is None else self._adds(system, start, end, recorded.notes):
                if add.get("deletionVector") is not None:
                    raise conditions.TABLE_UNFIT.error(got="a deletion vector")
                try:
                    rows = read_parquet(system, unquote(add["path"]), stored, pushed)
                except FileNotFoundError:
                    missing.append(add["path"])
                    continue
                for name in partitions:
                    value = pa.scalar(add["partitionValues"].get(name) or None, pa.string())
                    column = pa.repeat(value, len(rows)).cast(schema.field(name).type)
                    rows = rows.append_column(schema.field(name), column)
                yield at, rows.select(schema.names)
        recorded.note(missing, "the file {} of the table does not exist any more")
        others = sorted(ids - {own})
        recorded.note(
            others, "the query read the table with the id {}, and another one is there now"
        )

    def _open(self, version: int | None) -> Any:
        deltalake = require_package("deltalake", package="deltalake", extra="delta")
        return deltalake.DeltaTable(
            self.path, version=version, storage_options=dict(self.storage_options) or None
        )

    def _adds(
        self, system: fs.FileSystem, start: str | None, end: str, notes: list[str]
    ) -> Iterator[Add]:
        """The files between two offsets, as the Delta source numbers them."""
        last = json.loads(end)
        to = (last["reservoirVersion"], last["index"])
        if start is not None:
            first = json.loads(start)
            after = (first["reservoirVersion"], first["index"])
            is_snapshot = first["isStartingVersion"]
        elif self.starting_version is not None:
            after, is_snapshot = (self.starting_version, -1), False
        else:
            # A snapshot that was read to its end has the next version as its offset.
            version = to[0] if last["isStartingVersion"] else to[0] - 1
            after, is_snapshot = (version, -1), True
        # Negative numbers are before the first file of a version.
        after, to = (after[0], max(after[1], -1)), (to[0], max(to[1], -1))
        for version in range(after[0], to[0] + (to[1] >= 0)):
            try:
                if is_snapshot and version == after[0]:
                    adds = self._snapshot(version)
                else:
                    adds = list(_read_commit(system, version))
            except FileNotFoundError:
                notes.append(f"the table does not have its version {version} any more")
                continue
            yield from (add for n, add in enumerate(adds) if after < (version, n) <= to)

    def _snapshot(self, version: int) -> list[Add]:
        """The files of a version, in the order of the Delta source."""
        from deltalake.exceptions import DeltaError

        try:
            table = self._open(version)
        except DeltaError as error:
            raise FileNotFoundError from error
        if "deletionVectors" in (table.protocol().reader_features or ()):
            raise conditions.TABLE_UNFIT.error(got="deletion vectors in the first snapshot")
        rows = pa.table(table.get_add_actions()).to_pylist()
        rows.sort(key=lambda of: (of["modification_time"], of["path"]))
        return [
            {
                "path": of["path"],
                "partitionValues": {
                    name: None if value is None else str(value)
                    for name, value in (of.get("partition") or {}).items()
                },
            }
            for of in rows
        ]


@explain_call("observe.table")
def table(
    path: str,
    *,
    starting_version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    prepare: Prepare | None = None,
    columns: Mapping[str, str] | None = None,
    watermark: Duration | None = None,
    number: int | None = None,
) -> RecordedSource:
    """The table of Delta Lake that a query read: the versions of each micro-batch in its checkpoint.

    A note names the files and the versions that the table does not have any more. Tables with column
    mapping or deletion vectors are refused, and so are commits that remove rows.

    Parameters
    ----------
    path : str
        Path or URI of the table.
    starting_version : int, optional
        The option ``startingVersion`` of the query. By default, it began with a snapshot.
    storage_options : mapping of str to str, optional
        Settings of the object store, as of ``deltalake``.
    prepare : callable, optional
        From a Table with rows of the table to the input of the operator: what the query does between
        the source and the operator, row by row. By default, the table has the columns of the operator.
    columns : mapping of str to str, optional
        Names of key columns in the table, by their names in the operator.
    watermark : duration, optional
        The delay of ``withWatermark`` on the frame before the operator, if it has one.
    number : int, optional
        Number of the source in the query. By default, inputs of the operator are sources 0 and 1.

    Returns
    -------
    RecordedSource

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.
    RequirementError
        ``PACKAGE_MISSING``: ``pip install 'streamops[delta]'``.

    Examples
    --------
    >>> from streamops import observe
    >>> views = observe.table("/data/views")

    See Also
    --------
    explain : replay one key of a query.
    """
    require_package("deltalake", package="deltalake", extra="delta")
    return TableSource(
        path=path, starting_version=starting_version, storage_options=dict(storage_options or {}),
        prepare=prepare, columns=columns, watermark=watermark, number=number,
    )  # fmt: skip


def _file_system(path: str, options: Mapping[str, str]) -> fs.FileSystem:
    from deltalake.fs import DeltaStorageHandler

    return fs.PyFileSystem(DeltaStorageHandler(path, dict(options)))


def _read_commit(system: fs.FileSystem, version: int) -> Iterator[Add]:
    """The files that a commit added with new rows."""
    with system.open_input_stream(f"_delta_log/{version:020}.json") as stream:
        actions = list(map(json.loads, stream.read().splitlines()))
    if any(action.get("remove", {}).get("dataChange") for action in actions):
        raise conditions.TABLE_UNFIT.error(got=f"version {version}, which removes rows")
    for action in actions:
        add = action.get("add")
        if add is not None and add["dataChange"]:
            yield add
