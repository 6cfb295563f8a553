"""The programs of docs/sinks.md, each of which writes a stream to one system, on Spark and real servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import streamops
from streamops import sinks
from tests.docs.test_readme import ROOT

pytestmark = pytest.mark.spark

BLOCKS = [
    rest.partition("```\n")[0]
    for rest in (ROOT / "docs" / "sinks.md").read_text().split("```py\n")[1:]
]
STREAM, *PROGRAMS = (block for block in BLOCKS if "write(" in block)
WAITS = """while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < 1:
        query.awaitTermination(1)"""
IDS = set(range(10))
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs the program that contains a text, with these arguments, in a folder of its own."""
    (tmp_path / "lake").mkdir()

    def execute(program: str, namespace: dict[str, Any]) -> dict[str, Any]:
        # Relative paths are those of the JVM, which runs elsewhere.
        for folder in ("checkpoints", "lake"):
            program = program.replace(f'"{folder}', f'"{tmp_path}/{folder}')
        exec(compile(program, "docs/sinks.md", "exec"), namespace)
        return namespace

    def run(text: str, *arguments: str) -> dict[str, Any]:
        (program,) = (block for block in PROGRAMS if text in block)
        monkeypatch.setattr(sys, "argv", ["program.py", *arguments])
        return execute(program, {})

    monkeypatch.setattr(streamops, "local_session", lambda: spark)
    stream, module = STREAM, ModuleType("orders")
    assert stream.count("query.awaitTermination(seconds)") == 1
    execute(stream.replace("query.awaitTermination(seconds)", WAITS), vars(module))
    monkeypatch.setitem(sys.modules, "orders", module)
    return run


def test_every_program_is_run_here() -> None:
    texts = ("sinks.postgres", "sinks.opensearch", "sinks.delta", "sinks.iceberg")
    texts += ("sinks.parquet", "sinks.sqlalchemy", "sinks.kafka")
    assert [sum(text in program for program in PROGRAMS) for text in texts] == [1] * len(texts)
    assert len(PROGRAMS) == len(texts)


def test_postgres(run: Run, postgres: str) -> None:
    host = next(part.removeprefix("host=") for part in postgres.split() if "host=" in part)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS documented")
        connection.execute("CREATE DATABASE documented")
    url = f"postgresql://postgres@/documented?host={host}"
    runs = [run("sinks.postgres", url) for _ in range(2)]
    assert runs[1]["table"].read_ledger().generation == 2
    with psycopg.connect(url) as connection:
        assert {key for (key,) in connection.execute("SELECT id FROM orders")} == IDS
        entries = connection.execute("SELECT generation FROM streamops_ledger").fetchall()
    assert entries == [(2,)]


def test_mariadb(run: Run, mariadb: Any) -> None:
    with mariadb.connect(database=None) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE documented")
        try:
            run("sinks.sqlalchemy", mariadb.url("documented"))
            cursor.execute("SELECT id FROM documented.orders")
            assert {key for (key,) in cursor.fetchall()} == IDS
            cursor.execute("SELECT * FROM documented.streamops_entries")
            assert len(cursor.fetchall()) == 1
        finally:
            cursor.execute("DROP DATABASE documented")


def test_index_and_cache(run: Run, opensearch: Any, redis: Any) -> None:
    try:
        run("sinks.opensearch", opensearch.url, redis.url)
        assert {int(key) for key in opensearch.documents("orders")} == IDS
        with redis.connect() as client:
            assert json.loads(client.get("orders:7"))["value"] % 10 == 7
    finally:
        opensearch.request("DELETE", "/orders")
        with redis.connect() as client:
            client.delete(*client.keys("orders:*"))


def test_kafka(run: Run, kafka: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("sinks.kafka", kafka.bootstrap)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10
    assert all('{"id":' in line for line in printed)


@pytest.mark.parametrize("text", ["sinks.delta", "sinks.iceberg", "sinks.parquet"])
def test_files(run: Run, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(text)
    # A line per row, with its number before its columns.
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:11]]
    if text == "sinks.parquet":
        found = sinks.read_parquet(str(tmp_path / "lake" / "archive")).to_table()
        assert {*found["id"].to_pylist()} == IDS
    else:
        assert {int(row[1]) for row in rows} == IDS
