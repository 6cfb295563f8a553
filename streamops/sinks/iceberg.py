"""Write micro-batches to an Iceberg table, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from streamops.kernel.databases import secrets_of
from streamops.kernel.errors import StreamopsError
from streamops.kernel.parameters import require_package
from streamops.kernel.versions import require_views
from streamops.sinks import conditions, copy_on_write, iceberg_tasks
from streamops.sinks.copy_on_write import Job
from streamops.sinks.core import iceberg_files, iceberg_log, iceberg_partitions
from streamops.sinks.core.delta_commit import normalize
from streamops.sinks.core.iceberg_commit import Commit
from streamops.sinks.core.iceberg_files import TableFiles
from streamops.sinks.core.ledger import Action, Decision, Delivery, Entry, NewCheckpoint, Repeated
from streamops.sinks.core.matching import keep_values
from streamops.sinks.core.net import (
    Net,
    check_stored,
    content_columns,
    form_of,
    newer_rows,
    repeat,
    require_unique,
)
from streamops.sinks.iceberg_tasks import IcebergFiles
from streamops.sinks.lake import LakeSink, values_of, without_change_type
from streamops.sinks.protocol import Attempt, Conflict, Found, Reduced
from streamops.sinks.sink import Columns, Missing, hide, parse_key, refused, unavailable
from streamops.sinks.spark_iceberg import SparkIcebergSink
from streamops.sinks.tasks import Deliver, Part, Receipts

_WHERE = "sinks.iceberg"
_NEWEST_FORMAT = 2
"""The newest version of the format that pyiceberg writes."""

_PUBLIC = {"name", "type", "warehouse", "init_catalog_tables", "py-io-impl", "py-catalog-impl"}
"""Properties of a catalog that are no secret."""

_CLIENTS = {"pyiceberg", "sqlalchemy", "botocore", "thrift", "pydantic_core"}
"""Packages whose errors are about the catalog, its answers, or the store of the files."""

Catalog = str | Mapping[str, str]


def iceberg(
    catalog: Catalog,
    table: str,
    *,
    key: str | Sequence[str] | None = None,
    sequence: str | Sequence[str] | None = None,
    name: str = "default",
    columns: Columns = "exact",
    missing: Missing = "create",
    new_checkpoint: NewCheckpoint = "refuse",
    repeated: Repeated = "fail",
    checkpoint: str | None = None,
    writer: Literal["pyiceberg", "spark"] = "pyiceberg",
) -> IcebergSink | SparkIcebergSink:
    """Write micro-batches to an Iceberg table, each exactly once.

    After the commit of micro-batch N, the table is the result of micro-batches 0 to N. The rows and a
    ledger entry are in one commit: the entry is in the summary of the snapshot, and in a property of the
    table. The package ``pyiceberg`` writes, in the driver and in tasks: Spark needs no Iceberg runtime.

    Input        the output of any operator: appended rows; revisions, which replace the row of a key if
                 they are newer; change streams with a key; change streams without a key, whose rows are
                 a multiset
    Output       the rows in the table, and the entry in its metadata
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        any, within a micro-batch
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    catalog : str or mapping of str to str
        The name of a catalog in the configuration of pyiceberg, or its properties, as the arguments of
        ``pyiceberg.catalog.load_catalog``. Its properties are neither shown nor logged.
    table : str
        The table, after its namespace: ``"shop.daily"``.
    key : str or sequence of str, optional
        Columns that identify a row. Omit it for appended rows and for multisets.
    sequence : str or sequence of str, optional
        Columns that order the rows of a key, as in ``changes.fold``. Default: "revision", if the frame has
        that column. Revisions without a sequence must have at most one row per key and micro-batch.
    name : str
        Name of the sink in the table. Several sinks that append to one table need different names.
    columns : "exact" or "add"
        Whether columns that the table does not have are an error, or are added to it.
    missing : "create" or "refuse"
        What happens if the table does not exist. To partition a table or to set its properties, create it
        before.
    new_checkpoint : "refuse", "continue" or "replace"
        What a query with another checkpoint may do. "replace" overwrites the table with its first
        micro-batch; "continue" adds to it: use it if the new query starts where the old one ended.
    repeated : "fail" or "skip"
        What happens if a micro-batch that the table already has arrives again with other rows. With the
        same rows it is always skipped.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.
    writer : "pyiceberg" or "spark"
        What writes: the package ``pyiceberg``, or Iceberg's runtime in the session of the query, of which
        `catalog` is then the name of a catalog. The runtime writes tables with all features. It does not write
        change streams without a key, and does not add columns.

    Returns
    -------
    IcebergSink or SparkIcebergSink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``iceberg`` is not installed; ``VERSION_NOT_SUPPORTED``: PyArrow is older than 16.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.iceberg("prod", "shop.daily", key=["page", "window_start"])
    >>> views.writeStream.foreachBatch(daily).option("checkpointLocation", path)

    Notes
    -----
    Errors while the query runs. ``SinkError``: another run, query or checkpoint writes to this table, see
    docs/sinks.md; ``TARGET_COLUMNS``, ``TARGET_TYPE``, ``TARGET_FEATURE`` and ``TARGET_MISSING``, if the
    table does not fit, before a row is written; ``TARGET_REFUSED``; ``TARGET_UNAVAILABLE``.
    ``ChangeStreamError``: the change stream contradicts itself or the table. In all cases the table remains
    as it was.

    Updates and deletes rewrite the files that have the rows. Only files whose bounds can have a key are read.
    Tasks write a large micro-batch, and the driver commits the names of the files. A small micro-batch passes
    through the memory of the driver, and so does a multiset of which no column can be compared.
    """
    options: dict[str, Any] = {
        "catalog": catalog,
        "table": table,
        "key": parse_key(key, parameter="key"),
        "sequence": parse_key(sequence, parameter="sequence"),
        "name": name,
        "columns": columns,
        "missing": missing,
        "new_checkpoint": new_checkpoint,
        "repeated": repeated,
        "checkpoint": checkpoint,
    }
    if writer == "spark":
        if not isinstance(catalog, str):
            raise conditions.SPARK_WRITER_CATALOG.error(got=type(catalog).__name__)
        return SparkIcebergSink(**options)
    _require_driver()
    return IcebergSink(**options)


class _Attempt(Attempt):
    """An attempt to commit the next snapshot of the table."""

    def __init__(
        self,
        sink: IcebergSink,
        table: Any,
        content: Reduced | Receipts,
        delivery: Delivery,
        own: iceberg_log.Found,
        others: Mapping[str, iceberg_log.Found],
    ) -> None:
        self.sink, self.table, self.content, self.others = sink, table, content, others
        # Of another query or sink, they matter for its first micro-batch only.
        is_known = own.entry is not None and own.entry.query == delivery.query
        entries = {name: of.entry for name, of in others.items() if of.entry is not None}
        self.found = Found(own.entry, others={} if is_known else entries)

    def write(self, decision: Decision) -> None:
        sink, content = self.sink, self.content
        if self.table is None:
            if isinstance(content, Receipts):
                raise conditions.TABLE_MISSING.error(statement="", got=sink.table)
            sink._create(sink._stored(content.net.added.schema))
            raise Conflict()  # the created table has no entry: decide again
        exceptions = _exceptions()
        commit = Commit(self.table)
        try:
            if isinstance(content, Receipts):
                sink._commit_files(commit, content, decision, self.found.entry)
            else:
                sink._apply(commit, content.net, content.names, decision)
            commit.execute(sink.name, decision, self.others)
        except (exceptions.CommitFailedException, exceptions.ValidationException):
            now = sink._open()
            if now is not None:
                commit.discard(now, with_files=not isinstance(content, Receipts))
            raise Conflict() from None


def _show_catalog(catalog: Catalog) -> str:
    """The name of a catalog, and no other property."""
    return repr(catalog if isinstance(catalog, str) else {"name": catalog.get("name", "default")})


@dataclass(frozen=True, kw_only=True, repr=False)
class IcebergSink(LakeSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE
    type_unknown = conditions.TYPE_NOT_IN_ICEBERG
    rows_removed = conditions.SNAPSHOT_REMOVED_ROWS

    catalog: Catalog = field(hash=False, metadata={"shown": _show_catalog})
    table: str

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        catalog: Any = self.catalog
        texts = [catalog] if isinstance(catalog, str) else [0]
        if isinstance(catalog, Mapping):
            texts = [text for pair in catalog.items() for text in pair]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise conditions.NOT_A_CATALOG.error(got=type(catalog).__name__)
        if not all(self.table.partition(".")):
            raise conditions.NOT_A_TABLE.error(got=f"table={self.table!r}")

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({self.table!r})"

    def _read_ledger(self) -> Entry | None:
        with self._errors():
            found = self._find(self._open(), self.name)
            return None if found.removed_by else found.entry

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        with self._errors():
            table = self._open()
            if table is not None:
                self._refuse_features(table)
            elif self.missing == "refuse":
                raise conditions.TABLE_MISSING.error(statement="", got=self.table)
        label = f"table {self.table!r}"
        return label, [] if table else [label], self._read_ledger()

    def _find(self, table: Any, name: str) -> iceberg_log.Found:
        """The entry of a sink that belongs to the rows of the table."""
        if table is None:
            return iceberg_log.Found(None)
        current = table.metadata.current_snapshot_id
        history = iceberg_log.History(_generations(table))
        return iceberg_log.find_entry(table.metadata.properties, current, name, history)

    @contextmanager
    def _attempt(self, content: Reduced | Receipts, delivery: Delivery) -> Iterator[_Attempt]:
        with self._errors():
            table = self._open()
            properties = {} if table is None else table.metadata.properties
            found = {
                name: self._find(table, name)
                for name in (*iceberg_log.sinks_of(properties), self.name)
            }
            own = found.pop(self.name)
            self._refuse_removed(own, delivery)
            yield _Attempt(self, table, content, delivery, own, found)

    def _together(self, schema: pa.Schema) -> tuple[str, ...] | None:
        with self._errors():
            table = self._open()
        names = [] if table is None else table.schema().as_struct().fields
        if self._keeps_values([part.name for part in names], schema.names):
            return None
        return super()._together(schema)

    def _prepare(self, schema: pa.Schema, batch_id: int, action: Action) -> Deliver:
        with self._errors():
            wanted = self._stored(without_change_type(schema))
            table = self._open()
            if table is None:
                self._create(wanted)
                table = self._open()
            commit = Commit(table)
            fitted = self._fit(commit, wanted)
            if commit.has_new_columns:  # files have their ids, which the table gives them
                with suppress(_exceptions().CommitFailedException):  # perhaps after it was applied
                    commit.apply()
                commit = Commit(self._open())
                fitted = self._fit(commit, wanted)
            entry = self._find(commit.table, self.name).entry
            folder = iceberg_tasks.announce(commit.table, self.name)
            job = self._job_of(schema.names, commit, fitted, folder)
        attempt = {"folder": folder, "state": iceberg_tasks.state(commit.metadata, entry)}
        return partial(copy_on_write.deliver, job, attempt)

    def _job_of(self, names: Sequence[str], commit: Commit, wanted: pa.Schema, folder: str) -> Job:
        staging = iceberg_tasks.staging(commit.table, self.name, folder)
        table = replace(commit.files, notes=f"{commit.metadata.location}/{staging}")
        files = IcebergFiles(table, commit.schema, wanted, self.key or ())
        return self._job(names, files, staging)

    def _commit_files(
        self, commit: Commit, receipts: Receipts, decision: Decision, entry: Entry | None
    ) -> None:
        """Take files that tasks have written, and replace those whose rows they change."""
        if decision.action == "skip":
            return
        state = iceberg_tasks.state(commit.metadata, entry)
        fitted = self._fit(commit, self._stored(values_of(receipts)))
        job = partial(self._job_of, receipts.schema.names, commit, fitted)
        found = self._replaced(receipts, decision, state, job, partial(_find, commit))
        added, removed = (
            [part["file"] for part in parts] for parts in (found.added, found.removed)
        )
        commit.take(added, removed, is_all=decision.action == "replace")

    def _clean_up(self, delivery: Delivery) -> None:
        with self._errors():
            table = self._open()
            if table is not None:
                iceberg_tasks.clean_up(table, self.name)

    def _apply(self, commit: Commit, net: Net, names: Sequence[str], decision: Decision) -> None:
        if decision.action == "skip":
            return
        form, sequence = form_of(names, self.key), self._sequence_of(names)
        schema = self._fit(commit, self._stored(net.added.schema))
        others = [name for name in commit.schema.names if name not in schema.names]
        fields = commit.metadata.schema().fields
        removed, added = (
            normalize(iceberg_tasks.converted(rows, schema, fields), self.key or ())
            for rows in (net.removed, net.added)
        )
        net = replace(net, removed=removed, added=added)
        content = content_columns(schema.names, sequence if form == "changes" else ())
        if decision.action == "replace":
            if len(removed):
                check_stored(
                    form,
                    net,
                    commit.filled(removed.slice(0, 0)),
                    key=self.key or (),
                    content=content,
                )
            commit.overwrite(repeat(added, net.added_copies))
        elif form == "append" or not (len(removed) or self.key):
            commit.append(repeat(added, net.added_copies))
        elif form == "upsert":
            self._upsert(commit, added, sequence, others)
        elif form == "changes":
            key = self.key or ()
            # Each key once: the others replace a removed row.
            wanted = pa.concat_tables([removed, added.filter(pa.array(~net.replaces))])
            found, touched = commit.find(wanted, key, [*key, *content, *others])
            check_stored(form, net, found, key=self.key or (), content=content)
            commit.rewrite(touched, wanted, key, keep_values(added, found, key))
        else:
            found, touched = commit.find(removed, content, commit.schema.names)
            stays = check_stored(form, net, found, key=self.key or (), content=content)
            parts = [commit.filled(repeat(added, net.added_copies)), found.filter(pa.array(stays))]
            commit.rewrite(touched, removed, content, pa.concat_tables(parts))

    def _upsert(
        self, commit: Commit, added: pa.Table, sequence: Sequence[str], others: Sequence[str]
    ) -> None:
        key = self.key or ()
        found, touched = commit.find(added, key, [*key, *sequence, *others])
        require_unique(found, key)
        added = keep_values(added, found, key)
        if sequence:
            newer = newer_rows(added, found, key=key, sequence=sequence)
            if not newer.all():
                added = added.filter(pa.array(newer))
                # Only files with an older row are rewritten.
                found, touched = commit.files.find(touched, added, key, key)
        commit.rewrite(touched, added, key, added)

    def _refuse_features(self, table: Any) -> None:
        """Refuse a table that would be written in a way that its readers do not understand."""
        metadata, got = table.metadata, []
        if metadata.format_version > _NEWEST_FORMAT:
            got.append(f"format-version={metadata.format_version}")
        if metadata.properties.get("write.format.default", "parquet").lower() != "parquet":
            got.append(f"write.format.default={metadata.properties['write.format.default']}")
        got += iceberg_partitions.unsupported(metadata)
        if not got:
            got += filter(None, [TableFiles.of(metadata, table.io.properties).find_fault()])
        if got:
            raise conditions.ICEBERG_FEATURE.error(got=", ".join(got))

    def _create(self, schema: pa.Schema) -> None:
        exceptions = _exceptions()
        if self.missing == "refuse":
            columns = ", ".join(f"{part.name} {part.type}" for part in schema)
            fix = f" with these columns: {columns}"
            raise conditions.TABLE_MISSING.error(statement=fix, got=self.table)
        catalog = self._connect()
        catalog.create_namespace_if_not_exists(catalog.namespace_from(self.table))
        with suppress(exceptions.TableAlreadyExistsError):  # another writer has created it
            catalog.create_table(self.table, schema)

    def _connect(self) -> Any:
        if self.session.connection is None:
            named = {"name": self.catalog} if isinstance(self.catalog, str) else self.catalog
            driver = _require_driver()
            try:
                self.session.connection = driver.load_catalog(**named)
            except ValueError as error:
                if type(error) is not ValueError:  # of an answer that is not whole
                    raise
                raise conditions.NO_SUCH_CATALOG.error(got=str(error)) from error
        return self.session.connection

    def _open(self) -> Any:
        """The newest version of the table; None if there is no table."""
        try:
            return self._connect().load_table(self.table)
        except (_exceptions().NoSuchTableError, _exceptions().NoSuchNamespaceError):
            return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the package by those of streamops, without secrets."""
        exceptions = _exceptions()
        with hide(*self._secrets()):
            try:
                yield
            except Conflict:
                raise
            except Exception as error:
                self.session.close()
                if isinstance(error, StreamopsError):
                    raise
                if isinstance(error, exceptions.ForbiddenError | exceptions.UnauthorizedError):
                    raise conditions.NO_PRIVILEGE.error(got=str(error)) from error
                of = exceptions.ResolveError
                is_of_client = type(error).__module__.partition(".")[0] in _CLIENTS
                if isinstance(error, OSError) or (is_of_client and not isinstance(error, of)):
                    raise unavailable(iceberg_files.TARGET, error) from error
                if isinstance(error, of | ValueError | OverflowError | pa.ArrowTypeError):
                    raise refused(iceberg_files.TARGET, error) from error
                raise

    def _secrets(self) -> Iterator[str]:
        """What may be a secret in the properties of the catalog, whether they are passed or configured."""
        properties: Any = self.catalog
        if isinstance(self.catalog, str):
            config = require_package("pyiceberg.utils.config", **_PACKAGE).Config()
            properties = config.get_catalog_config(self.catalog) or {}
        for name, value in properties.items():
            yield from secrets_of(str(value))
            if name not in {*_PUBLIC, "uri"} and len(str(value)) >= 8:
                yield str(value)


def _find(commit: Commit, wanted: pa.Table) -> list[Part]:
    """The files that can have rows in a range."""
    found = commit.tasks(wanted, wanted.column_names, is_range=True)
    return [iceberg_tasks.to_part(file) for file in found]


def _generations(table: Any) -> Iterator[Mapping[int, Any]]:
    """The snapshots of a table, and then those of its older metadata, as long as it can be read."""
    yield {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    parse = require_package("pyiceberg.serializers", **_PACKAGE).FromInputFile.table_metadata
    for entry in reversed(table.metadata.metadata_log):
        try:
            older = parse(table.io.new_input(entry.metadata_file))
        except FileNotFoundError:
            return
        yield {snapshot.snapshot_id: snapshot for snapshot in older.snapshots}


_PACKAGE = {"package": "pyiceberg", "extra": "iceberg"}


def _require_driver() -> Any:
    found = require_package("pyiceberg.catalog", **_PACKAGE)
    require_views(
        "texts as views, for which PyIceberg looks in a schema",
        'sinks.iceberg(..., writer="spark")',
    )
    return found


def _exceptions() -> Any:
    return require_package("pyiceberg.exceptions", **_PACKAGE)
