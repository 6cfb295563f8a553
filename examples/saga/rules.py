"""The rules of a saga: seats and payments, orders, and what they send to each other."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops import process, sourcing

PATIENCE = dt.timedelta(minutes=10)
"""How long an order may take before it expires."""
LIMIT = 100.0
"""Banks decline larger payments."""

COMMANDS = (
    "ts timestamp, id string, entity string, key string, op string, owner string, amount double"
)
MESSAGES = "ts timestamp, id string, `order` string, event string, seat string, amount double"


def reserve(state: Any, command: Any) -> Any:
    """Decide a command to a seat or a payment."""
    if command.op == "reserve":
        if state.status in ("tentative", "confirmed"):
            return sourcing.Rejected("taken")
        if command.entity == "payment" and state.status is not None:
            return sourcing.Rejected("over")  # it expired before it was reserved
        if command.entity == "payment" and command.amount > LIMIT:
            return sourcing.Rejected("declined")
        return [("tentative", command.owner)]
    happened = {"confirm": "confirmed", "cancel": "cancelled", "expire": "expired"}[command.op]
    if state.status == "tentative" and state.owner == command.owner:
        return [(happened, command.owner)]
    if command.entity == "payment" and state.status is None and happened != "confirmed":
        return [(happened, command.owner)]  # and so it cannot be reserved later
    return sourcing.Rejected("not reserved")


def reserved(state: Any, event: Any) -> Any:
    """The state of a seat or a payment after an event."""
    return state._replace(status=event.type, owner=event.owner)


STEPS: dict[tuple[str | None, str], tuple[str, list[tuple[str, str]]]] = {
    (None, "requested"): ("seat", [("seat", "reserve")]),
    ("seat", "seat tentative"): ("payment", [("payment", "reserve")]),
    ("payment", "payment tentative"): ("confirm", [("seat", "confirm")]),
    ("confirm", "seat confirmed"): ("capture", [("payment", "confirm")]),
    ("capture", "payment confirmed"): ("sold", []),
    # No seat, or no money.
    ("seat", "seat rejected"): ("sold out", []),
    ("payment", "payment rejected"): ("declined", [("seat", "cancel")]),
    # Too slow. A seat is released after it was reserved, and never before.
    ("seat", "timeout"): ("late", []),
    ("late", "seat rejected"): ("sold out", []),
    ("late", "seat tentative"): ("expired", [("seat", "expire")]),
    ("payment", "timeout"): ("expired", [("payment", "expire"), ("seat", "expire")]),
}
"""The process manager: at a step, a message leads to the next step, and to commands."""

ENDS = ("sold", "sold out", "declined", "expired")


def manage(state: Any, message: Any) -> Any:
    """The next step of an order, and its commands: one row each. Other messages change nothing."""
    step, commands = STEPS.get((state.step, message.event), (None, []))
    if step is None:
        return []
    order, seat = message.order, state.seat or message.seat
    amount = message.amount if state.step is None else state.amount
    return [
        (
            step,
            seat,
            amount,
            f"{order} {entity} {op}",
            entity,
            seat if entity == "seat" else order,
            op,
        )
        for entity, op in commands
    ] or [(step, seat, amount, None, None, None, None)]


def managed(state: Any, event: Any) -> Any:
    """The step of an order after an event."""
    return state._replace(step=event.step, seat=event.seat, amount=event.amount)


# Records are ordered by the time at which they were appended, so nothing is late.
reservations = sourcing.decide(
    reserve,
    reserved,
    by=["entity", "key"],
    command_id="id",
    time="ts",
    delay="0 seconds",
    state="status string, owner string",
    event="type string, owner string",
).options(name="reservations")
orders = sourcing.decide(
    manage,
    managed,
    by="order",
    command_id="id",
    time="ts",
    delay="0 seconds",
    state="step string, seat string, amount double",
    event="step string, seat string, amount double, id string, entity string, key string, op string",
).options(name="orders")


def wait(key: Any, rows: Any, state: Any, timers: Any) -> Any:
    """Set a timer when an order begins, and remove it when the order ends."""
    for row in rows:
        if row.version == 1:
            timers.set(row.ts + PATIENCE)
        if row.step in ENDS:
            timers.cancel_all()
    yield from ()


def expire(key: Any, time: dt.datetime, state: Any, timers: Any) -> Any:
    """Send the message that an order took too long."""
    yield "timeout", "timeout"


timeouts = process.per_key(
    wait,
    on_timer=expire,
    by="order",
    time="ts",
    delay="0 seconds",
    output="id string, event string",
).options(name="timeouts")


def commands_of(steps: DataFrame) -> DataFrame:
    """Commands for seats and payments, from the steps of orders."""
    columns = ("id", "entity", "key", "op", F.col("order").alias("owner"), "amount")
    return steps.where("entity IS NOT NULL").select(*columns)


def messages_of(outcomes: DataFrame) -> DataFrame:
    """Messages for orders, from the events and rejections of seats and payments.

    The id of a command begins with its order. There is one outcome per command, so it is the id of that, too.
    """
    event = F.concat_ws(" ", "entity", F.coalesce("type", F.lit("rejected")))
    order = F.split("command_id", " ")[0].alias("order")
    return outcomes.select(F.col("command_id").alias("id"), order, event.alias("event"))
