"""Read Debezium's records as a change stream."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.changes.debezium_records import Absent, DebeziumSpec, Preimages, Tombstones
from streamops.kernel.parameters import Text, parse_distinct_names, require_name
from streamops.spark.columns import column
from streamops.spark.operator import Operator

_FORM = r"^([0-7]?[0-9A-Fa-f]{1,7})/([0-9A-Fa-f]{1,8})\z"


def parse_lsn(lsn: str | Column) -> Column:
    """Convert positions in PostgreSQL's log, such as ``0/16B37480``, from text to bigint.

    As text they cannot order changes: ``0/9000000`` is above ``0/10000000``. The result is the number that
    Debezium's ``lsn`` has: the distance from the beginning of the log, in bytes.

    Parameters
    ----------
    lsn : str or Column
        The name of a column, or an expression: text. Text of another form, and positions of 8 EiB or more,
        become null.

    Returns
    -------
    Column
        bigint.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: neither a name nor an expression.

    Examples
    --------
    >>> rows.withColumn("lsn", changes.parse_lsn("lsn"))
    """
    if not isinstance(lsn, Column):
        require_name(lsn, parameter="lsn")
    text = (column(lsn) if isinstance(lsn, str) else lsn).cast("string")  # without its collation
    high, low = (
        F.conv(F.regexp_extract(text, _FORM, group), 16, 10).cast("bigint") for group in (1, 2)
    )
    return F.when(F.regexp_like(text, F.lit(_FORM)), F.shiftleft(high, 32) + low)


def from_debezium(
    schema: str | StructType,
    *,
    key: str | Sequence[str],
    value: str = "value",
    message_key: str | None = None,
    sequence: str | Sequence[str] = "auto",
    absent: Absent = "null",
    placeholder: Text = "__debezium_unavailable_value",
    preimages: Preimages = "drop",
    tombstones: Tombstones = "drop",
    keep: Sequence[str] = (),
) -> Operator:
    """Read Debezium's records as changes of rows, with their sequence.

    Operations `c` and `r` (snapshot) become an ``insert``, `u` an ``update_postimage``, `d` a
    ``delete``. An update that changes the key becomes a ``delete`` of the old row and an ``insert`` of
    the new row. `t` becomes a ``truncate``: a change with a sequence, but without key and values, which
    deletes all rows with a lower sequence in ``normalize`` and ``apply``. Other records are rejected:
    they are part of the output, with the reason.

    Input        `value`: string or binary, JSON with or without the wrapper of its schema ·
                 `message_key`: string or binary · columns to `keep`, of any type
    Output       the columns of `schema` · _change_type: string · _sequence: struct<log, offset,
                 position> of bigint, or of the columns of `sequence` · _snapshot: boolean ·
                 _unavailable: array<string>, columns whose value was not sent and did not change ·
                 _changed_at: timestamp, by the database's clock · with `tombstones` "keep"
                 _tombstone: boolean · rejected: struct<reason, value, key>, null in a change ·
                 the columns of `keep`
    Output mode  any
    Watermark    none is needed; one on a column of `keep` is preserved
    State        none
    Order        rows may arrive in any order; of a record, the delete is before the insert, and a
                 preimage before its postimage
    Batch        the same rows

    Parameters
    ----------
    schema : str or StructType
        Columns of the table's row, as SQL DDL or a type. Types are those of the JSON: a column that
        Debezium sends as a number (``io.debezium.time.MicroTimestamp``) is bigint, one that it sends as
        bytes (decimals, unless ``decimal.handling.mode`` is set) is binary. A NOT NULL column must be
        present. Strings of limited length, such as varchar(10), are string.
    key : str or sequence of str
        Columns that identify a row.
    value : str
        Column with the record.
    message_key : str, optional
        Column with the message key. It is read for deletes without a row, and for tombstones.
    sequence : "auto", "lsn", "binlog", "scn", "change_lsn", or sequence of str
        Position of a change in the log. "auto": by ``source.connector``. "lsn": Postgres, (0, lsn,
        position in the transaction). "binlog": MySQL and MariaDB, (number of the file, position, row).
        "scn": Oracle, (0, scn, position in the transaction). "change_lsn": SQL Server. Or columns of the
        frame, such as ``["offset"]`` of a topic whose keys stay in their partitions. A row of an
        incremental snapshot may have no position: it is below all others, (0, 0, 0).
    absent : "null", "unavailable" or "route"
        What a column is that a record does not have: null, or unavailable. "route": the record is rejected.
    placeholder : str
        The connector's ``unavailable.value.placeholder``, also if it starts with ``hex:``.
    preimages : "drop" or "publish"
        Whether an update also becomes an ``update_preimage``. Operators that retract rows refuse a stream
        without preimages. "publish" needs the whole row before updates and deletes, and rejects changes
        without it: set ``REPLICA IDENTITY FULL`` in Postgres.
    tombstones : "drop" or "keep"
        Records whose value is null, which follow a delete for log compaction. "keep": as rows with their
        key and ``_tombstone``, which operators with state ignore.
    keep : sequence of str
        Columns of the frame to copy to each change.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, or cannot be combined with another; a name is taken.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.from_debezium("id bigint, name string", key="id", message_key="key")
    changes.from_debezium(schema='id bigint, name string', key=('id',), message_key='key')

    Notes
    -----
    Reasons: "unparsable_json" (also text after the JSON, and invalid UTF-8), "no_operation",
    "unknown_operation", "no_row", "row_does_not_fit", "null_key", "no_row_before" (with `preimages`
    "publish"), "value_not_sent" (in a row of a new key), "no_sequence". Records of operation `m`, logical
    decoding messages, are dropped.

    A row fits if every value is exactly the one sent: integers and decimals are not cut, floats not made
    infinite, times have no digits beyond microseconds, and numbers and times of day are not read as
    timestamps. A timestamp without a zone is in the time zone of the session.

    Within Oracle's scn and Postgres' lsn the position in the transaction is only known with the
    connector's ``provide.transaction.metadata``; otherwise it is 0.

    Connectors skip truncates by default. To receive them, set ``skipped.operations`` to "none". A
    truncate has no message key, so Kafka may write it to another partition than the rows of the
    table; its sequence orders it all the same.

    See Also
    --------
    streamops.split_side_output : split changes and rejected records.
    from_delta : the same for Delta's change data feed.

    References
    ----------
    Debezium's documentation, "Data change events" of each connector.
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Change Data Capture".
    """
    if not isinstance(sequence, str):
        sequence = parse_distinct_names(sequence, parameter="sequence")
    spec = DebeziumSpec(
        schema=schema,
        key=parse_distinct_names(key, parameter="key"),
        value=value,
        message_key=message_key,
        sequence=sequence,
        absent=absent,
        placeholder=placeholder,
        preimages=preimages,
        tombstones=tombstones,
        keep=parse_distinct_names(keep, parameter="keep", empty=True),
    )
    return Operator("changes.from_debezium", spec)
