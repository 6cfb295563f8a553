"""Tests of the saga: any order, repetition and interleaving of its messages, then the job once on Spark."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from examples.feed import OPENING, Row
from examples.saga.job import REQUESTS, play, request
from examples.saga.rules import COMMANDS, ENDS, MESSAGES, orders, reservations, timeouts
from streamops import sinks
from streamops.testing import assert_rows, replay
from streamops.testing.replaying import Replay

OPERATORS = {"messages": orders, "commands": reservations}
OTHER = {"messages": "commands", "commands": "messages"}
TYPES = {"timestamp": pa.timestamp("us", "UTC"), "string": pa.string(), "double": pa.float64()}


def schema_of(columns: str) -> pa.Schema:
    """The columns of a topic."""
    pairs = (column.replace("`", "").split() for column in columns.split(", "))
    return pa.schema([(name, TYPES[dtype]) for name, dtype in pairs])


SCHEMAS = {"messages": schema_of(MESSAGES), "commands": schema_of(COMMANDS)}


def records(topic: str, rows: list[Row]) -> list[Row]:
    """What the results of a topic append to the other one."""
    if topic == "messages":
        names = ("id", "entity", "key", "op", "amount")
        chosen = [row for row in rows if row["entity"] is not None]
        return [{**{name: row[name] for name in names}, "owner": row["order"]} for row in chosen]
    return [
        {
            "id": row["command_id"],
            "order": row["command_id"].split(" ")[0],
            "event": f"{row['entity']} {row['type'] or 'rejected'}",
        }
        for row in rows
    ]


class World:
    """Both topics, which deliver records in any order, and any of them again."""

    def __init__(self, requests: list[Row]) -> None:
        self.pending: dict[str, list[Row]] = {"messages": list(requests), "commands": []}
        self.delivered: dict[str, list[Row]] = {"messages": [], "commands": []}
        self.log: dict[str, list[Row]] = {"messages": [], "commands": []}
        self.queries = {topic: Replay(OPERATORS[topic], SCHEMAS[topic]) for topic in OPERATORS}
        self.turn = 0

    def deliver(self, topic: str, rows: list[Row]) -> None:
        """Append records to a topic, and run its query until it has processed them."""
        self.turn += 1
        now = OPENING + dt.timedelta(seconds=self.turn)
        names = SCHEMAS[topic].names
        batch = [{**{name: row.get(name) for name in names}, "ts": now} for row in rows]
        results = [row for result in self.queries[topic].run([batch]) for row in result.rows]
        self.delivered[topic] += batch
        self.log[topic] += results
        self.pending[OTHER[topic]] += records(topic, results)
        seats, payments = (
            confirmed(self.log["commands"], entity) for entity in ("seat", "payment")
        )
        assert set(payments) <= set(seats), "a payment before its seat"

    def move(self, which: int) -> None:
        """Deliver one or two records that are pending, or one again."""
        topics = [topic for topic in self.pending if self.pending[topic]]
        which, choice = divmod(which, 4)
        topic = topics[which % len(topics)]
        if choice == 0 and self.delivered[topic]:
            self.deliver(topic, [self.delivered[topic][which % len(self.delivered[topic])]])
            return
        pending = self.pending[topic]
        chosen = [pending.pop(which % len(pending)) for _ in range(min(choice or 1, len(pending)))]
        self.deliver(topic, chosen)

    def play(self, moves: list[int]) -> None:
        """Make the moves, and then deliver what is left, first in, first out."""
        rest = iter(moves)
        while any(self.pending.values()):
            self.move(next(rest, 1))


def last(log: list[Row], *by: str) -> dict[Any, Row]:
    """The last event of each entity."""
    events = [row for row in log if row.get("rejection") is None]
    return {tuple(row[name] for name in by): row for row in sorted(events, key=_version)}


def _version(row: Row) -> int:
    return int(row["version"])


def confirmed(log: list[Row], entity: str) -> list[str]:
    """The owners of all seats or payments that were confirmed."""
    return [row["owner"] for row in log if (row["entity"], row["type"]) == (entity, "confirmed")]


def check(log: dict[str, list[Row]], requested: set[str]) -> dict[str, str]:
    """Assert what a saga promises. Returns how each order ended."""
    entities = last(log["commands"], "entity", "key")
    assert all(row["type"] != "tentative" for row in entities.values()), "something stays reserved"
    ends = {order: row["step"] for (order,), row in last(log["messages"], "order").items()}
    assert ends.keys() == requested, "an order did not begin"
    assert set(ends.values()) <= set(ENDS), "an order did not end"
    sold = Counter(
        row["key"]
        for row in log["commands"]
        if (row["entity"], row["type"]) == ("seat", "confirmed")
    )
    assert set(sold.values()) <= {1}, "a seat was sold twice"
    holders = sorted(
        row["owner"]
        for (entity, _), row in entities.items()
        if (entity, row["type"]) == ("seat", "confirmed")
    )
    winners = sorted(order for order, step in ends.items() if step == "sold")
    assert sorted(confirmed(log["commands"], "payment")) == holders == winners
    return ends


REQUEST = st.builds(
    request,
    st.sampled_from(["ada", "bob", "cat", "dan"]),
    st.sampled_from(["12A", "12B"]),
    st.sampled_from([80.0, 500.0]),
)


@given(
    requests=st.lists(REQUEST, min_size=1, max_size=4, unique_by=lambda row: row["order"]),
    impatient=st.sets(st.sampled_from(["ada", "bob", "cat", "dan"])),
    moves=st.lists(st.integers(0, 63), max_size=40),
)
def test_no_seat_is_sold_twice_or_paid_without_being_sold_and_every_order_ends(
    requests: list[Row], impatient: set[str], moves: list[int]
) -> None:
    late = [{**row, "id": "timeout", "event": "timeout"} for row in requests]
    world = World([*requests, *(row for row in late if row["order"] in impatient)])
    world.play(moves)
    check(world.log, {row["order"] for row in requests})
    # In a batch, both topics give what they gave as streams.
    for topic, operator in OPERATORS.items():
        delivered = world.delivered[topic]
        if delivered:
            results = replay(operator, [delivered], schema=SCHEMAS[topic], flush=True)
            assert_rows([row for result in results for row in result.rows], world.log[topic])


@pytest.mark.parametrize(
    ("entity", "commands", "outcomes"),
    [
        ("seat", ["a reserve", "b reserve", "a confirm"], ["tentative", "taken", "confirmed"]),
        ("seat", ["a reserve", "b confirm", "b cancel"], ["tentative", *["not reserved"] * 2]),
        ("seat", ["a reserve", "a expire", "b reserve"], ["tentative", "expired", "tentative"]),
        ("seat", ["a reserve", "a expire", "a confirm"], ["tentative", "expired", "not reserved"]),
        (
            "payment",
            ["a reserve", "a confirm", "a expire"],
            ["tentative", "confirmed", "not reserved"],
        ),
        # The command that arrived first was sent last.
        ("payment", ["a expire", "a reserve"], ["expired", "over"]),
    ],
    ids=str,
)
def test_what_is_reserved_is_confirmed_or_given_back_by_its_owner(
    entity: str, commands: list[str], outcomes: list[str]
) -> None:
    rows = [
        {
            "ts": OPENING + dt.timedelta(seconds=number),
            "id": command,
            "entity": entity,
            "key": "12A",
            "op": command.split()[1],
            "owner": command.split()[0],
            "amount": 80.0,
        }
        for number, command in enumerate(commands)
    ]
    results = replay(reservations, [rows], flush=True)
    found = [row["type"] or row["rejection"] for result in results for row in result.rows]
    assert found == outcomes


def test_an_order_that_takes_too_long_gets_a_message() -> None:
    begun = [{"order": name, "ts": OPENING, "version": 1, "step": "seat"} for name in ("a", "b")]
    ended = {"order": "b", "ts": OPENING + dt.timedelta(minutes=2), "version": 5, "step": "sold"}
    later = {"order": "c", "ts": OPENING + dt.timedelta(minutes=11), "version": 1, "step": "seat"}
    rows = [row for result in replay(timeouts, [[*begun, ended], [later]]) for row in result.rows]
    assert [(row["order"], row["event"]) for row in rows] == [("a", "timeout")]


def test_the_job_sells_seats_and_a_batch_gives_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    play(spark, tmp_path, REQUESTS)
    log = {
        topic: sinks.read_parquet(f"{tmp_path}/log_of_{topic}", spark=spark).toArrow().to_pylist()
        for topic in OPERATORS
    }
    assert check(log, {"ada", "bob", "cat", "dan"}) == {
        "ada": "sold",
        "bob": "sold out",
        "cat": "declined",
        "dan": "expired",
    }
    for topic, columns in (("messages", MESSAGES), ("commands", COMMANDS)):
        frame = spark.read.schema(columns).json(f"{tmp_path}/{topic}/*")
        assert_rows(frame.transform(OPERATORS[topic]).toArrow().to_pylist(), log[topic])
