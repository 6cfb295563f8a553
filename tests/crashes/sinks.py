"""Every step of every sink at which its driver can crash: ``python -m tests.crashes.sinks``.

A point is a sink, a form of rows, who writes them, a micro-batch and a step, before or after it. There the driver
crashes. The next run delivers the micro-batch again, at half of the points it crashes, too, and a third one delivers it and the
rest. Then the target must have each row once and the ledger the last micro-batch, and nothing may be left that
no commit has. Tasks are repeated and lose their receipts, as `Attempts` do.

The steps are the functions by which a sink changes files, a server or its ledger.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.sinks import (
    leftovers,
    postgres_staging,
    staging,
)
from streamops.sinks.core import delta_log
from streamops.sinks.core.delta_commit import Commit
from streamops.sinks.core.kafka_records import KEY, VALUE
from streamops.sinks.delta import DeltaSink
from streamops.sinks.iceberg import IcebergSink
from streamops.sinks.kafka import KafkaSink
from streamops.sinks.kafka_writer import Writer
from streamops.sinks.parquet_folder import Folder
from streamops.sinks.postgres import PostgresSink
from streamops.sinks.sqlalchemy import SqlalchemySink
from streamops.spark.identity import Identity
from tests.laws.sink_histories import FIXED, Crash, History, Step, comparable, crashing
from tests.laws.test_delta_sink_laws import STEPS_OF_TASKS as DELTA
from tests.laws.test_iceberg_sink_laws import STEPS as ICEBERG
from tests.laws.test_parquet_sink_laws import STEPS as PARQUET
from tests.sinks.attempts import Attempts, deliver


class Found(NamedTuple):
    """What a target has: its rows, and what no commit has."""

    rows: list[str]
    left: Iterable[Any] = ()


@dataclass
class Target:
    """A target of one history.

    Parameters
    ----------
    sink : function
        A sink, as of a process that has just started.
    find : function
        What the target has.
    """

    sink: Callable[..., Any]
    find: Callable[[], Found]


@dataclass(frozen=True)
class System:
    """A system that sinks write to.

    Parameters
    ----------
    steps : sequence of (owner, name)
        The functions that change it, and those that decide.
    open : context manager
        Yields a function from a history to a new target.
    forms : tuple of str
        What the sink takes.
    ways : tuple of str
        Who writes: "driver" or "tasks".
    has_key : bool
        Whether the target has one row per key, and not all rows.
    seeds : int
        In how many ways tasks are repeated.
    """

    steps: Sequence[Step]
    open: Any
    forms: tuple[str, ...] = tuple(FIXED)
    ways: tuple[str, ...] = ("driver", "tasks")
    has_key: bool = True
    seeds: int = 3


class Figures(NamedTuple):
    """What a program has counted."""

    points: int = 0
    lost: int = 0
    twice: int = 0
    left: int = 0


def names_of(history: History) -> list[str]:
    """The columns of the target."""
    return [name for name in history.batches[0].column_names if name != "_change_type"]


def as_rows(found: pa.Table, history: History) -> list[str]:
    """The rows of a table, in the order of its columns."""
    names = names_of(history)
    return comparable(tuple(row[name] for name in names) for row in found.to_pylist())


@contextmanager
def parquet() -> Iterator[Callable[[History], Target]]:
    """Folders in which each second manifest merges files."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamops.sinks.core.manifest.MERGED", 2)
        patch.setattr("streamops.sinks.parquet_folder._RETENTION", -60)
        numbers = itertools.count()

        def new(history: History) -> Target:
            path = f"{folder}/{next(numbers)}"

            def find() -> Found:
                table = sinks.read_parquet(path, check="content").to_table()
                rows = comparable(map(dict.values, table.to_pylist()))
                stored = Folder(path, None)
                manifests = filter(None, map(stored._read_if_any, stored._numbers()))
                listed = {file.path for manifest in manifests for file in manifest.files}
                files = {str(f.relative_to(path)) for f in Path(path, "_batches").rglob("*.*")}
                return Found(rows, [*files - listed, *Path(path, "_attempts").glob("*")])

            return Target(partial(sinks.parquet, path), find)

        yield new


@contextmanager
def delta() -> Iterator[Callable[[History], Target]]:
    """Partitioned tables."""
    deltalake = import_module("deltalake")
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()

        def new(history: History) -> Target:
            path = f"{folder}/{next(numbers)}"
            schema = history.batches[0].select(names_of(history)).schema
            deltalake.DeltaTable.create(path, schema, partition_by="k")

            def find() -> Found:
                table = deltalake.DeltaTable(path)
                read = delta_log.reader(path, None)
                commits = (read(version) for version in range(table.version() + 1))
                added = {unquote(a["add"]["path"]) for c in commits for a in c if "add" in a}
                files = {str(f.relative_to(path)) for f in Path(path).rglob("*.parquet")}
                staged = [f for f in Path(path, "_streamops").rglob("*") if f.is_file()]
                # deltalake writes the files of the driver. VACUUM removes them.
                others = {name for name in files - added if "/part-" in name.rpartition("/")[0]}
                return Found(
                    as_rows(pa.table(table.scan().read_all()), history), [*others, *staged]
                )

            return Target(partial(sinks.delta, path), find)

        yield new


@contextmanager
def iceberg() -> Iterator[Callable[[History], Target]]:
    """Tables of a catalog in SQLite."""
    load = import_module("pyiceberg.catalog").load_catalog
    with tempfile.TemporaryDirectory() as folder:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        load(**properties).create_namespace("db")
        numbers = itertools.count()

        def new(history: History) -> Target:
            name = f"db.t{next(numbers)}"

            def find() -> Found:
                table = load(**properties).load_table(name)
                files = (f.relative_to(folder) for f in Path(folder, *name.split(".")).rglob("*"))
                staged = [f for f in files if "streamops" in f.parts and f.suffix]
                return Found(as_rows(table.scan().to_arrow(), history), staged)

            return Target(partial(sinks.iceberg, properties, name), find)

        yield new


@contextmanager
def sqlite() -> Iterator[Callable[[History], Target]]:
    """Tables of a database."""
    sa = import_module("sqlalchemy")
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()

        def new(history: History) -> Target:
            url = f"sqlite:///{folder}/{next(numbers)}"

            def find() -> Found:
                engine = sa.create_engine(url)
                with engine.connect() as connection:
                    rows = connection.execute(sa.text("SELECT * FROM t")).all()
                    tables = sa.inspect(connection).get_table_names()
                engine.dispose()
                return Found(comparable(rows), [n for n in tables if "_staging" in n])

            return Target(partial(sinks.sqlalchemy, url, "t"), find)

        yield new


@contextmanager
def mariadb() -> Iterator[Callable[[History], Target]]:
    """Tables of a server."""
    module = import_module("tests.servers.mariadb")
    with module.running(module.program()) as server:
        numbers = itertools.count()

        def new(history: History) -> Target:
            name = f"table {next(numbers)}"

            def find() -> Found:
                with server.connect() as connection, connection.cursor() as cursor:
                    cursor.execute(f"SELECT * FROM `{name}`")
                    rows = comparable(cursor.fetchall())
                    cursor.execute("SHOW TABLES")
                    tables = [table for (table,) in cursor.fetchall()]
                return Found(rows, [t for t in tables if t.startswith(staging.prefix(name))])

            return Target(partial(sinks.sqlalchemy, server.url(), name), find)

        yield new


@contextmanager
def postgres() -> Iterator[Callable[[History], Target]]:
    """Tables of a server."""
    server, psycopg = import_module("tests.servers.postgres"), import_module("psycopg")
    with server.running(server.programs()) as where, psycopg.connect(where, autocommit=True) as own:
        url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"
        numbers = itertools.count()

        def new(history: History) -> Target:
            name = f"table {next(numbers)}"

            def find() -> Found:
                rows = comparable(own.execute(f'SELECT * FROM "{name}"'.encode()).fetchall())
                tables = own.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall()
                prefix = staging.prefix(name)
                return Found(rows, [table for (table,) in tables if table.startswith(prefix)])

            return Target(partial(sinks.postgres, url, name), find)

        yield new


@contextmanager
def kafka(atomic: Any) -> Iterator[Callable[[History], Target]]:
    """Topics of a broker, which get appended rows."""
    broker = import_module("tests.kafka.broker")
    with broker.running() as server, pytest.MonkeyPatch.context() as patch:
        # A driver that was killed does not end its transaction.
        patch.setattr(Writer, "close", lambda _: None)

        def new(history: History) -> Target:
            topic, ledger = server.create_topic(partitions=2), f"ledger-{uuid.uuid4().hex}"

            def find() -> Found:
                values = (json.loads(record.value()) for record in server.read(topic))
                return Found(comparable(tuple(value) for value in values))

            options = {"servers": server.bootstrap, "ledger": ledger, "atomic": atomic}
            return Target(partial(sinks.kafka, topic, **options), find)

        yield new


def as_records(rows: pa.Table) -> pa.Table:
    """Rows as the sink for Kafka projects them."""
    values = [json.dumps(list(row.values())) for row in rows.to_pylist()]
    keys = [json.dumps(row["k"]) for row in rows.to_pylist()]
    return rows.append_column(KEY, pa.array(keys)).append_column(VALUE, pa.array(values))


_SQL = import_module("pyiceberg.catalog.sql").SqlCatalog
SYSTEMS = {
    "Parquet": System(
        [
            *PARQUET,
            (Folder, "announce"),
            (Folder, "write_file"),
            (Folder, "_mark_newest"),
            (Folder, "clean_up"),
            (leftovers, "delete_folder"),
        ],
        parquet,
        ("append", "changes", "multiset"),
        has_key=False,
        seeds=12,
    ),
    "Delta": System(
        [
            *DELTA,
            (DeltaSink, "_fit"),
            (leftovers, "delete"),
            (leftovers, "delete_folder"),
            (Commit, "_merge"),
        ],
        delta,
    ),
    "Iceberg": System(
        [
            *ICEBERG,
            (IcebergSink, "_create"),
            (leftovers, "delete"),
            (leftovers, "delete_folder"),
            (_SQL, "commit_table"),
        ],
        iceberg,
    ),
    "SQLite": System(
        [
            (import_module("sqlalchemy").Connection, "execute"),
            (import_module("sqlalchemy").engine.default.DefaultDialect, "do_commit"),
            (SqlalchemySink, "_apply"),
        ],
        sqlite,
        ways=("driver",),
    ),
    "MariaDB": System(
        [
            (import_module("sqlalchemy").Connection, "execute"),
            (import_module("sqlalchemy").Connection, "commit"),
            (SqlalchemySink, "_apply"),
            (SqlalchemySink, "_clean_up"),
        ],
        mariadb,
        ways=("tasks",),
        seeds=1,
    ),
    "PostgreSQL": System(
        [
            (PostgresSink, "_foresee"),
            (PostgresSink, "_prepare"),
            (PostgresSink, "_apply"),
            (postgres_staging.Staged, "of_receipts"),
            (import_module("adbc_driver_manager.dbapi").Connection, "commit"),
            (import_module("adbc_driver_manager.dbapi").Cursor, "execute"),
            (PostgresSink, "_clean_up"),
        ],
        postgres,
    ),
    "Kafka": System(
        [
            (Writer, "begin"),
            (Writer, "produce"),
            (Writer, "finish"),
            (Writer, "commit"),
            (KafkaSink, "_start_producer"),
        ],
        partial(kafka, "batch"),
        ("append",),
        ("driver",),
        has_key=False,
    ),
    "Kafka, by partition": System(
        [
            (Writer, "begin"),
            (Writer, "produce"),
            (Writer, "finish"),
            (Writer, "commit"),
            (KafkaSink, "_start_producer"),
        ],
        partial(kafka, "partition"),
        ("append",),
        ("driver",),
        has_key=False,
    ),
}


def pass_points(
    system: System,
    new_target: Callable[[History], Target],
    history: History,
    way: str,
    seed: int,
) -> Figures:
    """Crash once at each step of each micro-batch."""
    points = lost = twice = left = 0
    given = history.batches
    if KafkaSink in {owner for owner, _ in system.steps}:
        given = [as_records(rows) for rows in given]

    def write(sink: Any, batch: int, run: int, seed: int = seed) -> None:
        identity = Identity("query", f"run {run}")
        if way == "tasks":
            deliver(sink, Attempts(given[batch], seed=seed), batch, identity)
        else:
            sink._deliver_rows(given[batch], batch, identity)

    for crashed in range(len(given)):
        for crash_at in itertools.count(1):
            target = new_target(history)
            new = partial(target.sink, **(history.options if system.has_key else {}))
            sink = new()
            for batch in range(crashed):
                write(sink, batch, 0)
            try:
                with crashing(system.steps, crash_at):
                    write(sink, crashed, 0)
                break
            except Crash:
                points += 1
            run = 1
            if crash_at % 2:
                with crashing(system.steps, 1 + (crash_at * 7 + seed) % 24):
                    try:
                        write(new(), crashed, run, seed + 1)
                    except Crash:
                        points += 1
                run = 2
            sink = new()
            for batch in range(crashed, len(given)):
                write(sink, batch, run)
            found, wanted = Counter(target.find().rows), Counter(expected_rows(system, history))
            lost += (wanted - found).total()
            twice += (found - wanted).total()
            left += len(list(target.find().left))
            entry = new().read_ledger()
            lost += entry is None or entry.batch != len(given) - 1
    return Figures(points, lost, twice, left)


def expected_rows(system: System, history: History) -> list[str]:
    """The rows that the target must have."""
    if not system.has_key:
        rows: Any = [tuple(row.values()) for b in history.batches for row in b.to_pylist()]
        return comparable(rows)
    plain = [
        tuple(None if isinstance(v, float) and math.isnan(v) else v for v in row)
        for row in history.expected
    ]
    return comparable(plain)


def program(names: Sequence[str]) -> Iterator[tuple[str, str, str, Figures]]:
    """Pass all points of some systems: the figures of each system, form and way."""
    for name in names:
        system = SYSTEMS[name]
        with system.open() as new_target:
            for form, way in itertools.product(system.forms, system.ways):
                found = [
                    pass_points(system, new_target, FIXED[form], way, seed)
                    for seed in (range(system.seeds) if way == "tasks" else [0])
                ]
                yield name, form, way, Figures(*map(sum, zip(*found, strict=True)))


def main() -> None:
    """Print a line for each system, form and way."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.sinks")
    parser.add_argument("sinks", nargs="*", help=", ".join(SYSTEMS))
    options = parser.parse_args()
    print("| sink | form | by | points | rows lost | twice | left behind | s |")
    print("|---|---|---|---:|---:|---:|---:|---:|", flush=True)
    total, begin = Figures(), time.monotonic()
    start = begin
    for name, form, way, found in program(options.sinks or list(SYSTEMS)):
        numbers = " | ".join(f"{count:,}" for count in found)
        print(
            f"| {name} | {form} | {way} | {numbers} | {time.monotonic() - start:.0f} |", flush=True
        )
        total, start = Figures(*map(sum, zip(total, found, strict=True))), time.monotonic()
    numbers = " | ".join(f"{count:,}" for count in total)
    print(f"| all | | | {numbers} | {time.monotonic() - begin:.0f} |")
    raise SystemExit(any(total[1:]))


if __name__ == "__main__":
    main()
