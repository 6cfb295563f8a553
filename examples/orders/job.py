"""The query: events of the order service from its outbox, each exactly once, and their verification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples.orders.service import SLOT, Connection
from streamops import sinks, sources

__all__ = ["differences", "read_events", "start", "typed"]


def typed(events: DataFrame) -> DataFrame:
    """Events with the columns of their payload; rejected rows are left out."""
    payload = F.from_json("payload", "customer string, cents bigint")

    def field(name: str) -> Column:
        return payload[name].alias(name)

    return events.where("rejected IS NULL AND aggregate_type = 'order'").select(
        F.col("id").alias("event"),
        F.col("aggregate_id").alias("order"),
        F.col("event_type").alias("type"),
        field("customer"),
        field("cents"),
        "_lsn",
        "_position",
        "_committed_at",
    )


def start(spark: SparkSession, url: str, out: Path) -> StreamingQuery:
    """Start the query. It reads what there is, writes it, and ends.

    Publication and slot are created the first time: call it once before the service begins.
    """
    events = sources.outbox(url, slot=SLOT, create="create").read_stream(spark)
    return (
        typed(events)
        .writeStream.foreachBatch(sinks.parquet(str(out / "events")))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def read_events(out: Path) -> list[dict[str, Any]]:
    """The events that the query has written, in the order of commits."""
    rows: list[dict[str, Any]] = sinks.read_parquet(str(out / "events")).to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["_lsn"], row["_position"]))


def differences(connection: Connection, out: Path) -> list[str]:
    """What events and orders disagree about: none without the other, and the same status and amount."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in read_events(out):
        found.setdefault(event["order"], []).append(event)
    wrong = []
    orders = connection.execute("SELECT id::text, customer, cents, status FROM orders").fetchall()
    for order, customer, cents, status in orders:
        events = found.pop(order, [])
        expected = ["placed"] if status == "placed" else ["placed", status]
        if [event["type"] for event in events] != expected:
            wrong.append(f"order {order} is {status}, with events {[e['type'] for e in events]}")
        elif (events[0]["customer"], events[0]["cents"]) != (customer, cents):
            wrong.append(f"order {order} has another customer or amount than its event")
    return [*wrong, *(f"order {order} has events, and does not exist" for order in found)]
