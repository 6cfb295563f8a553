"""The targets on servers, whose files cannot be copied: each with the steps at which its driver crashes.

To add a sink: a function that returns its `Server`, and an entry in `SERVERS`.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import dict_row

from streamops import sinks
from streamops.sinks.kafka import KafkaSink
from streamops.sinks.postgres import PostgresSink
from streamops.sinks.routing import SideOutputs
from streamops.sinks.sink import BatchWriter, Sink
from tests.crashes import checkpoints
from tests.crashes.targets import Rows, divide, pairs, undivided
from tests.kafka.broker import Broker


class Step(NamedTuple):
    """Where an exception is raised: before or after a function, by its owner and its name.

    Parameters
    ----------
    stage : str
        What the crash interrupts.
    owner, function, when
        The function, and "before" or "after".
    committed : int
        How many parts of the target have the micro-batch then.
    call : int
        Which call of the function in a run of the query.
    damage : callable, optional
        What the crash does to the checkpoint: from its folder, and the number of the micro-batch.
    """

    stage: str
    owner: Any
    function: str
    when: str
    committed: int = 0
    call: int = 1
    damage: Callable[[Path, int], bool] | None = None


class Part(NamedTuple):
    """A new sink, as of a driver that has just started; what a reader finds: operator and row."""

    sink: Callable[[], Sink]
    rows: Callable[[], Rows]


def _only(sinks: Sequence[Sink]) -> BatchWriter:
    (sink,) = sinks
    return sink


@dataclass(frozen=True)
class Server:
    """A target on a server.

    Parameters
    ----------
    parts : sequence of Part
        In the order in which they are written.
    steps : sequence of Step
        In the order in which a micro-batch passes them.
    writer : callable
        What writes a micro-batch to the sinks of all parts.
    """

    parts: Sequence[Part]
    steps: Sequence[Step]
    writer: Callable[[Sequence[Sink]], BatchWriter] = _only

    def rows(self) -> Rows:
        """What a reader finds in all parts."""
        found, *others = [part.rows() for part in self.parts]
        if not others:
            return found
        second, rejected = others
        assert Counter(found) == Counter(second)
        return [*found, *undivided(rejected)]


def steps_of(
    writer: type[BatchWriter], sink: type[Sink], own: Sequence[Step], parts: int = 1
) -> list[Step]:
    """The steps of every sink, and those of its own until it returns."""
    return [
        Step("offset written", writer, "_deliver", "before"),
        Step("torn offset", writer, "_deliver", "before", damage=checkpoints.tear_offset),
        Step("state written, sink not", sink, "_commit", "before"),
        Step("torn state", sink, "_commit", "before", damage=checkpoints.tear_state),
        *own,
        Step("sink committed, batch not", writer, "_deliver", "after", parts),
        Step(
            "torn commit of the batch",
            writer,
            "_deliver",
            "after",
            parts,
            1,
            checkpoints.tear_commit,
        ),
    ]


def _url(where: str) -> str:
    return f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"


def _table(url: str, name: str, key: str | None) -> Part:
    """A table of PostgreSQL."""

    def rows() -> Rows:
        with psycopg.connect(url) as connection:
            if connection.execute("SELECT to_regclass(%s)", (name,)).fetchone() == (None,):
                return []
            cursor = connection.cursor(row_factory=dict_row)
            return pairs(cursor.execute(f"SELECT * FROM {name}".encode()).fetchall())

    return Part(lambda: sinks.postgres(url, name, key=key), rows)


def postgres(where: str, table: str, key: str | None) -> Server:
    """A table of the PostgreSQL server with this connection string."""
    driver = importlib.import_module("adbc_driver_manager.dbapi")
    own = [
        Step("torn sink write: staged", PostgresSink, "_apply", "before"),
        Step("torn sink write: applied", PostgresSink, "_apply", "after"),
        Step("sink not committed", driver.Connection, "commit", "before"),
        Step("sink committed, not returned", driver.Connection, "commit", "after", 1),
    ]
    part = _table(_url(where), table, key)
    return Server([part], steps_of(PostgresSink, PostgresSink, own))


def side_outputs(where: str, table: str, key: str | None) -> Server:
    """Results in two tables of PostgreSQL, and side output in a third one."""
    own = [
        Step("torn sink write: one of three sinks", PostgresSink, "_deliver", "after", 1, 1),
        Step("sink not committed: two of three sinks", PostgresSink, "_deliver", "after", 2, 2),
    ]
    parts = [_table(_url(where), f"{table}_{number}", key) for number in range(3)]
    return Server(parts, steps_of(SideOutputs, PostgresSink, own, len(parts)), divide)


def kafka(broker: Broker, table: str, key: str | None) -> Server:
    """A topic of this broker."""
    writer = importlib.import_module("streamops.sinks.kafka_writer").Writer
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
        Step("sink committed, not returned", writer, "commit", "after", 1),
    ]
    options: Any = {"servers": broker.bootstrap, "key": key, "ledger": name}
    part = Part(lambda: sinks.kafka(table, **options), rows)
    return Server([part], steps_of(KafkaSink, KafkaSink, own))


SERVERS: dict[str, tuple[str, Callable[[Any, str, str | None], Server]]] = {
    "postgres": ("postgres", postgres),
    "kafka": ("kafka", kafka),
    "side_outputs": ("postgres", side_outputs),
}
"""A fixture; and from what it returns, the name of the target, and its key: the server."""
