"""Both topics of the saga on Spark, as folders."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from examples.feed import OPENING, Row, write
from examples.saga.rules import COMMANDS, MESSAGES, commands_of, messages_of, orders, reservations
from streamops import sinks


def run_topic(spark: SparkSession, folder: Path, topic: str, turn: int) -> int:
    """Process what was appended to a topic, append the results to the other one, and count them.

    In production a query per topic runs all the time, and the topics are those of Kafka with
    ``message.timestamp.type=LogAppendTime``. Here folders are topics, and each turn is a second.
    """
    schema, operator, convert, other = {
        "commands": (COMMANDS, reservations, messages_of, "messages"),
        "messages": (MESSAGES, orders, commands_of, "commands"),
    }[topic]
    log = sinks.parquet(f"{folder}/log_of_{topic}")
    appended = []

    def append(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        log(batch, batch_id)
        now = OPENING + dt.timedelta(seconds=turn)
        rows = [{**row.asDict(), "ts": now} for row in convert(batch).collect()]
        if rows:  # a repeated micro-batch replaces its file
            write([rows], folder / other / f"{topic}-{batch_id:04d}")
        appended.extend(rows)
        batch.unpersist()

    (
        spark.readStream.schema(schema)
        .json(f"{folder}/{topic}/*")
        .transform(operator)
        .writeStream.queryName(topic)
        .foreachBatch(append)
        .option("checkpointLocation", f"{folder}/checkpoint_of_{topic}")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    return len(appended)


def request(name: str, seat: str, amount: float, event: str = "requested") -> Row:
    """A message to an order: its request, or that it took too long."""
    return {
        "ts": OPENING,
        "id": event,
        "order": name,
        "event": event,
        "seat": seat,
        "amount": amount,
    }


REQUESTS = [
    request("ada", "12A", 80.0),
    request("bob", "12A", 80.0),  # the seat is taken
    request("cat", "12B", 500.0),  # the bank declines
    request("dan", "12C", 60.0),
    request("dan", "12C", 60.0, "timeout"),
]


def play(spark: SparkSession, folder: Path, requests: list[Row]) -> None:
    """Run both topics in turns, until there is nothing left to do."""
    write([requests], folder / "messages" / "requests")
    (folder / "commands" / "none").mkdir(parents=True, exist_ok=True)
    turn, appended = 0, 1
    while appended:
        turn += 1
        appended = run_topic(spark, folder, "messages", turn)
        appended += run_topic(spark, folder, "commands", turn)
