"""Where in its log a database made a change, by connector."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.columns import make_nullable

__all__ = ["CONNECTORS", "POSITIONS", "READ", "SOURCE", "changed_at", "position"]

CONNECTORS = {
    "postgresql": "lsn",
    "mysql": "binlog",
    "mariadb": "binlog",
    "oracle": "scn",
    "sqlserver": "change_lsn",
}
"""How the log of each connector tells positions."""

POSITIONS = tuple(dict.fromkeys(CONNECTORS.values()))

_READ = (
    "connector",
    "lsn",
    "file",
    "pos",
    "row",
    "scn",
    "change_lsn",
    "commit_lsn",
    "event_serial_no",
    "ts_ms",
    "ts_us",
)
SOURCE = StructType([StructField(name, StringType()) for name in _READ])
"""What is read of a record's ``source``."""

READ = "r"
"""The operation of a row of a snapshot."""

_LSN_PARTS = r"^([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,4})$"


def position(record: Column, kind: str) -> Column:
    """``struct<log, offset, position>`` of bigint, which orders changes; null if there is none.

    A row of a snapshot that was read beside the log may have none: it is below all of the log.

    Parameters
    ----------
    record : Column
        With ``op``, ``source`` and ``transaction``, whose fields are text.
    kind : str
        One of ``POSITIONS``, or "auto": what the record's connector has.
    """
    found = {name: rule(record) for name, rule in _RULES.items()}
    is_read = record["op"] == READ
    if kind != "auto":
        return F.coalesce(found[kind], F.when(is_read, _least()))
    connector = record["source"]["connector"]
    result = F.when(F.lit(False), found["lsn"])
    for name, rule in CONNECTORS.items():
        result = result.when(connector == name, found[rule])
    return F.coalesce(result, F.when(is_read & connector.isin(*CONNECTORS), _least()))


def changed_at(record: Column) -> Column:
    """When the database made the change, by its clock: good for showing, not for ordering."""
    source = record["source"]
    millis = _whole(source["ts_ms"])
    # Within the calendar before they are multiplied: an overflow would fail the query.
    fine = millis.between(MIN_INSTANT // 1_000, MAX_INSTANT // 1_000)
    micros = F.coalesce(_whole(source["ts_us"]), F.when(fine, millis) * F.lit(1_000))
    return F.timestamp_micros(F.when(micros.between(MIN_INSTANT, MAX_INSTANT), micros))


def _lsn(record: Column) -> Column:
    # Changes of one row take locks, so that their positions ascend though transactions interleave.
    return _place(F.lit(0), _whole(record["source"]["lsn"]), _order(record))


def _binlog(record: Column) -> Column:
    source = record["source"]
    file = _whole(F.regexp_extract(source["file"], r"\.([0-9]+)$", 1))
    return _place(file, _whole(source["pos"]), F.coalesce(_whole(source["row"]), F.lit(0)))


def _scn(record: Column) -> Column:
    return _place(F.lit(0), _whole(record["source"]["scn"]), _order(record))


def _change_lsn(record: Column) -> Column:
    source = record["source"]
    # Rows of a snapshot have no position but that of the snapshot.
    lsn = F.coalesce(source["change_lsn"], source["commit_lsn"])
    file, block, slot = (
        _whole(F.conv(F.regexp_extract(lsn, _LSN_PARTS, part), 16, 10)) for part in (1, 2, 3)
    )
    serial = F.coalesce(_whole(source["event_serial_no"]), F.lit(0))
    return _place(file, block * F.lit(1 << 16) + slot, serial)


_RULES = {"lsn": _lsn, "binlog": _binlog, "scn": _scn, "change_lsn": _change_lsn}


def _order(record: Column) -> Column:
    """The place within the transaction; 0 where the connector does not tell it."""
    return F.coalesce(_whole(record["transaction"]["total_order"]), F.lit(0))


def _least() -> Column:
    return _place(F.lit(0), F.lit(0), F.lit(0))


def _whole(text: Column) -> Column:
    return text.try_cast("bigint")


def _place(log: Column, offset: Column, place: Column) -> Column:
    parts = [
        make_nullable(part.cast("bigint")).alias(name)
        for name, part in (("log", log), ("offset", offset), ("position", place))
    ]
    return F.when(log.isNotNull() & offset.isNotNull(), F.struct(*parts))
