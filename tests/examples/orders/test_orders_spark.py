"""The order service is killed between any two of its statements: no event without order, and no order without event."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from examples.orders import job, service
from tests.sources.shop import Shop, shop

pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def database(postgres: str) -> Iterator[Shop]:
    with shop(postgres, table=None) as found:
        service.create_tables(found.connection)
        yield found


def crash_after(statements: int, where: str) -> list[list[str]]:
    """Run the service until it is killed; what it had committed for sure."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.examples.orders.crashing_service", where, str(statements)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == -9, ran.stderr
    return [line.split() for line in ran.stdout.splitlines()]


def test_a_service_that_is_killed_anywhere_has_an_event_for_each_order(
    spark: SparkSession, database: Shop, tmp_path: Path
) -> None:
    job.start(spark, database.where, tmp_path).awaitTermination()  # creates the slot
    sure: list[list[str]] = []
    for statements in range(1, 11):
        sure += crash_after(statements, database.where)
        if statements % 4 == 0:
            job.start(spark, database.where, tmp_path).awaitTermination()
    job.start(spark, database.where, tmp_path).awaitTermination()
    assert job.differences(database.connection, tmp_path) == []
    events = job.read_events(tmp_path)
    found = {(event["type"], event["order"]) for event in events}
    assert len(found) == len(events)
    assert {(type_, order) for type_, order in sure} <= found
    assert len(found - {(type_, order) for type_, order in sure}) <= 10  # at most one per crash
    assert len(sure) > 10


def test_a_missing_event_and_a_missing_order_are_found(
    spark: SparkSession, database: Shop, tmp_path: Path
) -> None:
    job.start(spark, database.where, tmp_path).awaitTermination()
    order = service.create_order(database.connection, "Zoë", 100)
    assert service.ship_order(database.connection, order)
    assert not service.cancel_order(database.connection, order)
    job.start(spark, database.where, tmp_path).awaitTermination()
    assert job.differences(database.connection, tmp_path) == []
    # What two writes without a transaction would leave after a crash.
    with psycopg.connect(database.where, autocommit=True) as connection:
        connection.execute("INSERT INTO orders VALUES (gen_random_uuid(), 'x', 1, 'placed')")
        connection.execute("UPDATE orders SET cents = 101 WHERE id = %s", [order])
        assert len(job.differences(connection, tmp_path)) == 2
        connection.execute("DELETE FROM orders")
        assert "does not exist" in job.differences(connection, tmp_path)[0]
    assert service.clean_outbox(database.connection, hours=-1) == 2
