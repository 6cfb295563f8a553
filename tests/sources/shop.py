"""A database with an outbox table, and transactions that write to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql as text

from streamops.sources.core.outbox import COLUMNS, Outbox, Range
from streamops.sources.core.status import Names
from streamops.sources.postgres_log import PostgresLog

TABLE = """
CREATE TABLE outbox (
    id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb
)
"""
COLUMN_LIST = "(id, aggregatetype, aggregateid, type, payload)"
_NUMBERS = itertools.count()


@dataclass
class Shop:
    """A database: its connection string, a connection, and the ids of committed events in order."""

    where: str
    connection: psycopg.Connection[Any]
    slot: str
    committed: list[str] = field(default_factory=list)
    opened: list[PostgresLog] = field(default_factory=list)
    """Logs to close at the end."""

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.where)

    def insert(self, *ids: str, payload: str | None = "{}") -> None:
        """Insert events, in a transaction."""
        with self.connection.transaction():
            for id_ in ids:
                insert(self.connection, id_, payload)
        self.committed += ids

    def names(self, **changes: Any) -> Names:
        outbox = {"schema": "public", "table": "outbox", "columns": COLUMNS}
        publication = changes.pop("publication", "shop")
        return Names(
            outbox=Outbox(**{**outbox, **changes}), publication=publication, slot=self.slot
        )

    def log(self, **changes: Any) -> PostgresLog:
        return self.closing(PostgresLog(self.where, self.names(**changes)))

    def closing(self, log: PostgresLog) -> PostgresLog:
        self.opened.append(log)
        return log

    def created(self, **changes: Any) -> PostgresLog:
        """The log, whose publication and slot were created."""
        log = self.log(**changes)
        log.create_missing()
        return log


def insert(connection: psycopg.Connection[Any], id_: str, payload: str | None = "{}") -> None:
    values = (id_, "order", "7", "placed", payload)
    connection.execute(f"INSERT INTO outbox {COLUMN_LIST} VALUES (%s, %s, %s, %s, %s)", values)


@contextmanager
def shop(postgres: str, table: str | None = TABLE) -> Iterator[Shop]:
    """Create a database, and drop it with its slots."""
    number = next(_NUMBERS)
    name = f"shop_{number}"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(text.SQL("CREATE DATABASE {}").format(text.Identifier(name)))
    where = postgres.replace("dbname=postgres", f"dbname={name}")
    found = Shop(where, psycopg.connect(where, autocommit=True), name)
    try:
        if table is not None:
            found.connection.execute(table)
        yield found
    finally:
        found.connection.close()
        for log in found.opened:
            log.close()
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = current_database()"
            )
        with psycopg.connect(postgres, autocommit=True) as server:
            drop = text.SQL("DROP DATABASE {} WITH (FORCE)")
            server.execute(drop.format(text.Identifier(name)))


def read(log: PostgresLog, start: int = 0, end: int = (1 << 63) - 1) -> list[dict[str, Any]]:
    """The events that the slot has."""
    return [row for events, _ in log.read(Range(start, end)) for row in events.to_pylist()]


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]
