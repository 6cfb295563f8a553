"""Decode the messages of PostgreSQL's plugin `pgoutput` as changes.

The messages are described at https://www.postgresql.org/docs/15/protocol-logicalrep-message-formats.html.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE, TRUNCATE

Row = dict[str, Any]

_EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_UNAVAILABLE = object()
_READERS: dict[int, Callable[[str], Any]] = {
    16: lambda text: text == "t",
    20: int,
    25: str,
    1184: dt.datetime.fromisoformat,
    1700: Decimal,
}
"""Parsers of values in text form, by the object identifier of their type."""


@dataclass
class Message:
    """The bytes of a message, and the position of the next part."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def letter(self) -> str:
        return self.take(1).decode()

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), signed=True)

    def text(self) -> str:
        found = self.take(self.data.index(0, self.at) - self.at).decode()
        self.at += 1
        return found


@dataclass(frozen=True)
class Relation:
    """A table, as it was when the row was changed."""

    name: str
    columns: list[tuple[str, int]]

    @staticmethod
    def of(message: Message) -> Relation:
        _, name, _ = message.text(), message.text(), message.letter()
        columns = []
        for _ in range(message.number(2)):
            message.take(1)
            columns.append((message.text(), message.number(4)))
            message.take(4)
        return Relation(name, columns)

    def image(self, message: Message) -> Row:
        count, row = message.number(2), {}
        assert count == len(self.columns)
        for name, oid in self.columns:
            match message.letter():
                case "n":
                    row[name] = None
                case "u":  # a large value that did not change
                    row[name] = _UNAVAILABLE
                case "t":
                    row[name] = _READERS[oid](message.take(message.number(4)).decode())
                case other:
                    raise ValueError(other)
        return row


def changes_of(messages: Iterable[tuple[int, bytes]], *, key: str) -> Iterator[Row]:
    """The changes of a log, from its positions and messages, in the order of commits.

    A change has two sequences: `commit_lsn` and `position`, that of its transaction and its own in it;
    and `lsn`, where it was written, maybe before changes of transactions that committed earlier.
    """
    relations: dict[int, Relation] = {}
    transaction: Row = {}
    for lsn, data in messages:
        message = Message(data)
        match message.letter():
            case "B":
                commit, micros = message.number(8), message.number(8)
                at = _EPOCH + dt.timedelta(microseconds=micros)
                transaction = {"commit_lsn": commit, "position": 0, "_changed_at": at}
            case "R":
                number = message.number(4)
                relations[number] = Relation.of(message)
            case "I" | "U" | "D":
                relation = relations[message.number(4)]
                transaction["position"] += 1
                sequence = {"relation": relation.name, **transaction, "lsn": lsn}
                for change_type, row in _images(relation, message, key):
                    missing = [name for name, value in row.items() if value is _UNAVAILABLE]
                    values = row | dict.fromkeys(missing)
                    change = {"_change_type": change_type, "_unavailable": missing}
                    yield {**sequence, **values, **change}
            case "T":
                count, _ = message.number(4), message.take(1)  # flags: cascade, restart identity
                transaction["position"] += 1
                for number in [message.number(4) for _ in range(count)]:
                    sequence = {"relation": relations[number].name, **transaction, "lsn": lsn}
                    yield {**sequence, "_change_type": TRUNCATE, "_unavailable": []}
            case "C" | "Y" | "O":
                pass  # the end of a transaction; a type; the origin of a transaction
            case other:
                raise ValueError(other)


def _images(relation: Relation, message: Message, key: str) -> Iterator[tuple[str, Row]]:
    old: Row | None = None
    image = message.letter()
    if image != "N":
        old, is_whole = relation.image(message), image == "O"
        if message.at == len(message.data):
            yield DELETE, old
            return
        message.take(1)
    row = relation.image(message)
    if old is None:
        yield INSERT if message.data[:1] == b"I" else POSTIMAGE, row
        return
    if is_whole:  # the replica identity is FULL: it has the values that are not sent again
        row = {name: old[name] if value is _UNAVAILABLE else value for name, value in row.items()}
    is_moved = old[key] != row[key]
    if is_moved or is_whole:
        yield DELETE if is_moved else PREIMAGE, old
    yield INSERT if is_moved else POSTIMAGE, row
