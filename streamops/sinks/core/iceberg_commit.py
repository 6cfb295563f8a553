"""One commit to an Iceberg table, with the files of a micro-batch and the entry of the ledger."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamops.sinks import conditions
from streamops.sinks.core import iceberg_files, iceberg_log, iceberg_partitions
from streamops.sinks.core.iceberg_files import File, TableFiles
from streamops.sinks.core.iceberg_log import Found
from streamops.sinks.core.ledger import Decision

_OWN = {"commit.retry.num-retries": "0"}
"""Another commit must be read before this one is tried again: pyiceberg would append the rows twice."""

_NOT_APPLIED = re.compile("not yet support|Unknown DataFileContent")
"""In the errors of pyiceberg about delete files that it does not apply."""

_CODECS = {"gzip", "zstd"}
"""How pyiceberg compresses manifests without another package. In other ways they are compressed by gzip."""

_DEFAULTS = {"commit.manifest-merge.enabled": "true"}
"""As in Iceberg's own writers, and not in pyiceberg: without it, each append adds a manifest for ever."""


class Commit:
    """One commit to a version of a table.

    Parameters
    ----------
    table : Table
        The version that the commit is based on. Its settings of commits are changed, in this process only.
    """

    def __init__(self, table: Any) -> None:
        given = table.metadata.properties
        # What is no number stays: the table is refused, as by `check`.
        own = {n: v for n, v in _OWN.items() if re.fullmatch(r"\s*[+-]?\d+\s*", given.get(n) or v)}
        settings = {**_DEFAULTS, **given, **own}
        if settings.get("write.avro.compression-codec", "gzip") not in _CODECS:
            del settings["write.avro.compression-codec"]
        table.metadata = table.metadata.model_copy(update={"properties": settings})
        self.table = table
        self.transaction = table.transaction()
        self.added: list[File] = []
        self.removed: list[File] = []
        self.has_new_columns = False
        self._base, self._snapshot = table.metadata.current_snapshot_id, 0
        self._unwanted: list[str] = []

    @property
    def metadata(self) -> Any:
        """The metadata of the table, with the columns that this commit adds."""
        return self.transaction.table_metadata

    @cached_property
    def files(self) -> TableFiles:
        """How the table stores rows. Columns are added before."""
        return TableFiles.of(self.metadata, self.table.io.properties)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, in types of Arrow."""
        return iceberg_files.arrow_schema(self.metadata.schema())

    @property
    def required(self) -> list[str]:
        """The columns that all rows must have."""
        fields = self.metadata.schema().fields
        return [part.name for part in fields if part.required or part.write_default is not None]

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns to the table, together with the rows."""
        self.has_new_columns = bool(columns)
        if not columns:
            return
        with self.transaction.update_schema() as update:
            update.union_by_name(pa.schema(columns))

    def tasks(
        self, wanted: pa.Table | None = None, by: Sequence[str] = (), *, is_range: bool = False
    ) -> Iterator[File]:
        """Yield descriptions of the files that can have a row like a wanted one; without `wanted`, of all.

        With `is_range`, a wanted row is one between the lowest and the highest, see `range_of`.
        """
        try:
            found = list(self.table.scan().plan_files())
        except (ValueError, NotImplementedError) as error:
            if not _NOT_APPLIED.search(str(error)):
                raise
            raise conditions.ICEBERG_FEATURE.error(got=str(error)) from error
        if wanted is not None:
            files = [task.file for task in found]
            possible = iceberg_partitions.candidates(
                files, wanted, by, self.metadata, is_range=is_range
            )
            found = [task for task, is_possible in zip(found, possible, strict=True) if is_possible]
        for task in found:
            yield iceberg_files.describe(task.file, self.metadata, task.delete_files)

    def append(self, rows: pa.Table) -> None:
        """Add rows to the table."""
        if len(rows):
            self.added += self.files.write([self.filled(rows)])

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows of the table."""
        self.removed += self.tasks()
        self.append(rows)

    def find(
        self, wanted: pa.Table, by: Sequence[str], names: Sequence[str]
    ) -> tuple[pa.Table, list[File]]:
        """Return the rows of the table that are like a wanted one, and the files that have them."""
        return self.files.find(self.tasks(wanted, by), wanted, by, names)

    def rewrite(
        self, touched: Sequence[File], removed: pa.Table, by: Sequence[str], added: pa.Table
    ) -> None:
        """Remove all rows of these files that are like a removed one, and add others."""
        if not touched:
            self.append(added)
            return
        self.removed += touched
        self.added += self.files.rewrite(touched, removed, by, self.filled(added))

    def filled(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, null where they have none."""
        return self.files.filled(rows)

    def take(self, added: Iterable[File], removed: Iterable[File], *, is_all: bool = False) -> None:
        """Add files that tasks have written, and remove others. With `is_all`, all."""
        self.removed += self.tasks() if is_all else removed
        self.added += added

    def execute(self, sink: str, decision: Decision, others: Mapping[str, Found]) -> None:
        """Commit the files and the entry."""
        update = self.transaction.update_snapshot()
        snapshot = update.overwrite() if self.removed else update.merge_append()
        properties = iceberg_log.summary(sink, decision, snapshot.snapshot_id, others)
        snapshot.snapshot_properties = properties
        self._snapshot, metadata = snapshot.snapshot_id, self.metadata
        sources = iceberg_partitions.source_schema(metadata)
        snapshot.schema = lambda: sources  # manifests have values of columns that were dropped
        for file in self.removed:
            data_file = iceberg_files.data_file(file, metadata)
            spec = metadata.specs()[file["spec_id"]]
            if not iceberg_partitions.is_exact(data_file.partition, spec, sources):
                # It is looked for in all manifests, by its name.
                everywhere = importlib.import_module("pyiceberg.expressions").AlwaysTrue()
                snapshot.delete_by_predicate(everywhere)
                nothing = [None] * len(file["partition"])
                data_file = iceberg_files.data_file({**file, "partition": nothing}, metadata)
            snapshot.delete_data_file(data_file)
        for file in self.added:
            snapshot.append_data_file(iceberg_files.data_file(file, metadata))
        name = iceberg_log.property_of(sink)
        self.transaction.set_properties({name: properties[name]})
        snapshot.commit()
        self.apply()

    def apply(self) -> None:
        """Let the catalog apply what is prepared.

        Raises
        ------
        CommitFailedException
            The catalog has refused the commit, or its repetition.
        SinkError
            ``TARGET_UNAVAILABLE``: nobody knows whether the catalog has applied it.
        """
        exceptions = importlib.import_module("pyiceberg.exceptions")
        refusals = ("CommitFailedException", "ValidationException", "ForbiddenError", "UnauthorizedError")  # fmt: skip
        # pyiceberg deletes the manifests of a commit that was refused, also if it was applied before.
        io, delete = self.table.io, self.table.io.delete
        io.delete = self._unwanted.append
        try:
            self.transaction.commit_transaction()
        except tuple(getattr(exceptions, name) for name in refusals):
            raise
        except Exception as error:  # such as an answer that was cut off
            got = f"{type(error).__name__}: {error}"
            raise conditions.TARGET_UNAVAILABLE.error(
                target=iceberg_files.TARGET, hint="", got=got
            ) from error
        finally:
            io.delete = delete
        iceberg_files.remove(delete, self._unwanted)

    def discard(self, now: Any, *, with_files: bool) -> None:
        """Delete the files of a commit that was refused, if the table as it is now can never get them.

        A catalog that has applied a commit refuses it when the transport repeats it.
        """
        metadata = now.metadata
        is_there = metadata.snapshot_by_id(self._snapshot) is not None
        is_same = metadata.table_uuid == self.metadata.table_uuid
        # An expired snapshot is not there, and those after it have its files: all since the base are known.
        last = metadata.current_snapshot_id
        while is_same and last not in (None, self._base):
            snapshot = metadata.snapshot_by_id(last)
            is_same, last = snapshot is not None, snapshot and snapshot.parent_snapshot_id
        is_since = last == self._base != metadata.current_snapshot_id
        if is_same and not is_there and is_since:
            files = [file["file_path"] for file in self.added] if with_files else []
            iceberg_files.remove(now.io.delete, [*self._unwanted, *files])
