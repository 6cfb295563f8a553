"""What a table's changes pass on their way: databases, Connect with Debezium's connectors, a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.debezium.worker import BROKER, MARIADB, Worker, jars, of_mariadb, of_postgres, serving
from tests.kafka import broker as kafka
from tests.kafka.broker import Broker, free_port
from tests.servers import mariadb, postgres

LOCALHOST = "127.0.0.1"


@dataclass
class Database:
    """A database of which connectors read the log.

    Parameters
    ----------
    connector : "postgresql" or "mariadb"
    server : Server
        Of `tests.servers`.
    port : int
    broker : Broker
        To which its connectors write.
    """

    connector: str
    server: Any
    port: int
    broker: Broker
    client: Any = None

    @property
    def schema(self) -> str:
        """The part of a topic's name between that of the connector and that of the table."""
        return "public" if self.connector == "postgresql" else "test"

    def topic(self, prefix: str, table: str) -> str:
        """The topic of a table."""
        return f"{prefix}.{self.schema}.{table}"

    def execute(self, *statements: str) -> None:
        """Run statements, each committed by itself unless they begin a transaction."""
        for statement in statements:
            self._cursor().execute(statement)

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        cursor = self._cursor()
        cursor.execute(query)
        return list(cursor.fetchall())

    def close(self) -> None:
        """Close the connection."""
        if self.client is not None:
            self.client.close()
            self.client = None

    def restart(self) -> None:
        """Kill its processes, and start it on its data."""
        self.close()
        if self.connector == "postgresql":
            self.server.kill(everything=True)
        else:
            self.server.kill()
        self.server.start()

    def settings(self, prefix: str, **further: Any) -> dict[str, Any]:
        """The configuration of a connector, whose topics have a prefix."""
        if self.connector == "postgresql":
            return of_postgres(self.port, prefix, **further)
        return of_mariadb(self.port, prefix, self.broker, **further)

    def _cursor(self) -> Any:
        if self.client is None:
            if self.connector == "postgresql":
                self.client = psycopg.connect(self.server.where, autocommit=True)
                self.client.execute("SET intervalstyle = 'iso_8601'")
            else:
                self.client = self.server.connect(charset="utf8mb4")
                self.client.cursor().execute("SET time_zone = '+00:00', sql_mode = ''")
        return self.client.cursor()


@dataclass
class Systems:
    """All of them."""

    broker: Broker
    databases: dict[str, Database]
    worker: Worker


def is_installed() -> bool:
    """Whether all of them can be started."""
    programs = (postgres.programs(), mariadb.program(), kafka.jars("broker"), jars())
    return all(programs)


@contextmanager
def running() -> Iterator[Systems]:
    """Start a broker, both databases and a worker, yield them, and stop them."""
    with ExitStack() as stack:
        broker = stack.enter_context(kafka.running(settings=BROKER))
        ports = [free_port(), free_port()]
        programs, program = postgres.programs(), mariadb.program()
        assert programs is not None
        assert program is not None
        first = postgres.serving(
            programs,
            listen_addresses=LOCALHOST,
            port=str(ports[0]),
            max_wal_senders="30",
            max_replication_slots="30",
        )
        options = [*MARIADB, f"--port={ports[1]}", f"--bind-address={LOCALHOST}"]
        second = mariadb.running(program, *options)
        servers = {"postgresql": first, "mariadb": second}
        databases = {
            name: Database(name, stack.enter_context(server), port, broker)
            for (name, server), port in zip(servers.items(), ports, strict=True)
        }
        for database in databases.values():
            stack.callback(database.close)
        yield Systems(broker, databases, stack.enter_context(serving(broker)))
