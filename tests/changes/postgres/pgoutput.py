"""What PostgreSQL's own plugin `pgoutput` says of its log, as changes.

The messages are described at https://www.postgresql.org/docs/15/protocol-logicalrep-message-formats.html.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE

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
"""How the text of a value is read, by the number of its type in the catalogue."""


@dataclass
class Message:
    """The bytes of a message, of which parts are taken."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def word(self) -> str:
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
        _, name, _ = message.text(), message.text(), message.word()
        columns = []
        for _ in range(message.number(2)):
            message.take(1)
            columns.append((message.text(), message.number(4)))
            message.take(4)
        return Relation(name, columns)

    def image(self, message: Message) -> Row:
        count, row = message.number(2), {}
        assert count == len(self.columns)
        for name, kind in self.columns:
            match message.word():
                case "n":
                    row[name] = None
                case "u":  # a large value that was not touched
                    row[name] = _UNAVAILABLE
                case "t":
                    row[name] = _READERS[kind](message.take(message.number(4)).decode())
                case other:
                    raise ValueError(other)
        return row


def changes_of(said: Iterable[tuple[int, bytes]], *, key: str) -> Iterator[Row]:
    """The changes of a log, given places in it and what is said there, in the order of commits.

    Two places are told of each: `commit_lsn` and `position`, that of its transaction and its own
    in it; and `lsn`, where it was written, before others of transactions that committed earlier.
    """
    relations: dict[int, Relation] = {}
    transaction: Row = {}
    for lsn, data in said:
        message = Message(data)
        match message.word():
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
                place = {"relation": relation.name, **transaction, "lsn": lsn}
                for word, row in _images(relation, message, key):
                    lacks = [name for name, value in row.items() if value is _UNAVAILABLE]
                    values = row | dict.fromkeys(lacks)
                    yield {**place, **values, "_change_type": word, "_unavailable": lacks}
            case "C" | "Y" | "O":
                pass  # the end of a transaction; a type; whence a transaction came
            case other:  # a truncate: no row tells which rows there were
                raise ValueError(other)


def _images(relation: Relation, message: Message, key: str) -> Iterator[tuple[str, Row]]:
    old: Row | None = None
    what = message.word()
    if what != "N":
        old, is_whole = relation.image(message), what == "O"
        if message.at == len(message.data):
            yield DELETE, old
            return
        message.take(1)
    row = relation.image(message)
    if old is None:
        yield INSERT if message.data[:1] == b"I" else POSTIMAGE, row
        return
    if is_whole:  # the table's replica identity is FULL: what is not sent anew is in it
        row = {name: old[name] if each is _UNAVAILABLE else each for name, each in row.items()}
    is_moved = old[key] != row[key]
    if is_moved or is_whole:
        yield DELETE if is_moved else PREIMAGE, old
    yield INSERT if is_moved else POSTIMAGE, row
