"""Sinks and key tables that several threads and processes use at the same time.

Two writers deliver the same micro-batch at once: by one object, by two objects, and in two processes; as the
first one, which creates the target and its ledger, and as a later one. Each row is in the target once.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from streamops import erasure, sinks
from streamops.errors import SinkError
from streamops.sinks.core.kafka_records import VALUE
from streamops.sinks.sink import Sink
from streamops.spark.identity import Identity
from tests.borders import cases

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

SPAWN, FORK = multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")
ATTEMPTS = 20
AGAIN = {"TARGET_UNAVAILABLE", "BATCH_GAP"}
"""After these, a query is started again: the target was busy, or the other writer has not committed yet."""


@dataclass
class Destination:
    """A new target: a function that makes a sink of it, and one that reads its rows."""

    make: Callable[..., Sink]
    read: Callable[[], list[int]]
    can_fork: bool = True


def rows_of(sink: Sink, values: list[int]) -> pa.Table:
    texts = [json.dumps({"n": value}) for value in values]
    return pa.table({"n": values, **({VALUE: texts} if sink.where == "sinks.kafka" else {})})


def deliver(sink: Sink, values: list[int], batch: int, identity: Identity) -> str:
    """Deliver as a driver that is started again; "done" or the code of the error that ends it."""
    for _ in range(ATTEMPTS):
        try:
            sink._deliver_rows(rows_of(sink, values), batch, identity)
        except SinkError as error:
            code = error.code
            if code not in AGAIN:
                return code
        else:
            return "done"
    return code


def deliver_at(barrier: Any, *arguments: Any) -> str:
    barrier.wait(60)
    return deliver(*arguments)


# Processes inherit it when they start, since a barrier cannot be sent to them later.
_BARRIER: Any = None


def _begin(barrier: Any) -> None:
    global _BARRIER
    _BARRIER = barrier


def deliver_in_process(*arguments: Any) -> str:
    return deliver_at(_BARRIER, *arguments)


@pytest.fixture(scope="module")
def processes() -> Any:
    with ProcessPoolExecutor(2, SPAWN, _begin, (SPAWN.Barrier(2),)) as pool:
        # Both processes exist, and have imported everything, before anything is measured.
        yield pool


@pytest.fixture(scope="module")
def threads() -> Any:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def postgres_url(where: str) -> str:
    return f"postgresql://postgres@/postgres?{where.split()[0]}"


def destination_of(system: str, request: Any, folder: Path, number: int) -> Destination:
    name = f"{system} {folder.name} {number}"
    if system in {"postgres", "sqlalchemy postgres"}:
        import psycopg

        where = request.getfixturevalue("postgres")
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')  # whose ledger does not exist yet

        def read() -> list[int]:
            with psycopg.connect(where) as connection:
                found = connection.execute(f'SELECT n FROM "{name}"."t"').fetchall()
            return sorted(n for (n,) in found)

        is_own = system == "postgres"
        url = postgres_url(where).replace(
            "postgresql:", "postgresql:" if is_own else "postgresql+psycopg:"
        )
        make: Any = sinks.postgres if is_own else sinks.sqlalchemy
        return Destination(lambda **given: make(url, "t", schema=name, **given), read)
    if system == "sqlite":
        file = folder / f"{number}.db"

        def read_file() -> list[int]:
            import sqlite3

            with sqlite3.connect(file) as connection:
                return sorted(n for (n,) in connection.execute("SELECT n FROM t"))

        return Destination(
            lambda **given: sinks.sqlalchemy(f"sqlite:///{file}", "t", **given), read_file
        )
    if system == "kafka":
        broker: Broker = request.getfixturevalue("kafka")
        topic = broker.create_topic()

        def make_topic(**given: Any) -> Sink:
            return sinks.kafka(topic, servers=broker.bootstrap, ledger=f"{topic}-ledger", **given)

        return Destination(
            make_topic,
            lambda: sorted(json.loads(record.value())["n"] for record in broker.read(topic)),
            can_fork=False,
        )
    path = str(folder / f"{system} {number}")
    if system == "delta":
        return Destination(
            lambda **given: sinks.delta(path, **given),
            lambda: sorted(deltalake.DeltaTable(path).to_pyarrow_table().column("n").to_pylist()),
            can_fork=False,
        )
    return Destination(
        lambda **_: sinks.parquet(path),
        lambda: sorted(sinks.read_parquet(path).to_table().column("n").to_pylist()),
        can_fork=False,
    )


SERVERS = [
    pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.smoke]),
    pytest.param("sqlalchemy postgres", marks=[pytest.mark.postgres, pytest.mark.smoke]),
    pytest.param("kafka", marks=[pytest.mark.kafka]),
]
SYSTEMS = [*SERVERS, "sqlite", "delta", "parquet"]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("writers", ["one object", "two objects", "two processes"])
@pytest.mark.parametrize("runs", ["one run", "two runs"])
@pytest.mark.parametrize("is_later", [False, True])
def test_a_micro_batch_that_two_deliver_at_once_is_there_once(
    request: Any,
    tmp_path: Path,
    processes: Any,
    threads: Any,
    system: str,
    writers: str,
    runs: str,
    is_later: bool,
) -> None:
    for number in range(cases(1, 20)):
        target = destination_of(system, request, tmp_path, number)
        first = target.make()
        identities = [Identity("query", f"run {n}") for n in (1, 2 if runs == "two runs" else 1)]
        expected: list[int] = []
        if is_later:
            assert deliver(first, [-1], 0, Identity("query", "run 0")) == "done"
            expected = [-1]
        batch, values = len(expected), list(range(100))
        expected += values
        both = [first, first] if writers == "one object" else [first, target.make()]
        if writers == "two processes":
            calls = [
                processes.submit(deliver_in_process, sink, values, batch, identity)
                for sink, identity in zip(both, identities, strict=True)
            ]
        else:
            barrier = threading.Barrier(2)
            calls = [
                threads.submit(deliver_at, barrier, sink, values, batch, identity)
                for sink, identity in zip(both, identities, strict=True)
            ]
        outcomes = {call.result(120) for call in calls}
        assert {"done"} <= outcomes <= {"done", "FENCED"}
        assert target.read() == expected
        # The next run goes on.
        assert deliver(target.make(), [1_000], batch + 1, Identity("query", "run 3")) == "done"
        assert target.read() == [*expected, 1_000]


@pytest.mark.parametrize("system", SYSTEMS)
def test_of_two_queries_that_start_at_once_one_has_the_target(
    request: Any, tmp_path: Path, threads: Any, system: str
) -> None:
    for number in range(cases(1, 20)):
        target = destination_of(system, request, tmp_path, number)
        barrier = threading.Barrier(2)
        calls = [
            threads.submit(
                deliver_at, barrier, target.make(), [n], 0, Identity(f"query {n}", f"run {n}")
            )
            for n in range(2)
        ]
        outcomes = [call.result(120) for call in calls]
        assert sorted(outcomes) in (["NEW_CHECKPOINT", "done"], ["FENCED", "done"]), outcomes
        assert target.read() == [outcomes.index("done")]


@pytest.mark.parametrize("system", [*SERVERS[:2], "sqlite"])
def test_sinks_that_create_one_ledger_at_once(
    request: Any, tmp_path: Path, threads: Any, processes: Any, system: str
) -> None:
    for number in range(cases(2, 40)):
        target = destination_of(system, request, tmp_path, number)
        named = [target.make(name=f"sink {n}") for n in range(2)]
        calls = []
        if number % 2:
            calls = [
                processes.submit(deliver_in_process, sink, [n], 0, Identity(f"query {n}", "run"))
                for n, sink in enumerate(named)
            ]
        else:
            barrier = threading.Barrier(2)
            calls = [
                threads.submit(deliver_at, barrier, sink, [n], 0, Identity(f"query {n}", "run"))
                for n, sink in enumerate(named)
            ]
        assert [call.result(120) for call in calls] == ["done", "done"]
        assert target.read() == [0, 1]


@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("system", [*SERVERS[:2], "sqlite"])
def test_a_process_that_is_forked_has_a_connection_of_its_own(
    request: Any, tmp_path: Path, system: str
) -> None:
    target = destination_of(system, request, tmp_path, 0)
    sink = target.make()
    assert deliver(sink, [0], 0, Identity("query", "run 1")) == "done"
    child = FORK.Process(target=deliver, args=(sink, [1], 1, Identity("query", "run 2")))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert deliver(sink, [2], 2, Identity("query", "run 1")) == "FENCED"  # on the first connection
    assert target.read() == [0, 1]


@pytest.mark.parametrize("database", [SERVERS[0], "sqlite"])
def test_a_key_that_several_create_at_once_is_one_key(
    request: Any, tmp_path: Path, database: str
) -> None:
    for number in range(cases(2, 40)):
        url = f"sqlite:///{tmp_path}/{number}.db"
        if database == "postgres":
            url = postgres_url(request.getfixturevalue("postgres")).replace(":", "+psycopg:", 1)
        table = erasure.KeyTable(url=url, table=f"keys {tmp_path.name} {number}")
        barrier, subjects = threading.Barrier(4), [str(n) for n in range(20)]

        def create(
            table: Any = table, barrier: Any = barrier, subjects: list[str] = subjects
        ) -> list[Any]:
            barrier.wait(60)
            return sorted(table._create(subjects))

        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(create) for _ in range(4)]
            keys = [call.result(120) for call in found]
        assert len(keys[0]) == 20
        assert all(other == keys[0] for other in keys)
