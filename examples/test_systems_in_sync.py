"""Tests of the systems that follow a database: the changes of its rows, then the query on Spark and five servers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from examples.shop import TABLES, Shop, changes_of, die, race, warehouse_in
from examples.systems_in_sync import follow, start

if TYPE_CHECKING:
    from tests.servers.mariadb import Server as MariaDB
    from tests.servers.opensearch import Server as OpenSearch
    from tests.servers.redis import Server as Redis


@pytest.fixture
def shop(
    postgres: str, opensearch: OpenSearch, redis: Redis, mariadb: MariaDB, tmp_path: Path
) -> Iterator[Shop]:
    """A shop on the servers of the tests, and nothing left of it after the test."""
    name = f"shop_{uuid.uuid4().hex}"
    host = next(part.removeprefix("host=") for part in postgres.split() if "host=" in part)
    url = f"postgresql://postgres@/{name}?host={host}"
    with (
        psycopg.connect(postgres, autocommit=True) as own,
        mariadb.connect() as other,
        other.cursor() as cursor,
    ):
        own.execute(f"CREATE DATABASE {name}".encode())
        cursor.execute(f"CREATE DATABASE {name}")
        shop = Shop(url, opensearch, redis, warehouse_in(tmp_path), mariadb.url(name))
        shop.create_tables()
        try:
            yield shop
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'systems'"
                )
            own.execute(f"DROP DATABASE {name}".encode())
            cursor.execute(f"DROP DATABASE {name}")
            with redis.connect() as client:
                for table in TABLES:
                    opensearch.request("DELETE", f"/{table}")
                    client.delete(table, *client.keys(f"*{table}:*"))


def require_equal(shop: Shop) -> None:
    """Every system has the rows of the database, and there are some."""
    systems = shop.contents()
    database = systems.pop("database")
    assert min(map(len, database.values())) > 0
    for name, tables in systems.items():
        assert tables == database, name


def test_a_change_has_the_row_before_and_the_row_after(spark: SparkSession) -> None:
    first, second = ({"id": 7, "pieces": pieces} for pieces in (100, 98))
    events = [
        ("1", "stock", "INSERT", json.dumps({"before": None, "after": first})),
        ("2", "stock", "UPDATE", json.dumps({"before": first, "after": second})),
        ("3", "stock", "DELETE", json.dumps({"before": second, "after": None})),
        ("4", "orders", "DELETE", json.dumps({"before": {"id": 7}, "after": None})),
    ]
    names = "id string, aggregate_type string, event_type string, payload string"
    changes = changes_of("stock", spark.createDataFrame(events, names))
    assert [tuple(row) for row in changes.sort("version", "_change_type").collect()] == [
        (7, 100, "insert", 1),
        (7, 98, "update_postimage", 2),
        (7, 100, "update_preimage", 2),
        (7, 98, "delete", 3),
    ]


@pytest.mark.slow
def test_all_systems_equal_the_database_after_each_crash(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    systems = follow(shop)
    start(spark, tmp_path, shop, systems).awaitTermination()
    for number, name in enumerate([*systems, "end"]):
        shop.trade(60, seed=2 * number)
        dies = systems | {name: systems.get(name, systems["index"]).after(die)}
        with pytest.raises(StreamingQueryException, match="the query dies here"):
            start(spark, tmp_path, shop, dies).awaitTermination()
        assert [*shop.differences().values()].count(0) == number
        shop.trade(60, seed=2 * number + 1)
        start(spark, tmp_path, shop, systems).awaitTermination()
        require_equal(shop)


def test_two_clients_of_two_systems_race_and_the_log_decides(
    spark: SparkSession, shop: Shop
) -> None:
    diverged = race(shop)
    assert diverged == 2_143  # as often as the two orders of the writes differ
    with shop.connect() as connection:
        events = connection.execute(
            "SELECT id::text, aggregatetype, type, payload::text FROM outbox"
        )
        names = "id string, aggregate_type string, event_type string, payload string"
        log = spark.createDataFrame(events.fetchall(), names)
    # From the log: in four parts, which arrive in any order, and one of them twice.
    parts = log.randomSplit([1.0] * 4, seed=1)
    systems = follow(shop)
    for number, part in enumerate([*reversed(parts), parts[3]]):
        for system in ("index", "cache"):
            systems[system].write(part, query="race", batch_id=number)
    differences = shop.differences()
    assert (differences["index"], differences["cache"]) == (0, 0)
