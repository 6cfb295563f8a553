"""Waiting in PostgreSQL for what a writer wrote: from Python, and in SQL."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity
from tests.sinks.test_waiting import OFFSETS, at

pytestmark = pytest.mark.postgres
_NUMBERS = itertools.count()


@pytest.fixture
def url(postgres: str) -> str:
    folder = postgres.split()[0].partition("=")[2]
    return f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture
def name() -> str:
    return f"waiting {next(_NUMBERS)}"


@pytest.fixture
def reader(postgres: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def deliver(url: str, name: str, batch: int, *offsets: str, schema: str | None = None) -> None:
    sink = sinks.postgres(url, name, schema=schema)
    run = Identity("query", f"run {batch}", offsets)
    sink._deliver_rows(pa.table({"n": [batch]}), batch, run)


def wait(reader: psycopg.Connection[tuple[object, ...]], *values: object) -> None:
    reader.execute("SELECT streamops_wait_for(%s, %s, %s)", values)


def test_python_and_sql_wait_for_the_same(
    url: str, name: str, reader: psycopg.Connection[tuple[object, ...]]
) -> None:
    deliver(url, name, 0, *OFFSETS)
    reader.execute(sinks.wait_for_sql().encode())
    sink = sinks.postgres(url, name)
    answers = []
    for token in (
        *("kafka:orders:0:6", "kafka:orders:0:7", "kafka:orders:1:0", "kafka:views:0:2"),
        *("kafka:views:1:0", "kafka:other:0:0", "lsn:0/1", "delta:1"),
    ):
        try:
            sinks.wait_for(sink, token, timeout="0 seconds")
            answers.append(True)
        except SinkError:
            answers.append(False)
        if answers[-1]:
            wait(reader, name, token, "0 seconds")
        else:
            with pytest.raises(psycopg.errors.QueryCanceled):
                wait(reader, name, token, "0 seconds")
    assert answers == [True, False, False, True, False, False, False, False]
    deliver(url, name, 1, '{"system":"7","lsn":"1/A"}', '{"reservoirVersion":5,"index":-1}', "3")
    for token in ("lsn:0/FFFFFFFF", "lsn:1/a", "delta:4"):
        wait(reader, name, token, "0 seconds")
        sinks.wait_for(sink, token, timeout="0 seconds")
    for token in ("lsn:1/B", "delta:5"):
        with pytest.raises(psycopg.errors.QueryCanceled, match="does not have"):
            wait(reader, name, token, "20 milliseconds")


def test_sql_waits_until_the_micro_batch_is_committed(
    url: str, name: str, reader: psycopg.Connection[tuple[object, ...]]
) -> None:
    deliver(url, name, 0, at(1))
    reader.execute(sinks.wait_for_sql().encode())

    def write() -> None:
        time.sleep(0.3)
        deliver(url, name, 1, at(2))

    writer = threading.Thread(target=write)
    writer.start()
    begun = time.monotonic()
    wait(reader, name, "kafka:orders:0:1", "1 minute")
    assert time.monotonic() - begun > 0.2
    rows = reader.execute(f'SELECT n FROM "{name}" ORDER BY n'.encode()).fetchall()
    assert rows == [(0,), (1,)]
    writer.join()


@pytest.mark.parametrize("schema", ["a'b", 'say "hi"', "back\\slash", "$$"])
def test_names_are_quoted(
    url: str, name: str, schema: str, reader: psycopg.Connection[tuple[object, ...]]
) -> None:
    quoted = '"' + schema.replace('"', '""') + '"'
    reader.execute(f"CREATE SCHEMA {quoted}".encode())
    deliver(url, name, 0, at(1), schema=schema)
    reader.execute(sinks.wait_for_sql(schema).encode())
    statement = f"SELECT {quoted}.streamops_wait_for(%s, %s, %s)".replace("%s, ", "%s, ")
    reader.execute(statement.encode(), (name, "kafka:orders:0:0", "0 seconds"))
    with pytest.raises(psycopg.errors.QueryCanceled):
        reader.execute(statement.encode(), (name, "kafka:orders:0:1", "0 seconds"))


def test_what_would_never_see_the_write_is_refused(
    url: str, name: str, reader: psycopg.Connection[tuple[object, ...]]
) -> None:
    deliver(url, name, 0, at(1))
    reader.execute(sinks.wait_for_sql().encode())
    with pytest.raises(psycopg.errors.RaiseException, match="not a token"):
        wait(reader, name, "orders:0:1", "0 seconds")
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.RaiseException, match="snapshot"):
        wait(reader, name, "kafka:orders:0:0", "0 seconds")
    reader.execute("ROLLBACK")
