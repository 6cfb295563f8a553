"""Events of an outbox table, from the messages of a log.

The range of a micro-batch is ``[start, end)`` of positions of commits: PostgreSQL skips a transaction whose
commit is before the position of a slot, so the rows of a range are the same before and after the slot
advances, and a transaction is in one range as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.table import REJECTED
from streamops.sources import conditions
from streamops.sources.core import pgoutput

COLUMNS: Mapping[str, str] = {
    "id": "id",
    "aggregate_type": "aggregatetype",
    "aggregate_id": "aggregateid",
    "event_type": "type",
    "payload": "payload",
}
"""Columns of an event, and by default of the outbox table: the names of Debezium's outbox event router."""

LSN, POSITION, COMMITTED_AT = "_lsn", "_position", "_committed_at"

REASONS = ("updated", "too_large", "not_utf8", "missing_field")
"""Reasons for which a row is rejected, by precedence."""

OPTIONAL = "payload"
"""The column that may be null: Debezium's router makes a tombstone of it."""

LARGEST_ROW = 64 << 20
"""In bytes. A row travels in a message of Spark, which has a limit of 128 MB by default."""

_LARGEST_IN_JSON = 1 << 20
_REJECTED_TYPE = pa.struct([("reason", pa.string()), ("row", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """An outbox table: its name, its column for each column of an event, and further columns."""

    schema: str
    table: str
    columns: Mapping[str, str]
    keep: tuple[str, ...] = ()

    @property
    def sources(self) -> dict[str, str]:
        """The column of the table by the column of the result."""
        return {**self.columns, **{name: name for name in self.keep}}

    @property
    def rows(self) -> pa.Schema:
        """The schema of the result."""
        return pa.schema(
            [
                *((name, pa.string()) for name in self.columns),
                (LSN, pa.int64()),
                (POSITION, pa.int32()),
                (COMMITTED_AT, pa.timestamp("us", "UTC")),
                (REJECTED, _REJECTED_TYPE),
                *((name, pa.string()) for name in self.keep),
            ]
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Positions of commits, ``[start, end)``, of which at most about `most` rows are read."""

    start: int
    end: int
    most: int | None = None

    def has(self, lsn: pgoutput.Ints) -> pgoutput.Bools:
        """Whether commits at these positions are in the range."""
        return (self.start <= lsn) & (lsn < self.end)


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a range: rows, messages, and the position after the last commit."""

    rows: int = 0
    messages: int = 0
    inside: int = 0
    """The messages that belong to transactions of the range."""
    end: int | None = None
    is_full: bool = False
    """Whether `most` rows were read: what follows belongs to the next range."""
    open_rows: int = 0
    """The rows of the transaction that is open."""
    log: pgoutput.State = field(default_factory=pgoutput.State)


def read_events(
    pieces: Iterable[pa.Array], outbox: Outbox, wanted: Range
) -> Iterator[tuple[pa.RecordBatch, Read]]:
    """Read the events of a range.

    Parameters
    ----------
    pieces : iterable of Array of binary
        The messages of the log, in order, in any pieces.
    outbox : Outbox
    wanted : Range
        Whole transactions are read until there are `most` rows.

    Yields
    ------
    events : RecordBatch
        Rows of complete and incomplete transactions, in the order of commits. If the iteration ends
        without an error, all transactions are complete.
    read : Read
        What was read until now.

    Raises
    ------
    ChangeStreamError
        ``MALFORMED_LOG``.
    """
    read = Read()
    for piece in pieces:
        if read.is_full:
            continue  # the server has computed it: the connection is free once it was received
        events, read = _read_piece(piece, outbox, wanted, read)
        yield events, read
    if read.log.open is not None and not read.is_full:
        raise conditions.LOG_ENDS_EARLY.error(got="no commit")


def _read_piece(
    piece: pa.Array, outbox: Outbox, wanted: Range, read: Read
) -> tuple[pa.RecordBatch, Read]:
    decoded, log = pgoutput.decode(piece, read.log, schema=outbox.schema, table=outbox.table)
    message, values = _values_of(decoded, outbox)
    transaction = decoded.transaction[message]
    commit_lsn = decoded.lsn[decoded.transaction[decoded.commit]]
    inside, ended = wanted.has(decoded.lsn[transaction]), np.flatnonzero(wanted.has(commit_lsn))
    is_full = False
    if wanted.most is not None:
        until_commit = read.rows + np.searchsorted(message[inside], decoded.commit[ended])
        enough = np.flatnonzero(until_commit >= wanted.most)
        if len(enough):
            is_full, ended = True, ended[: enough[0] + 1]
            inside &= message < decoded.commit[ended[-1]]

    # The first transaction may have begun in an earlier piece, with rows there.
    carried = 0 if read.log.open is None else read.open_rows
    position = np.arange(len(message)) - np.searchsorted(transaction, transaction)
    position += carried * (transaction == 0)
    open_rows = 0
    if log.open is not None:
        last = len(decoded.lsn) - 1
        open_rows = int(np.count_nonzero(transaction == last)) + carried * (last == 0)
    values[LSN] = pa.array(decoded.lsn[transaction])
    values[POSITION] = pa.array(position.astype(np.int32))
    values[COMMITTED_AT] = pa.array(decoded.micros[transaction]).cast(pa.timestamp("us", "UTC"))
    events = pa.RecordBatch.from_arrays([values[f.name] for f in outbox.rows], schema=outbox.rows)
    events = events.filter(pa.array(inside))
    after = Read(
        rows=read.rows + len(events),
        messages=read.messages + len(piece),
        inside=read.inside + int(np.count_nonzero(wanted.has(decoded.lsn[decoded.transaction]))),
        end=int(decoded.commit_end[ended[-1]]) if len(ended) else read.end,
        is_full=is_full,
        open_rows=open_rows,
        log=log,
    )
    return events, after


def _values_of(decoded: pgoutput.Decoded, outbox: Outbox) -> tuple[pgoutput.Ints, dict[str, Any]]:
    """The rows of a piece in order: the message of each, and columns by name."""
    parts = [_values_of_table(rows, decoded, outbox) for rows in decoded.rows]
    names = (*outbox.sources, REJECTED)
    if len(parts) == 1:
        return decoded.rows[0].message, parts[0]
    if not parts:
        return np.empty(0, np.int64), {n: pa.nulls(0, outbox.rows.field(n).type) for n in names}
    message = np.concatenate([rows.message for rows in decoded.rows])
    order = np.argsort(message)
    joined = {name: pa.concat_arrays([part[name] for part in parts]) for name in names}
    return message[order], {name: column.take(pa.array(order)) for name, column in joined.items()}


def _values_of_table(
    rows: pgoutput.Rows, decoded: pgoutput.Decoded, outbox: Outbox
) -> dict[str, pa.Array]:
    """The columns of rows that have the same columns in the table. Rejected rows are null."""
    by_name = dict(zip(rows.relation.columns, rows.values, strict=True))
    size = sum((column.size for column in rows.values), np.zeros(len(rows.message), np.int64))
    tests = {name: np.zeros(len(rows.message), np.bool_) for name in REASONS}
    tests["updated"] |= rows.is_update
    tests["too_large"] |= size > LARGEST_ROW
    skipped = tests["updated"] | tests["too_large"]
    found: dict[str, pa.Array] = {}
    for name, source in outbox.sources.items():
        values = by_name.get(source)
        if values is None:
            found[name] = pa.nulls(len(rows.message), pa.string())
            tests["missing_field"] |= name in outbox.columns
            continue
        values = replace(values, is_null=values.is_null | skipped)
        found[name], invalid = _to_text(pgoutput.take_values(decoded.bytes, values))
        tests["not_utf8"] |= invalid
        if name in outbox.columns and name != OPTIONAL:
            tests["missing_field"] |= values.is_null
    reason = np.select([tests[name] for name in REASONS], [*range(len(REASONS))], -1)
    is_rejected = reason >= 0
    if not is_rejected.any():
        return {**found, REJECTED: pa.nulls(len(reason), _REJECTED_TYPE)}
    refused: list[dict[str, str] | None] = [None] * len(reason)
    for row in np.flatnonzero(is_rejected):
        text = _to_json(by_name, decoded.bytes, int(row))
        refused[row] = {"reason": REASONS[reason[row]], "row": text}
    nothing = pa.scalar(None, pa.string())
    blank = {name: pc.if_else(pa.array(is_rejected), nothing, c) for name, c in found.items()}
    return {**blank, REJECTED: pa.array(refused, _REJECTED_TYPE)}


def _to_text(values: pa.Array) -> tuple[pa.Array, pgoutput.Bools]:
    """Values as text, and which of them are not UTF-8: a database with SQL_ASCII may have such."""
    invalid = np.zeros(len(values), np.bool_)
    try:
        return values.cast(pa.string()), invalid
    except pa.ArrowInvalid:
        text = [None if value is None else _decode(value) for value in values.to_pylist()]
    invalid |= [
        one is None and is_valid
        for one, is_valid in zip(text, values.is_valid().to_pylist(), strict=True)
    ]
    return pa.array(text, pa.string()), invalid


def _decode(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _to_json(values: Mapping[str, pgoutput.Values], source: npt.NDArray[np.uint8], row: int) -> str:
    """A row as JSON, without values that were not sent, and without large ones."""
    content: dict[str, str | None] = {}
    for name, column in values.items():
        start, size = int(column.start[row]), int(column.size[row])
        if size <= _LARGEST_IN_JSON and not column.is_unchanged[row]:
            text = bytes(source[start : start + size]).decode(errors="backslashreplace")
            content[name] = None if column.is_null[row] else text
    return json.dumps(content, ensure_ascii=False)


def partition_rows(events: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Split rows into parts of about this many bytes. A part has a row at least."""
    size = np.full(len(events), 64, np.int64)
    for column in events.columns:
        if pa.types.is_string(column.type):
            size += np.asarray(pc.binary_length(column).fill_null(0))
        elif column.type == _REJECTED_TYPE:
            size += np.asarray(pc.binary_length(pc.struct_field(column, 1)).fill_null(0))
    part = (np.cumsum(size) - 1) // most
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1), len(events)]
    for start, end in pairwise(bounds):
        if end > start:
            yield events.slice(start, end - start)
