"""Random histories of tables, captured by Debezium's connectors while everything is killed: the mirror is the table.

    python -m tests.debezium.histories --count 1000
    python -m tests.debezium.histories --first 400    # continues with this history

A round has many tables in a PostgreSQL and a MariaDB server. Each has a history of its own: a number, from
which all of its statements follow. Meanwhile a query reads the topics. Connect, the broker, both servers and the
query are killed, and started again. In the end every row of every table is compared, value by value.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from streamops import changes
from streamops.testing import replay
from tests.debezium.mirror import Mirror
from tests.debezium.systems import Database, Systems, running

PER_ROUND = 50
SCHEMA = "id bigint, n bigint, t string, u string, d decimal(38,5), s string, b binary, x bigint, y string"
"""All columns that tables have at some time; `u` is the later name of `t`."""
MODES = {
    "decimal_handling_mode": "string",
    "time_precision_mode": "isostring",
    "event_converting_failure_handling_mode": "fail",
}
_COLUMNS = {
    "postgresql": "n int, t text, d numeric(12,3), s timestamptz, b bytea",
    "mariadb": "n int, t longtext, d decimal(12,3), s timestamp(6) NULL, b blob",
}


@dataclass
class History:
    """A table, and the statements that change it.

    Parameters
    ----------
    number : int
        From which they all follow.
    database : Database
    """

    number: int
    database: Database
    chance: random.Random = field(init=False)
    columns: dict[str, str] = field(init=False)
    identity: str = "default"
    wide_key: bool = False
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Create the table, with rows for the snapshot."""
        self.chance = random.Random(self.number)
        self.columns = {"n": "n", "t": "t", "d": "d", "s": "s", "b": "b"}
        ddl = _COLUMNS[self.database.connector]
        self.database.execute(
            f"CREATE TABLE {self.table} (id int PRIMARY KEY, k int DEFAULT 0, {ddl})"
        )
        if self.is_postgres:
            for name in "tb":
                self._run(f"ALTER TABLE {self.table} ALTER {name} SET STORAGE EXTERNAL")
            if self.chance.random() < 0.4:
                self.identity = "full"
                self._run(f"ALTER TABLE {self.table} REPLICA IDENTITY FULL")
        for _ in range(self.chance.randrange(4)):
            self._insert()

    @property
    def table(self) -> str:
        """Its name."""
        return f"h{self.number}"

    @property
    def is_postgres(self) -> bool:
        return self.database.connector == "postgresql"

    def step(self) -> None:
        """Change the table once: a statement, a transaction, or its schema."""
        chosen = self.chance.choices(
            ["statement", "transaction", "truncate", "schema"], [10, 6, 1, 1.5]
        )[0]
        if chosen == "statement":
            self._statement()
        elif chosen == "transaction":
            self._transaction()
        elif chosen == "truncate":
            self._run(f"TRUNCATE TABLE {self.table}")
            self.done["truncate"] += 1
        else:
            self._change_schema()

    def query(self) -> str:
        """The rows of the table in the form of the query, with the columns that it has."""
        texts = "::text" if self.is_postgres else ""
        parts = []
        for name, now in self.columns.items():
            part = f"encode({now}, 'hex')" if self.is_postgres and name == "b" else f"{now}{texts}"
            parts.append(f"HEX({now})" if not self.is_postgres and name == "b" else part)
        return f"SELECT id, {', '.join(parts)} FROM {self.table} ORDER BY id"

    def _run(self, statement: str) -> None:
        self.database.execute(statement)

    def _ids(self) -> list[int]:
        return [row[0] for row in self.database.fetch(f"SELECT id FROM {self.table} ORDER BY id")]

    def _transaction(self) -> None:
        self._run("BEGIN")
        for number in range(self.chance.randrange(1, 5)):
            if self.chance.random() < 0.2:
                self._run(f"SAVEPOINT p{number}")
                self._statement()
                self._run(f"ROLLBACK TO SAVEPOINT p{number}")
                self.done["rollback to a savepoint"] += 1
            self._statement()
        ends = self.chance.random() < 0.7
        self._run("COMMIT" if ends else "ROLLBACK")
        self.done["commit" if ends else "rollback"] += 1

    def _statement(self) -> None:
        ids = self._ids()
        chosen = self.chance.choices(
            ["insert", "update", "all", "delete", "move"], [4, 5, 1, 2, 2]
        )[0]
        if chosen == "insert" or not ids:
            self._insert()
            return
        number = self.chance.choice(ids)
        where = f"WHERE id = {number}"
        if chosen == "delete":
            self._run(f"DELETE FROM {self.table} {where}")
        elif chosen == "move":
            self._move(number, ids)
        else:
            names = [name for name in self.columns if self.chance.random() < 0.4] or ["n"]
            if chosen == "all":
                where, names = "", [name for name in names if name not in "tb"] or ["n"]
            self._run(f"UPDATE {self.table} SET {self._assigned(names)} {where}")
        self.done[chosen if chosen != "all" else "update of all rows"] += 1

    def _move(self, number: int, ids: list[int]) -> None:
        """Change the key of a row to one that is free."""
        free = [other for other in range(12) if other not in ids]
        if not free:
            return
        # With its default identity PostgreSQL does not send large values with a new key.
        names = [*"tby"] if self.is_postgres and self.identity == "default" else ["n"]
        names = [name for name in names if name in self.columns]
        sets = f"id = {self.chance.choice(free)}, {self._assigned(names)}".removesuffix(", ")
        self._run(f"UPDATE {self.table} SET {sets} WHERE id = {number}")

    def _insert(self) -> None:
        free = sorted(set(range(12)) - set(self._ids()))
        if not free:
            return
        names = [name for name in self.columns if self.chance.random() < 0.8] or ["n"]
        row = ", ".join([str(self.chance.choice(free)), *map(self._value, names)])
        listed = ", ".join(["id", *(self.columns[name] for name in names)])
        self._run(f"INSERT INTO {self.table} ({listed}) VALUES ({row})")
        self.done["insert"] += 1

    def _assigned(self, names: list[str]) -> str:
        return ", ".join(f"{self.columns[name]} = {self._value(name)}" for name in names)

    def _value(self, name: str) -> str:
        chance = self.chance
        if chance.random() < 0.1:
            return "NULL"
        match name:
            case "n":
                return str(chance.randrange(-(2**31), 2**31))
            case "x":
                return str(chance.randrange(-(2**63), 2**63))
            case "d":
                return f"{chance.randrange(-(10**12), 10**12)}e-3"
            case "s":
                instant = dt.datetime(2000, 1, 1) + dt.timedelta(  # noqa: DTZ001 (UTC)
                    microseconds=chance.randrange(10**15)
                )
                return f"'{instant}{'+00' if self.is_postgres else ''}'"
            case "b":
                text = chance.randbytes(chance.choice([0, 1, 5, 3_000])).hex()
                return f"'\\x{text}'" if self.is_postgres else f"x'{text}'"
        if chance.random() < 0.3:
            self.done["large text"] += 1
            return "'" + chance.randbytes(chance.randrange(1_500, 3_000)).hex() + "'"
        return chance.choice(["''", "'a'", "'{\"a\": 1}'", "'[1]'", "'é😀\"'", "'1234'", "'null'"])

    def _change_schema(self) -> None:
        """Add, remove or rename a column, widen types, or change the key."""
        table = self.table
        chosen = self.chance.choice(["add", "drop", "rename", "widen", "key"])
        match chosen:
            case "add":
                name = self.chance.choice("xy")
                if name in self.done:  # a name means one column
                    return
                self.done[name] += 1
                types = {"x": "bigint", "y": "text"}
                self._run(f"ALTER TABLE {table} ADD COLUMN {name} {types[name]}")
                self.columns[name] = name
            case "drop":
                others = [name for name in self.columns if name != "n"]
                if not others:
                    return
                name = self.chance.choice(others)
                self._run(f"ALTER TABLE {table} DROP COLUMN {self.columns.pop(name)}")
            case "rename":
                # An unavailable value of the new name was sent under the previous one.
                sends_all = not self.is_postgres or self.identity == "full"
                if self.columns.get("t") != "t" or not sends_all:
                    return
                self._run(f"ALTER TABLE {table} RENAME COLUMN t TO u")
                self.columns["t"] = "u"
            case "widen":
                types = {"n": "bigint", "d": "numeric(20,5)"}
                change = "ALTER COLUMN {} TYPE {}" if self.is_postgres else "MODIFY COLUMN {} {}"
                for name in types.keys() & self.columns.keys():
                    self._run(f"ALTER TABLE {table} {change.format(name, types[name])}")
            case "key":
                drop = f"DROP CONSTRAINT {table}_pkey" if self.is_postgres else "DROP PRIMARY KEY"
                key = "id" if self.wide_key else "id, k"
                self._run(f"ALTER TABLE {table} {drop}, ADD PRIMARY KEY ({key})")
                self.wide_key = not self.wide_key
        self.done[f"schema: {chosen}"] += 1


def compare(history: History, arrived: pa.Table, *, shuffled: bool) -> list[Any]:
    """Differences of the table and its mirror, whose changes arrive in the order of the topic, or in another."""
    arrived = arrived.sort_by([("partition", "ascending"), ("offset", "ascending")])
    arrived = arrived.drop(["topic", "partition", "offset"])
    chance = random.Random(history.number)
    if shuffled:
        order = list(range(arrived.num_rows))
        chance.shuffle(order)
        arrived = arrived.take(pa.array(order, pa.int64()))
    operator = changes.apply("id", sequence="_sequence", time="_changed_at", horizon="7 days")
    size = chance.randrange(3, 40)
    batches = [arrived.slice(start, size) for start in range(0, arrived.num_rows, size)]
    mirror = Mirror("id")
    for result in replay(operator, batches, schema=arrived.schema, restart=True):
        mirror.add(result.rows)
    found = {key: _row(history, row) for key, row in mirror.rows.items()}
    expected = {number: tuple(row) for number, *row in history.database.fetch(history.query())}
    expected = {number: _parsed(history, row) for number, row in expected.items()}
    differing = [
        (history.table, key, found.get(key), expected.get(key))
        for key in found.keys() | expected.keys()
        if found.get(key) != expected.get(key)
    ]
    return differing + [(history.table, row["rejected"]) for row in mirror.rejected]


def _row(history: History, row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the mirror, in the columns that the table has."""
    result = []
    for name in history.columns:
        value = row[name]
        if name == "t" and history.columns["t"] == "u" and row["u"] is not None:
            value = row["u"]
        if name == "s" and value is not None:
            value = dt.datetime.fromisoformat(value).replace(tzinfo=None)
        result.append(value)
    return tuple(result)


def _parsed(history: History, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of the database, as values."""
    read: dict[str, Callable[[Any], Any]] = {
        "n": int,
        "x": int,
        "d": Decimal,
        "b": bytes.fromhex,
        "s": lambda text: dt.datetime.fromisoformat(str(text).removesuffix("+00")),
    }
    return tuple(
        None if value is None else read.get(name, str)(value)
        for name, value in zip(history.columns, row, strict=True)
    )


@dataclass
class Follower:
    """A process with a query that reads the topics."""

    folder: Path
    systems: Systems
    process: subprocess.Popen[bytes] | None = None

    def start(self, *, to_end: bool = False) -> None:
        """Start it, where the last one ended."""
        command = [sys.executable, "-m", "tests.debezium.follower", self.systems.broker.bootstrap]
        command += [str(self.folder), "to-end" if to_end else "on"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End it as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def finish(self) -> dict[str, pa.Table]:
        """What it has read in the end, by topic."""
        self.kill()
        self.start(to_end=True)
        assert self.process is not None
        if self.process.wait(300):
            raise RuntimeError((self.folder / "log").read_text()[-8_000:])
        # The log of the sink names the files of complete micro-batches.
        tables = [
            ds.dataset(path, format="parquet").to_table()
            for path in _committed(self.folder / "changes")
        ]
        table = pa.concat_tables(tables)
        return {
            topic: table.filter(pa.compute.equal(table["topic"], topic))
            for topic in table["topic"].unique().to_pylist()
        }


def _committed(folder: Path) -> list[str]:
    files: dict[str, None] = {}
    log = folder / "_spark_metadata"
    names = sorted(
        log.iterdir(),
        key=lambda path: int(path.name.split(".")[0] or -1) if path.name[0] != "." else -1,
    )
    for path in names:
        if path.name.startswith("."):
            continue
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            files[entry["path"].removeprefix("file://")] = None
    return list(files)


def run_round(first: int, count: int, steps: int) -> tuple[int, Counter[str], list[Any]]:
    """Play some histories; the number of messages, what was done, and all differences."""
    chance, done = random.Random(first), Counter[str]()
    with running() as systems, tempfile.TemporaryDirectory(prefix="streamops-follower-") as folder:
        databases = list(systems.databases.values())
        histories = [History(n, databases[n % 2]) for n in range(first, first + count)]
        prefixes = {}
        for database in databases:
            prefix = "pg" if database.connector == "postgresql" else "my"
            prefixes[database.connector] = prefix
            systems.worker.create(prefix, database.settings(prefix, **MODES, **_JSON))
            database.execute("CREATE TABLE ends (id int PRIMARY KEY)")
            _await_log(systems, database, prefix)
        follower = Follower(Path(folder), systems)
        follower.start()
        events = ["worker", "broker", "postgresql", "mariadb", "follower"]
        chance.shuffle(events)
        steps_of_kills = sorted(chance.sample(range(1, steps), min(len(events), steps - 1)))
        for step in range(steps):
            for history in histories:
                history.step()
            if step in steps_of_kills:
                event = events[steps_of_kills.index(step)]
                _kill(systems, follower, event)
                done[f"killed: {event}"] += 1
        for name, prefix in prefixes.items():
            systems.worker.await_running(prefix)
            _await_ends(systems, name, prefix)
        arrived = follower.finish()
        differing: list[Any] = []
        messages = _count_messages(systems, list(arrived))
        for history in histories:
            topic = history.database.topic(prefixes[history.database.connector], history.table)
            rows = arrived.get(topic, next(iter(arrived.values())).slice(0, 0))
            for shuffled in (False, True):
                differing += compare(history, rows, shuffled=shuffled)
            done += history.done
    return messages, done, differing


_JSON = {
    f"{part}_converter{end}": value
    for part in ("key", "value")
    for end, value in (
        ("", "org.apache.kafka.connect.json.JsonConverter"),
        ("_schemas_enable", "false"),
    )
}


def _count_messages(systems: Systems, topics: list[str]) -> int:
    """How many messages topics of one partition have."""
    from confluent_kafka import TopicPartition

    consumer = systems.broker.consumer()
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, 0))[1] for topic in topics]
    finally:
        consumer.close()
    return sum(ends)


def _kill(systems: Systems, follower: Follower, what: str) -> None:
    if what == "follower":
        follower.kill()
        follower.start()
    elif what == "worker":
        systems.worker.kill()
        systems.worker.start()
    elif what == "broker":
        systems.broker.kill()
        systems.broker.start()
    else:
        systems.databases[what].restart()


def _await_log(systems: Systems, database: Database, prefix: str) -> None:
    """Wait until a connector has read its snapshot, and reads the log.

    A snapshot that is interrupted begins again: rows that were deleted in between stay in the mirror.
    """
    topic, number, end = database.topic(prefix, "ends"), -1, time.monotonic() + 180
    while not any(b'"op":"c"' in (record.value() or b"") for record in _read(systems, topic)):
        assert time.monotonic() < end, "the connector reads no log"
        database.execute(f"INSERT INTO ends VALUES ({number})")
        number -= 1
        time.sleep(0.5)
    time.sleep(2)  # it stores its position twice per second


def _read(systems: Systems, topic: str) -> list[Any]:
    """The records of a topic, which may not be there yet."""
    with suppress(Exception):
        if topic in systems.broker.admin().list_topics(timeout=5).topics:
            return systems.broker.read(topic)
    return []


def _await_ends(systems: Systems, name: str, prefix: str) -> None:
    """Wait until all that was written is in the topics."""
    database = systems.databases[name]
    database.execute("INSERT INTO ends VALUES (1)")
    end, topic = time.monotonic() + 180, database.topic(prefix, "ends")
    while not any(b'"id":1' in (record.key() or b"") for record in _read(systems, topic)):
        if time.monotonic() > end:
            raise RuntimeError(systems.worker.log.read_text()[-8_000:])
        with suppress(OSError, RuntimeError):
            systems.worker.await_running(prefix)
        time.sleep(0.3)


def main() -> None:
    """Play histories in rounds, and print what was found after each."""
    parser = argparse.ArgumentParser(prog="python -m tests.debezium.histories")
    parser.add_argument("--count", type=int, default=1_000, help="the number after the last one")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--per-round", type=int, default=PER_ROUND)
    given = parser.parse_args()
    if given.first >= given.count:
        parser.error("--first must be below --count: it would play nothing")
    total, done, wrong = 0, Counter[str](), 0
    for first in range(given.first, given.count, given.per_round):
        begin = time.monotonic()
        number = min(given.per_round, given.count - first)
        messages, counted, differing = run_round(first, number, given.steps)
        total, done, wrong = total + messages, done + counted, wrong + len(differing)
        seconds = time.monotonic() - begin
        print(
            f"{first + number} histories: {total} messages, {wrong} differences, {seconds:.0f} s",
            flush=True,
        )
        for difference in differing[:20]:
            print("  ", str(difference)[:2_000], flush=True)
    print(", ".join(f"{n} {what}" for what, n in sorted(done.items())))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
