"""Write messages of the plugin `pgoutput`, as in the documentation of PostgreSQL."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streamops.sources.core.outbox import COLUMNS, Outbox

NUMBER = 16_384
EPOCH = 946_684_800_000_000
TABLE = ("public", "outbox")
NAMES = tuple(COLUMNS.values())
OUTBOX = Outbox(schema="public", table="outbox", columns=COLUMNS)
UNCHANGED = object()

Row = Sequence[Any]


def begin(lsn: int, micros: int = EPOCH) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, micros - EPOCH, 700)


def commit(lsn: int, end: int, micros: int = EPOCH) -> bytes:
    return b"C\0" + struct.pack(">QQq", lsn, end, micros - EPOCH)


def relation(
    names: Sequence[str] = NAMES, table: tuple[str, str] = TABLE, number: int = NUMBER
) -> bytes:
    header = b"".join(part.encode() + b"\0" for part in table) + b"d"
    columns = [b"\1" + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name in names]
    return (
        b"R"
        + struct.pack(">I", number)
        + header
        + struct.pack(">H", len(names))
        + b"".join(columns)
    )


def row(values: Row) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(map(_value, values))


def _value(value: Any) -> bytes:
    if value is None:
        return b"n"
    if value is UNCHANGED:
        return b"u"
    data = value if isinstance(value, bytes) else value.encode()
    return b"t" + struct.pack(">I", len(data)) + data


def insert(values: Row, number: int = NUMBER) -> bytes:
    return b"I" + struct.pack(">I", number) + b"N" + row(values)


def update(
    values: Row, old: Row | None = None, identity: bytes = b"K", number: int = NUMBER
) -> bytes:
    before = b"" if old is None else identity + row(old)
    return b"U" + struct.pack(">I", number) + before + b"N" + row(values)


def delete(values: Row, number: int = NUMBER) -> bytes:
    return b"D" + struct.pack(">I", number) + b"K" + row(values)


def truncate(number: int = NUMBER) -> bytes:
    return b"T" + struct.pack(">IBI", 1, 0, number)


def origin() -> bytes:
    return b"O" + struct.pack(">Q", 5) + b"elsewhere\0"


def data_type() -> bytes:
    return b"Y" + struct.pack(">I", 9_999) + b"public\0mood\0"


@dataclass
class Log:
    """A log, with the position of each transaction, and the rows that are expected from it."""

    messages: list[bytes] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    """The position of each commit, and the one after it."""

    def add(self, changes: Sequence[bytes | Row], *, gap: int = 10) -> Log:
        """Add a transaction: a sequence of values is an inserted event, bytes are a message."""
        lsn = (self.ends[-1][1] if self.ends else 100) + gap
        micros = EPOCH + lsn * 1_000
        events = [change for change in changes if not isinstance(change, bytes)]
        self.messages.append(begin(lsn, micros))
        self.messages += [c if isinstance(c, bytes) else insert(c) for c in changes]
        self.messages.append(commit(lsn, lsn + 5, micros))
        self.ends.append((lsn, lsn + 5))
        for position, values in enumerate(events):
            event = dict(zip(COLUMNS, values, strict=True))
            self.rows.append({**event, "_lsn": lsn, "_position": position})
        return self
