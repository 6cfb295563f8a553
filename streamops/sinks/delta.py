"""Write micro-batches to a Delta table, each exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import key_codes
from streamops.kernel.databases import public_path, secrets_of
from streamops.kernel.errors import SinkError, StreamopsError
from streamops.kernel.parameters import require_package
from streamops.kernel.versions import require_version, require_views
from streamops.sinks import conditions, copy_on_write, delta_files
from streamops.sinks.copy_on_write import Job, Replaced
from streamops.sinks.core import delta_commit, delta_log, stored_types
from streamops.sinks.core.delta_commit import (
    DELETE,
    PUT,
    Commit,
    Range,
    has_local_time_in_map,
    mark,
)
from streamops.sinks.core.delta_log import to_integers
from streamops.sinks.core.ledger import Action, Decision, Delivery, Entry, NewCheckpoint, Repeated
from streamops.sinks.core.net import (
    Net,
    check_stored,
    content_columns,
    form_of,
    is_among,
    is_like,
    newer_rows,
    repeat,
    require_unique,
)
from streamops.sinks.delta_attempt import DeltaAttempt, Handle
from streamops.sinks.lake import LakeSink, values_of, without_change_type
from streamops.sinks.protocol import Conflict, Content, Found, Reduced
from streamops.sinks.sink import (
    Columns,
    Missing,
    elsewhere,
    hide,
    parse_key,
    refused,
    unavailable,
)
from streamops.sinks.spark_delta import SparkDeltaSink
from streamops.sinks.tasks import Deliver, Receipts
from streamops.spark.identity import Identity

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_WHERE = "sinks.delta"


def delta(
    path: str,
    *,
    key: str | Sequence[str] | None = None,
    sequence: str | Sequence[str] | None = None,
    name: str = "default",
    columns: Columns = "exact",
    missing: Missing = "create",
    new_checkpoint: NewCheckpoint = "refuse",
    repeated: Repeated = "fail",
    checkpoint: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    writer: Literal["deltalake", "spark"] = "deltalake",
) -> DeltaSink | SparkDeltaSink:
    """Write micro-batches to a Delta table, each exactly once.

    After the commit of micro-batch N, the table is the result of micro-batches 0 to N. The rows and a
    ledger entry, as application transactions of Delta, are in one commit. The package ``deltalake`` writes,
    in the driver and in tasks: Spark needs no Delta connector.

    Input        the output of any operator: appended rows; revisions, which replace the row of a key if
                 they are newer; change streams with a key; change streams without a key, whose rows are
                 a multiset
    Output       the rows in the table, and the entry in its log
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        any, within a micro-batch
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    path : str
        Folder of the table, or a URL such as ``s3://bucket/table``.
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
    storage_options : mapping of str to str, optional
        Options of the object store, such as credentials, as in ``deltalake.DeltaTable``. They are neither
        shown nor logged.
    writer : "deltalake" or "spark"
        What writes: the package ``deltalake``, or Delta's connector in the session of the query. The connector
        writes tables with all features, and `path` may be the name of a table in a catalog. It does not write
        change streams without a key, and does not add columns.

    Returns
    -------
    DeltaSink or SparkDeltaSink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``delta`` is not installed; ``VERSION_NOT_SUPPORTED``: PyArrow is older than 16, or deltalake than 1.6.6.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.delta("s3://lake/daily", key=["page", "window_start"])
    >>> views.writeStream.foreachBatch(daily).option("checkpointLocation", path)

    Notes
    -----
    Errors while the query runs. ``SinkError``: another run, query or checkpoint writes to this table, see
    docs/sinks.md; ``TARGET_COLUMNS``, ``TARGET_TYPE``, ``TARGET_FEATURE`` and ``TARGET_MISSING``, if the
    table does not fit, before a row is written; ``TARGET_REFUSED``; ``TARGET_UNAVAILABLE``.
    ``ChangeStreamError``: the change stream contradicts itself or the table. In all cases the table remains
    as it was.

    Tasks write a large micro-batch: they write its rows as files, and replace the files of the table that
    lose rows. The driver commits the names of the files.

    A small micro-batch passes through the memory of the driver. So does a large one, if the table has
    constraints, generated columns or a change data feed, or if rows with a key lack columns of the table,
    whose values are kept. If the table has at most 32 rows per change between
    the lowest and the highest key, these rows do, too, up to 256 MB, and are replaced in one commit. Otherwise
    the rows are merged, and the keys of the table pass through the driver in parts if the rows are a change
    stream. Tables with features that deltalake does not write, such as deletion vectors or column mapping, are
    refused, unless `writer` is "spark".
    """
    options: dict[str, Any] = {
        "path": path,
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
        if storage_options is not None:
            raise conditions.SPARK_WRITER_OPTIONS.error(got="`storage_options`")
        return SparkDeltaSink(**options)
    _require_driver()
    return DeltaSink(**options, storage_options=storage_options)


@dataclass(frozen=True, kw_only=True, repr=False)
class DeltaSink(LakeSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE
    type_unknown, rows_removed = conditions.TYPE_NOT_IN_DELTA, conditions.ROWS_REMOVED

    path: str = field(metadata={"shown": lambda path: repr(public_path(path))})
    storage_options: Mapping[str, str] | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        if "://" not in self.path and _ESCAPE.search(self.path):
            raise conditions.PATH_UNSUPPORTED.error(got=repr(self.path))
        options: Any = self.storage_options
        texts = (
            [t for pair in options.items() for t in pair] if isinstance(options, Mapping) else [0]
        )
        if options is not None and not all(isinstance(text, str) for text in texts):
            raise conditions.NOT_OPTIONS.error(got=type(options).__name__)

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({public_path(self.path)!r})"

    def _read_ledger(self) -> Entry | None:
        with self._errors():
            found = self._find(self._open())
            return None if found.removed_by else found.entry

    def _delivery(self, content: Content, batch_id: int, identity: Identity) -> Delivery:
        # The ledger is made of integers. With offsets, a repeated micro-batch would always differ from its entry.
        return replace(super()._delivery(content, batch_id, identity), offsets=())

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        path = public_path(self.path)
        with self._errors():
            table = self._open()
            if table is not None:
                self._refuse_features(table)
            elif self.missing == "refuse":
                raise conditions.TABLE_MISSING.error(statement="", got=path)
        return f"table {path!r}", [] if table else [f"table {path!r}"], self._read_ledger()

    def _find(self, table: Any) -> delta_log.Found:
        """The entry that belongs to the rows of the table."""
        if table is None:
            return delta_log.Found(None)
        handle: Any = self.session.connection
        if handle.committed is not None:
            return delta_log.Found(handle.committed[1])  # nobody else has committed since
        return delta_log.find_entry(table, self.name, handle.actions, self._open_version)

    def _others(self, table: Any, entry: Entry | None, delivery: Delivery) -> dict[str, Entry]:
        """The entries of other sinks, if they matter: for the first micro-batch of a sink or a query."""
        if table is None or (entry is not None and entry.query == delivery.query):
            return {}
        return delta_log.other_entries(table, self.name)

    def _open_version(self, version: int) -> Any:
        driver = _require_driver()
        try:
            return driver.DeltaTable(self.path, version, storage_options=self._options)
        except driver.exceptions.DeltaError:
            return None

    @contextmanager
    def _attempt(self, content: Reduced | Receipts, delivery: Delivery) -> Iterator[DeltaAttempt]:
        with self._errors():
            table = self._open()
            found = self._find(table)
            self._refuse_removed(found, delivery)
            others = self._others(table, found.entry, delivery)
            yield DeltaAttempt(self, table, content, Found(found.entry, others=others))

    def _together(self, schema: pa.Schema) -> tuple[str, ...] | None:
        with self._errors():
            table = self._open()
            if table is not None:
                names = [part.name for part in table.schema().fields]
                if self._keeps_values(names, schema.names) or not delta_files.is_written_by_tasks(
                    table
                ):
                    return None
        return super()._together(schema)

    def _prepare(self, schema: pa.Schema, batch_id: int, action: Action) -> Deliver:
        with self._errors():
            wanted = self._stored(without_change_type(schema))
            table = self._open()
            if table is None:
                self._create(wanted)
                table = self._open()
            fitted = self._fit(Commit(table, None), wanted)
            if delta_files.respell(table):
                table = self._open()
            if set(fitted.names) - set(pa.schema(table.schema().to_arrow()).names):
                delta_files.add_columns(table, fitted)
                table = self._open()
            entry = self._find(table).entry
            filesystem = delta_files.open_files(self.path, self._options)
            folder = delta_files.announce(filesystem, table, self.name)
        job = self._job_of(schema.names, table, fitted, folder)
        attempt = {"folder": folder, "state": delta_files.state(table, entry)}
        return partial(copy_on_write.deliver, job, attempt)

    def _job_of(self, names: Sequence[str], table: Any, wanted: pa.Schema, folder: str) -> Job:
        key, staging = self.key or (), delta_files.staging(table, self.name, folder)
        files = delta_files.open_table(self.path, self._options, table, wanted, folder, key)
        return self._job(names, files, staging)

    def _commit_files(
        self, commit: Commit, receipts: Receipts, decision: Decision, entry: Entry | None
    ) -> None:
        """Commit files that tasks have written, and replace those whose rows they change."""
        table, is_new = commit.table, decision.action == "replace"
        if decision.action == "skip" or not (receipts.parts or is_new):
            commit.append_nothing()
            return
        fitted = self._fit(commit, self._stored(values_of(receipts)))
        replaced = self._replaced(
            receipts,
            decision,
            delta_files.state(table, entry),
            partial(self._job_of, receipts.schema.names, table, fitted),
            partial(delta_files.stored_files, table),
        )
        if is_new:
            replaced = Replaced(replaced.added, delta_files.stored_files(table))
        delta_files.commit_files(table, replaced, commit.properties)

    def _clean_up(self, delivery: Delivery) -> None:
        with self._errors():
            table = self._open()
            handle: Any = self.session.connection
            if table is not None:
                filesystem = delta_files.open_files(self.path, self._options)
                delta_files.clean_up(filesystem, table, self.name, handle.actions)

    def _properties(self, decision: Decision) -> Any:
        driver, entry = _require_driver(), decision.entry
        transactions = [
            driver.Transaction(delta_log.identifier(self.name, position), number)
            for position, number in enumerate(to_integers(entry))
        ]
        values = {"sink": self.name, "query": entry.query, "run": entry.run, "batch": entry.batch}
        history = {f"streamops.{key}": str(value) for key, value in values.items()}
        # Without a retry after another commit, whose effect on the rows of the entry must be known first.
        return driver.CommitProperties(
            app_transactions=transactions,
            custom_metadata={**history, delta_log.ACTION: decision.action},
            max_commit_retries=0,
        )

    def _apply(self, commit: Commit, net: Net, names: Sequence[str], decision: Decision) -> None:
        if decision.action == "skip":
            commit.append_nothing()
            return
        form, sequence = form_of(names, self.key), self._sequence_of(names)
        schema = self._fit(commit, self._stored(net.added.schema))
        removed, added = (
            self._converted(rows, schema, commit) for rows in (net.removed, net.added)
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
            self._upsert(commit, added, sequence)
        elif form == "changes":
            # Each key once: the others replace a removed row.
            wanted = pa.concat_tables([removed, added.filter(pa.array(~net.replaces))])
            key = self.key or ()
            stored = commit.read_range(wanted, key)
            if stored is not None:
                is_changed = is_like(stored.rows, wanted, key)
                found = stored.rows.filter(pa.array(is_changed))
                check_stored(form, net, found, key=self.key or (), content=content)
                self._rewrite(commit, stored, is_changed, added)
                return
            found = commit.rows_like(wanted, key, content)
            check_stored(form, net, found, key=self.key or (), content=content)
            if not len(found):
                commit.append(added)  # which is much faster
                return
            rows = [mark(added, PUT), mark(removed.filter(~net.is_replaced), DELETE)]
            commit.merge(pa.concat_tables(rows), self.key or ())
        else:
            self._change_multiset(commit, net, content)

    def _converted(self, rows: pa.Table, schema: pa.Schema, commit: Commit) -> pa.Table:
        """The rows in the types of the table."""
        partitions = commit.table.metadata().partition_columns
        fields = commit.table.schema().fields
        return delta_files.convert(rows, schema, fields, partitions, self.key or ())

    def _upsert(self, commit: Commit, added: pa.Table, sequence: Sequence[str]) -> None:
        key = self.key or ()
        if not all(
            name in commit.stored.names and stored_types.is_exact(added.schema.field(name).type)
            for name in sequence
        ):
            found = commit.rows_like(added, key, sequence)
            added = added.filter(newer_rows(added, found, key=key, sequence=sequence))
            sequence = ()
        stored = commit.read_range(added, key)
        if stored is None:
            commit.merge(mark(added, PUT), key, delta_commit.is_newer(sequence))
            return
        is_changed = is_like(stored.rows, added, key)
        found = stored.rows.filter(pa.array(is_changed))
        require_unique(found, key)
        if sequence:
            newer = newer_rows(added, found, key=key, sequence=sequence)
            if not newer.all():
                added = added.filter(pa.array(newer))
                is_changed[is_changed] = is_among(found, added, key)
        self._rewrite(commit, stored, is_changed, added)

    def _rewrite(self, commit: Commit, stored: Range, is_changed: Any, added: pa.Table) -> None:
        """Delete rows of a range, and add others."""
        if is_changed.any():
            unchanged = stored.rows.filter(pa.array(~is_changed))
            commit.replace_range(stored, pa.concat_tables([unchanged, added]))
        else:
            commit.append(added)  # which is much faster

    def _change_multiset(self, commit: Commit, net: Net, content: Sequence[str]) -> None:
        """Delete all rows like the removed ones, and insert those that stay.

        Rows are deleted by the columns that DataFusion compares as Spark does, which includes too many.
        """
        schema = net.removed.schema
        stored = [name for name in content if name in commit.stored.names]
        by = [name for name in stored if stored_types.is_exact(schema.field(name).type)]
        found = commit.filled(commit.rows_like(net.removed, by, None))
        stays = check_stored("multiset", net, found, key=self.key or (), content=content)
        codes = key_codes([net.removed.column(name) for name in by], len(net.removed))
        groups = net.removed.take(np.unique(codes, return_index=True)[1])
        added = repeat(net.added, net.added_copies)
        rows = [commit.filled(added), found.filter(stays)]
        parts = [mark(part, PUT) for part in rows]
        commit.replace([*parts, mark(commit.filled(groups), DELETE)], by)

    def _refuse_features(self, table: Any) -> None:
        settings, protocol = table.metadata().configuration, table.protocol()
        is_listed = "deletionVectors" in (protocol.writer_features or ())
        has_vectors = is_listed and _count(table.deletion_vectors()) > 0
        features = delta_log.unsupported_features(protocol, settings, has_vectors)
        if features:
            raise self._unsupported(", ".join(features), features)

    def _unsupported(self, got: str, features: Sequence[str]) -> SinkError:
        return conditions.TARGET_FEATURE.error(features=delta_log.remedies(features), got=got)

    def _create(self, schema: pa.Schema) -> None:
        driver = _require_driver()
        if self.missing == "refuse":
            columns = ", ".join(f"{part.name} {part.type}" for part in schema)
            fix = f" with these columns: {columns}"
            raise conditions.TABLE_MISSING.error(statement=fix, got=public_path(self.path))
        for part in schema:
            if has_local_time_in_map(part.type):
                raise conditions.NTZ_IN_MAP.error(column=part.name, got=part.type)
        try:
            driver.DeltaTable.create(self.path, schema, storage_options=self._options)
        except driver.exceptions.DeltaError:
            if self._open() is None:
                raise  # otherwise another writer has created it

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.storage_options is None else dict(self.storage_options)

    def _open(self) -> Any:
        """The newest version of the table; None if there is no table."""
        driver = _require_driver()
        handle: Any = self.session.connection
        if handle is not None and handle.committed is not None:
            with suppress(driver.exceptions.DeltaError):  # the table was created again
                handle.table.update_incremental()
                version = handle.table.version()
                # Another table at the same path can have a log of the same length.
                commit = delta_log.commit_entry(handle.actions(version), self.name)
                if handle.committed == (version, commit):
                    return handle.table
        try:
            table = driver.DeltaTable(self.path, storage_options=self._options)
        except driver.exceptions.TableNotFoundError as error:
            if re.search(_NOWHERE, str(error)):
                raise
            return None
        except driver.exceptions.DeltaError as error:
            if "nsupported" in str(error):
                raise self._unsupported(str(error), ()) from error
            raise
        self.session.connection = Handle(table, delta_log.reader(self.path, self._options))
        return table

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the package by those of streamops, without secrets."""
        exceptions = _require_driver().exceptions
        secrets = (self.storage_options or {}).values()
        with hide(*(value for value in secrets if len(value) >= 8), *secrets_of(self.path)):
            try:
                yield
            except Conflict:
                raise
            except BaseException as error:
                self.session.close()
                if isinstance(error, StreamopsError):
                    raise
                is_append_only = "append-only" in str(error)
                if isinstance(error, exceptions.CommitFailedError | OSError) and not is_append_only:
                    raise unavailable("the Delta table", error) from error
                # Arrow refuses a null in a nested column that must not have one.
                if isinstance(error, exceptions.DeltaError | ValueError):
                    is_none = re.search(f"{_NOWHERE}|Invalid table location", str(error))
                    raise (elsewhere if is_none else refused)("a Delta table", error) from error
                raise


_NOWHERE = "Unknown scheme|NotADirectory"


def _count(rows: Any) -> int:
    return int(pa.table(rows).num_rows)


def _require_driver() -> Any:
    package = {"package": "deltalake", "extra": "delta"}
    require_package("deltalake.exceptions", **package)
    require_version("deltalake", "1.6.6", extra="delta")  # earlier ones forget the ledger
    require_views(
        "texts as views, in which deltalake reads a table", 'sinks.delta(..., writer="spark")'
    )
    return require_package("deltalake", **package)
