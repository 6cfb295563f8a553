"""Debezium's records as a stream of changes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from streamops.changes.debezium_settings import Absent, DebeziumSettings, Preimages, Tombstones
from streamops.spark.rowwise import RowTransform

__all__ = ["from_debezium"]


def from_debezium(
    schema: str | StructType,
    *,
    key: str | Sequence[str],
    value: str = "value",
    message_key: str | None = None,
    sequence: str | Sequence[str] = "auto",
    absent: Absent = "null",
    placeholder: str = "__debezium_unavailable_value",
    preimages: Preimages = "drop",
    tombstones: Tombstones = "drop",
    keep: Sequence[str] = (),
    name: str | None = None,
) -> RowTransform:
    """Reads Debezium's records: what happened to which row, in which order.

    A record with operation `c` or `r` (snapshot) becomes an ``insert``, `u` an ``update_postimage``,
    `d` a ``delete``. An update that changes the key becomes a ``delete`` of the old row and an
    ``insert`` of the new row. `t` becomes a ``truncate``: a change with a sequence, but without key
    and values, which deletes all rows with a lower sequence in ``normalize`` and ``apply``. All other
    records are rejected: they are part of the output, with the reason.

    Input        `value`: string or binary, JSON with the wrapper of its schema or without ·
                 `message_key`: string or binary · columns to `keep`, of any type
    Output       the columns of `schema` · _change_type: string · _sequence: struct<log, offset,
                 position> of bigint, or of the columns named · _snapshot: boolean · _unavailable:
                 array<string>, columns whose value was not sent and is the one from before ·
                 _changed_at: timestamp, by the database's clock · with `tombstones` "keep"
                 _tombstone: boolean · rejected: struct<reason, value, key>, null in a change ·
                 the columns of `keep`
    Output mode  any
    Watermark    none needed; one on a column of `keep` is kept
    State        none
    Order        rows may come in any order; of a record, the delete comes before the insert, and a
                 preimage before its postimage
    Batch        same rows out

    Parameters
    ----------
    schema : str or StructType
        Columns of the table's row, as in SQL's DDL. Types are those that JSON has: what Debezium
        sends as a number (``io.debezium.time.MicroTimestamp``) is bigint here, what it sends as bytes
        (decimals, unless the connector's ``decimal.handling.mode`` says otherwise) is binary. A column
        that is NOT NULL must be there. Text of a limited length, as varchar(10), is string.
    key : str or sequence of str
        Columns that identify a row.
    value : str
        Column with the record.
    message_key : str, optional
        Column with the message's key. Read where a delete has no row, and of tombstones.
    sequence : "auto", "lsn", "binlog", "scn", "change_lsn", or sequence of str
        Where a change stands in the log. "auto": by ``source.connector``. "lsn": Postgres, (0, lsn,
        place in the transaction). "binlog": MySQL and MariaDB, (number of the file, position, row).
        "scn": Oracle, (0, scn, place in the transaction). "change_lsn": SQL Server. Or columns of the
        frame, such as ``["offset"]`` of a topic whose keys stay in their partitions. A row of an
        incremental snapshot may have none of a connector's: it is below all, (0, 0, 0).
    absent : "null", "unavailable" or "reject"
        A column that a record does not have: null, as it was before, or no row that fits.
    placeholder : str
        The connector's ``unavailable.value.placeholder``.
    preimages : "drop" or "publish"
        Whether the row before an update is an ``update_preimage``. Operators that take rows back
        refuse a stream without. "publish" needs whole rows before updates and deletes, and rejects
        changes without: of Postgres, ``REPLICA IDENTITY FULL``.
    tombstones : "drop" or "keep"
        Records whose value is null, which follow a delete for the sake of compaction. "keep": as rows
        with their key and ``_tombstone``; to state they mean nothing.
    keep : sequence of str
        Columns of the frame to go with each change.
    name : str, optional
        Under which the counts appear in the query's ``observedMetrics``. A batch is counted only
        where it is given.

    Returns
    -------
    RowTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, or does not go with another; a name is taken.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.from_debezium("id bigint, name string", key="id", message_key="key")
    changes.from_debezium(schema='id bigint, name string', key=('id',), value='value', message_key='key', sequence='auto', absent='null', placeholder='__debezium_unavailable_value', preimages='drop', tombstones='drop', keep=(), name='from_debezium')

    Notes
    -----
    Reasons: "unparsable_json" (also where text is behind the JSON, or bytes are no UTF-8),
    "no_operation", "unknown_operation", "no_row", "row_does_not_fit", "null_key", "no_row_before" (with `preimages` "publish"),
    "no_sequence". Records of operation `m`, which are about no row, are left out.

    A row fits if each value is what was sent: a decimal is not rounded, a float not made infinite, a
    number or a time of day no timestamp.

    Within Oracle's scn and Postgres' lsn the place in the transaction is told only with the
    connector's ``provide.transaction.metadata``; it is 0 otherwise.

    Connectors skip truncates by default. To receive them, set ``skipped.operations`` to "none". A
    truncate has no message key, so Kafka may write it to another partition than the rows of the
    table; its sequence orders it all the same.

    See Also
    --------
    split_rejected : changes and rejected records apart.
    from_delta : the same of Delta's change data feed.

    References
    ----------
    Debezium's documentation, "Data change events" of each connector.
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Change Data Capture".
    """
    where = "changes.from_debezium"
    settings = DebeziumSettings.of(
        where,
        schema,
        key=key,
        value=value,
        message_key=message_key,
        sequence=sequence,
        absent=absent,
        placeholder=placeholder,
        preimages=preimages,
        tombstones=tombstones,
        keep=keep,
    )
    return RowTransform.of(where, settings, name)
