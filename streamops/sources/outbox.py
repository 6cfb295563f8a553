"""Read the events of a service from its outbox table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from streamops.kernel.errors import located_methods
from streamops.kernel.parameters import (
    Text,
    parse_distinct_names,
    refuse_taken_names,
    require_distinct_columns,
)
from streamops.kernel.versions import require_python_sources
from streamops.sources import conditions
from streamops.sources.core.outbox import COLUMNS, Outbox
from streamops.sources.core.status import Names
from streamops.sources.outbox_source import OutboxParameters, OutboxSource
from streamops.sources.postgres_log import require_driver, require_url

Create = Literal["refuse", "create"]

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_ADDED = ("_lsn", "_position", "_committed_at", "rejected")


def outbox(
    url: Text,
    table: str = "outbox",
    *,
    slot: str,
    schema: str = "public",
    publication: str | None = None,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    create: Create = "refuse",
    max_rows: int = 10_000,
) -> OutboxEvents:
    """Read the events that a service has written to its outbox table in PostgreSQL.

    A service that writes to its tables and to a broker can fail between the two. Instead, it inserts each event
    into an outbox table, in the transaction of the change that it describes. The events of committed
    transactions are then read from the log of the database, in the order of commits.

    Input        an outbox table of PostgreSQL 13 or later with ``wal_level=logical``; rows that are inserted.
                 Rows that are deleted are ignored: the service may delete a row at once
    Output       id, aggregate_type, aggregate_id, event_type, payload: string, the text that PostgreSQL
                 shows · _lsn: bigint, the position of the commit · _position: int, from 0 in a transaction ·
                 _committed_at: timestamp, by the clock of the server · rejected: struct<reason, row>, null in
                 an event · the columns of `keep`: string
    Output mode  any
    Watermark    none; define it on `_committed_at`, or on a time of the payload
    State        none in Spark; the slot keeps the log from the last committed micro-batch on
    Order        (`_lsn`, `_position`) is the order of commits; rows of a micro-batch are not sorted by it
    Batch        the events that the slot has now; the slot does not move

    Parameters
    ----------
    url : str
        Connection URL, such as ``postgresql://user@host/database``. A password is refused, because the plan of
        a query is logged: write it to a password file (``~/.pgpass``), or set ``PGPASSWORD``, where the
        driver of Spark runs. No other machine connects.
    table : str
        Name of the outbox table. It is quoted, and case-sensitive.
    slot : str
        Name of the replication slot: lower-case letters, digits and "_". Each query needs its own.
    schema : str
        Schema of the table.
    publication : str, optional
        Name of the publication that has the table. Default: the name of the slot.
    columns : mapping of str to str, optional
        Columns of the table by column of the result, where they differ from those of Debezium's outbox event
        router: ``{"id": "id", "aggregate_type": "aggregatetype", "aggregate_id": "aggregateid",
        "event_type": "type", "payload": "payload"}``.
    keep : sequence of str
        Further columns of the table, such as ``["tenant"]``.
    create : "refuse" or "create"
        What happens if there is no slot. "create": publication and slot are created, and the first query
        begins there. A table that already has rows is refused, because they would not be read.
    max_rows : int
        A micro-batch ends with the transaction with which it has so many rows. Transactions are never
        divided. Without effect on PySpark 4.1.

    Returns
    -------
    OutboxEvents
        With ``read_stream(spark)`` and ``read(spark)``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value; ``PASSWORD_IN_URL``; ``NAME_TAKEN``.
    RequirementError
        ``PACKAGE_MISSING``: ``pip install 'streamops[postgres]'``.

    Examples
    --------
    >>> from streamops import sources
    >>> events = sources.outbox("postgresql://spark@db/shop", slot="shop_events")
    >>> orders = events.read_stream(spark).where("aggregate_type = 'order'")

    Notes
    -----
    A micro-batch that is repeated after a failure has the same rows, and the slot advances only after Spark has
    committed a micro-batch. A query with a new checkpoint begins at the slot, and so may read the last
    micro-batch of the former query again: deduplicate by `id`, or use a sink with a ledger.

    Errors of ``read_stream`` and ``read``, and of a running query. ``RequirementError``:
    ``SOURCE_UNFIT``, ``SOURCE_MISSING``, ``SLOT_IN_USE``, ``SOURCE_UNAVAILABLE``, and ``SLOT_LOST``:
    the server has removed events that were not read. ``SpecError``: ``SOURCE_MISSING``, ``SOURCE_UNFIT``. ``ColumnNotFound``.
    ``CheckpointError``: ``SLOT_AHEAD``, ``LOG_BEHIND``, ``OTHER_SERVER``, if checkpoint and slot do not
    belong together and events may be missing.

    Reasons of rejected rows: "updated", a row of the outbox was updated; "too_large", more than 64 MB;
    "not_utf8"; "missing_field", a column other than `payload` is null, or the table did not have one of
    them when the row was written. ``rejected.row`` is the row as JSON.

    The rows of a micro-batch pass through the memory of the driver, compressed.

    See Also
    --------
    streamops.split_side_output : split events and rejected rows.
    streamops.changes.from_debezium : rows of other tables, by Debezium.

    References
    ----------
    Richardson: "Microservices Patterns", chapter 3, "Transactional outbox".
    PostgreSQL: "Logical Decoding".
    """
    require_url(url)
    if not _SLOT.fullmatch(slot):
        raise conditions.NOT_A_SLOT.error(got=f"slot={slot!r}")
    name = slot if publication is None else publication
    if type(max_rows) is not int or max_rows < 1:
        raise conditions.MAX_ROWS_OUT_OF_RANGE.error(got=f"max_rows={max_rows!r}")
    described = Outbox(
        schema=schema,
        table=table,
        columns=_parse_columns(columns),
        keep=parse_distinct_names(keep, parameter="keep", empty=True),
    )
    names, given = [*described.columns, *described.keep], {"keep": list(described.keep)}
    refuse_taken_names(names, _ADDED, given, conditions.NAME_TAKEN)
    require_python_sources(
        "sources.outbox", "sources.kafka_records behind Debezium's outbox router"
    )
    require_driver()
    read = Names(outbox=described, publication=name, slot=slot)
    return OutboxEvents(OutboxParameters(url=url, names=read, max_rows=max_rows), create)


def _parse_columns(columns: object) -> dict[str, str]:
    """The column of the table for each column of the result."""
    given = {} if columns is None else columns
    if not isinstance(given, Mapping) or not set(given) <= set(COLUMNS):
        raise conditions.NOT_A_COLUMN.error(columns=", ".join(COLUMNS), got=f"columns={columns!r}")
    parsed = {**COLUMNS, **given}
    require_distinct_columns(**parsed)
    return parsed


@located_methods("sources.outbox")
@dataclass(frozen=True, slots=True)
class OutboxEvents:
    """The events of an outbox table; :func:`streamops.sources.outbox` creates it."""

    _parameters: OutboxParameters
    _create: Create

    def __repr__(self) -> str:
        """Show the parameters. None of them is secret."""
        read, described = self._parameters.names, self._parameters.names.outbox
        given = {
            "slot": read.slot,
            "schema": described.schema,
            "publication": read.publication,
            "columns": dict(described.columns),
            "keep": described.keep,
            "create": self._create,
            "max_rows": self._parameters.max_rows,
        }
        named = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"sources.outbox({self._parameters.url!r}, {described.table!r}, {named})"

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """The events from the slot on, as a streaming frame.

        Raises
        ------
        StreamopsError
            What is read does not exist or cannot be read; see :func:`streamops.sources.outbox`.
        """
        self._prepare(spark)
        reader = spark.readStream.format(OutboxSource.name())
        return reader.options(**self._parameters.to_options()).load()

    def read(self, spark: SparkSession) -> DataFrame:
        """The events that the slot has now, as a batch frame. The slot does not move.

        Each action on the frame reads the log again, and may find more events.

        Raises
        ------
        StreamopsError
            What is read does not exist or cannot be read; see :func:`streamops.sources.outbox`.
        """
        self._prepare(spark)
        reader = spark.read.format(OutboxSource.name())
        return reader.options(**self._parameters.to_options()).load()

    def _prepare(self, spark: SparkSession) -> None:
        log = self._parameters.log()
        try:
            if self._create == "create":
                log.create_missing()
            log.check()
            log.check_columns()
        finally:
            log.close()
        spark.dataSource.register(OutboxSource)
