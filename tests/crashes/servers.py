"""The targets on servers, whose files cannot be copied: each with the steps at which its driver crashes.

To add a sink: a function that returns its `Server`, and an entry in `SERVERS`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import dict_row

from streamops import sinks
from streamops.sinks.kafka import KafkaSink
from streamops.sinks.postgres import PostgresSink
from streamops.sinks.sink import Sink
from tests.crashes.targets import Rows, pairs
from tests.kafka.broker import Broker


class Step(NamedTuple):
    """Where an exception is raised: before or after a function, by its owner and its name."""

    stage: str
    owner: Any
    function: str
    when: str
    is_committed: bool = False


@dataclass(frozen=True)
class Server:
    """A target on a server.

    Parameters
    ----------
    sink : callable
        A new sink, as of a driver that has just started.
    rows : callable
        What a reader finds: operator and row.
    steps : sequence of Step
        In the order in which a micro-batch passes them.
    """

    sink: Callable[[], Sink]
    rows: Callable[[], Rows]
    steps: Sequence[Step]


def steps_of(sink: type[Sink], own: Sequence[Step]) -> list[Step]:
    """The steps of every sink, and those of its own until it returns."""
    return [
        Step("offset written", sink, "_deliver", "before"),
        Step("state written, sink not", sink, "_commit", "before"),
        *own,
        Step("sink committed, batch not", sink, "_deliver", "after", is_committed=True),
    ]


def postgres(where: str, table: str, key: str | None) -> Server:
    """A table of the PostgreSQL server with this connection string."""
    driver = importlib.import_module("adbc_driver_manager.dbapi")
    module = importlib.import_module(PostgresSink.__module__)  # the name is that of the function
    url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"

    def rows() -> Rows:
        with psycopg.connect(url) as connection:
            if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
                return []
            cursor = connection.cursor(row_factory=dict_row)
            return pairs(cursor.execute(f"SELECT * FROM {table}".encode()).fetchall())

    own = [
        Step("torn sink write: staged", module, "_stage", "after"),
        Step("torn sink write: applied", PostgresSink, "_apply", "after"),
        Step("sink not committed", driver.Connection, "commit", "before"),
        Step("sink committed, not returned", driver.Connection, "commit", "after", True),
    ]
    return Server(lambda: sinks.postgres(url, table, key=key), rows, steps_of(PostgresSink, own))


def kafka(broker: Broker, table: str, key: str | None) -> Server:
    """A topic of this broker."""
    writer = importlib.import_module(KafkaSink.__module__)._Writer
    broker.create_topic(table)
    name = f"ledger-of-{table}"

    def rows() -> Rows:
        found: dict[Any, Any] = {}
        for number, record in enumerate(broker.read(table)):
            at = number if record.key() is None else record.key()
            if record.value() is None:
                del found[at]
            else:
                found[at] = json.loads(record.value())
        return pairs(found.values())

    own = [
        Step("torn sink write: staged", writer, "produce", "after"),
        Step("sink not committed", writer, "commit", "before"),
        Step("sink committed, not returned", writer, "commit", "after", True),
    ]
    options: Any = {"servers": broker.bootstrap, "key": key, "ledger": name}
    return Server(lambda: sinks.kafka(table, **options), rows, steps_of(KafkaSink, own))


SERVERS: dict[str, Callable[[Any, str, str | None], Server]] = {
    "postgres": postgres,
    "kafka": kafka,
}
"""From what the fixture of this name returns, the name of the target, and its key: the server."""
