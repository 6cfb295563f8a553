"""Decode the messages of PostgreSQL's plugin `pgoutput`, protocol version 1, many at once.

A message is a letter and its fields; numbers are big-endian. A transaction is ``B``, its changes, and ``C``;
transactions do not overlap. ``R`` describes a table before its first change. A row is the number of its
columns, then a letter per column: ``n`` null, ``u`` a large value that did not change, ``t`` a length and
text. Each column of many rows is read at once.

Lengths are compared with the bytes that are there before anything is copied or allocated.

References
----------
PostgreSQL: "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.sources import conditions

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LETTERS = b"BCORYIUDT"
"""Begin, commit, origin, relation, type, insert, update, delete, truncate."""

MOST_COLUMNS = 1_664
"""PostgreSQL's limit of the columns of a row."""

_BEGIN_BYTES, _COMMIT_BYTES, _CHANGE_BYTES = 21, 26, 6
_EPOCH = 946_684_800_000_000
"""2000-01-01, PostgreSQL's epoch, in microseconds since 1970."""
_LAST_LSN = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, as it was when its rows were changed."""

    schema: str
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction: where its commit is in the log, and when it was, in microseconds since 1970."""

    lsn: int
    micros: int


@dataclass(frozen=True, slots=True)
class State:
    """What is known between two pieces of a log."""

    relations: Mapping[int, Relation] = field(default_factory=dict)
    open: Transaction | None = None
    """The transaction whose commit was not read yet."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a column: where they are in the bytes of the messages."""

    start: Ints
    size: Ints
    is_null: Bools
    is_unchanged: Bools


@dataclass(frozen=True, slots=True)
class Rows:
    """New rows of one table: the number of their message, and their values by column."""

    relation: Relation
    message: Ints
    is_update: Bools
    values: tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The content of messages.

    `transaction` is for each message the number of its transaction, of which `lsn` and `micros` are
    the commits. `commit` are the messages that commit one, and `commit_end` the position after each.
    """

    bytes: npt.NDArray[np.uint8]
    rows: tuple[Rows, ...]
    transaction: Ints
    lsn: Ints
    micros: Ints
    commit: Ints
    commit_end: Ints


def decode(messages: pa.Array, state: State, *, schema: str, table: str) -> tuple[Decoded, State]:
    """Decode messages of a log, and the rows of one table: inserted rows, and updated rows.

    Parameters
    ----------
    messages : Array of binary
        A piece of the log, which follows the one that led to `state`.
    state : State
    schema, table : str
        The table whose rows are read. Of other tables only the message is checked.

    Raises
    ------
    ChangeStreamError
        ``MALFORMED_LOG``: the bytes are not messages of `pgoutput`, or not in a valid order.
    """
    cut = _Messages.of(messages)
    letters = cut.byte(cut.start)
    known = np.isin(letters, np.frombuffer(LETTERS, np.uint8))
    _require(known, "an unknown letter")
    is_begin, is_commit = letters == ord("B"), letters == ord("C")
    depth = int(state.open is not None) + np.cumsum(is_begin.astype(np.int64) - is_commit)
    _require(depth == ~is_commit, "a message outside of a transaction, or a transaction in another")

    begins, opened = np.flatnonzero(is_begin), [] if state.open is None else [state.open]
    lsn, micros = _begins(cut, begins)
    lsn = np.concatenate([np.array([at.lsn for at in opened], np.int64), lsn])
    micros = np.concatenate([np.array([at.micros for at in opened], np.int64), micros])
    transaction = np.cumsum(is_begin) - 1 + len(opened)
    commits = np.flatnonzero(is_commit)
    ends = _commits(cut, commits, lsn[transaction[commits]])

    relations = _relations(cut, np.flatnonzero(letters == ord("R")))
    rows: list[Rows] = []
    changes = np.flatnonzero(np.isin(letters, np.frombuffer(b"IUD", np.uint8)))
    _require(cut.size[changes] >= _CHANGE_BYTES, "a change that is too short", changes)
    ids = cut.number(cut.start[changes] + 1, 4)
    for number in np.unique(ids):
        of_table = changes[ids == number]
        known_before = state.relations.get(int(number))
        # Each description of the table, and the message from which on it is valid.
        versions = [] if known_before is None else [(-1, known_before)]
        versions += relations.get(int(number), [])
        if not versions or of_table[0] < versions[0][0]:
            _refuse("a change of a table that was not described", int(of_table[0]))
        since = np.array([at for at, _ in versions])
        version = np.searchsorted(since, of_table, side="right") - 1
        for position, (_, relation) in enumerate(versions):
            found = of_table[version == position]
            found = found[letters[found] != ord("D")]
            if (relation.schema, relation.name) == (schema, table) and len(found):
                rows.append(_read_rows(cut, found, letters[found] == ord("U"), relation))
    newest = {number: found[-1][1] for number, found in relations.items()}
    remaining = state.open
    if len(depth):
        remaining = Transaction(int(lsn[-1]), int(micros[-1])) if depth[-1] else None
    after = replace(state, relations={**state.relations, **newest}, open=remaining)
    return Decoded(cut.bytes, tuple(rows), transaction, lsn, micros, commits, ends), after


def take_values(source: npt.NDArray[np.uint8], values: Values) -> pa.Array:
    """Copy the values of a column from the bytes of the messages, as binary; null stays null.

    The values lie in the bytes one after the other, with gaps: this takes every second part.
    """
    bounds = np.stack([values.start, values.start + values.size], axis=1).ravel()
    parts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        max(len(bounds) - 1, 0),
        [None, pa.py_buffer(bounds), pa.py_buffer(source)],
    )
    wanted = pa.array(np.arange(0, len(bounds), 2), mask=values.is_null)
    return parts.take(wanted).cast(pa.binary())


@dataclass(frozen=True, slots=True)
class _Messages:
    """The bytes of messages, and where each begins and ends."""

    bytes: npt.NDArray[np.uint8]
    start: Ints
    end: Ints

    @staticmethod
    def of(messages: pa.Array) -> _Messages:
        wide = messages.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        bounds = np.frombuffer(offsets, np.int64, len(wide) + 1, wide.offset * 8)
        content = np.frombuffer(data or b"", np.uint8)
        if wide.null_count:
            _refuse("null", 0)
        _require(bounds[1:] > bounds[:-1], "an empty message")
        return _Messages(content, bounds[:-1], bounds[1:])

    @property
    def size(self) -> Ints:
        return self.end - self.start

    def byte(self, at: Ints) -> npt.NDArray[np.uint8]:
        return self.bytes[at]

    def number(self, at: Ints, size: int) -> Ints:
        """The numbers of this many bytes at these positions: 2 and 4 bytes unsigned, 8 bytes signed."""
        dtype = {2: ">u2", 4: ">u4", 8: ">i8"}[size]
        found = np.ascontiguousarray(self.bytes[at[:, None] + np.arange(size)])
        return found.view(dtype).ravel().astype(np.int64)


def _require(holds: Bools, what: str, message: Ints | None = None) -> None:
    """Refuse the first message for which something does not hold."""
    if not holds.all():
        first = int(np.argmin(holds))
        _refuse(what, first if message is None else int(message[first]))


def _refuse(what: str, message: int) -> NoReturn:
    raise conditions.MALFORMED_MESSAGE.error(got=f"{what}, message {message} of the piece")


def _begins(cut: _Messages, begins: Ints) -> tuple[Ints, Ints]:
    """The position of the commit and its time, of messages that begin a transaction."""
    _require(cut.size[begins] == _BEGIN_BYTES, "a begin of another size", begins)
    lsn = cut.number(cut.start[begins] + 1, 8)
    _require(lsn > 0, f"a position that is not in 1 to {_LAST_LSN}", begins)
    since = cut.number(cut.start[begins] + 9, 8)
    _require(since < _LAST_LSN - _EPOCH, "a time out of range", begins)
    return lsn, since + _EPOCH


def _commits(cut: _Messages, commits: Ints, lsn: Ints) -> Ints:
    """The position after each commit."""
    _require(cut.size[commits] == _COMMIT_BYTES, "a commit of another size", commits)
    _require(cut.byte(cut.start[commits] + 1) == 0, "a commit with flags", commits)
    _require(cut.number(cut.start[commits] + 2, 8) == lsn, "a commit that is elsewhere", commits)
    ends = cut.number(cut.start[commits] + 10, 8)
    _require(ends > lsn, "a commit that ends before it begins", commits)
    return ends


def _relations(cut: _Messages, messages: Ints) -> dict[int, list[tuple[int, Relation]]]:
    """The descriptions of tables by their number, each with the number of its message."""
    found: dict[int, list[tuple[int, Relation]]] = {}
    for message in messages:
        start, end = cut.start[message], cut.end[message]
        number, relation = _read_relation(bytes(cut.bytes[start:end]), int(message))
        found.setdefault(number, []).append((int(message), relation))
    return found


def _read_relation(data: bytes, message: int) -> tuple[int, Relation]:
    def text(at: int) -> tuple[str, int]:
        end = data.find(0, at)
        if end < 0:
            _refuse("a name without its end", message)
        try:
            return data[at:end].decode(), end + 1
        except UnicodeDecodeError:
            _refuse("a name that is not UTF-8", message)

    if len(data) < 5:
        _refuse("a relation that is too short", message)
    schema, at = text(5)
    name, at = text(at)
    columns: list[str] = []
    count = int.from_bytes(data[at + 1 : at + 3])
    if len(data) < at + 3 or count > MOST_COLUMNS:
        _refuse(f"a relation without the number of its columns, up to {MOST_COLUMNS}", message)
    at += 3
    for _ in range(count):
        column, at = text(at + 1)  # after the flags
        columns.append(column)
        at += 8  # type and its modifier
    if at != len(data):
        _refuse("a relation of another size", message)
    # An empty schema is pg_catalog, as in the sources of PostgreSQL.
    return int.from_bytes(data[1:5]), Relation(schema or "pg_catalog", name, tuple(columns))


def _read_rows(cut: _Messages, message: Ints, is_update: Bools, relation: Relation) -> Rows:
    """The new rows of inserts and updates."""
    at, end = cut.start[message] + 5, cut.end[message]
    marker = cut.byte(at)
    has_old = is_update & np.isin(marker, np.frombuffer(b"KO", np.uint8))
    if has_old.any():  # the key or the row before; its values are not needed
        old = np.flatnonzero(has_old)
        *_, passed = _walk(cut, at[old] + 1, end[old], message[old], len(relation.columns))
        at = at.copy()
        at[old] = passed.start + passed.size
        _require(at < end, "an update without its new row", message)
        marker = cut.byte(at)
    _require(marker == ord("N"), "a change without its new row", message)
    *values, last = _walk(cut, at + 1, end, message, len(relation.columns))
    _require(last.start + last.size == end, "bytes after a row", message)
    for column in values:
        _require(is_update | ~column.is_unchanged, "an inserted row without a value", message)
    return Rows(relation, message, is_update, tuple(values))


def _walk(cut: _Messages, at: Ints, end: Ints, message: Ints, columns: int) -> Iterator[Values]:
    """The values of the columns of rows, and finally where the rows end, as values without bytes."""
    _require(at + 2 <= end, "a row without the number of its columns", message)
    _require(cut.number(at, 2) == columns, "a row with another number of columns", message)
    at = at + 2
    for _ in range(columns):
        _require(at < end, "a row that ends too early", message)
        letter = cut.byte(at)
        is_text, is_null, is_unchanged = (letter == ord(one) for one in "tnu")
        _require(is_text | is_null | is_unchanged, "a value that is not text", message)
        at = at + 1
        size = np.zeros(len(at), np.int64)
        with_size = np.flatnonzero(is_text)
        _require(
            at[with_size] + 4 <= end[with_size], "a value without its size", message[with_size]
        )
        size[with_size] = cut.number(at[with_size], 4)
        at = at + 4 * is_text
        _require(at + size <= end, "a value that ends after its message", message)
        yield Values(at, size, ~is_text, is_unchanged)
        at = at + size
    nothing = np.zeros(len(at), np.bool_)
    yield Values(at, np.zeros(len(at), np.int64), nothing, nothing)
