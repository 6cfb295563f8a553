"""The order service: each change of an order and its event are written in one transaction.

Nothing here knows Spark or a broker. The service needs no second write: an event exists if and only if the
change that it describes was committed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import psycopg

__all__ = ["SLOT", "cancel_order", "clean_outbox", "create_order", "create_tables", "ship_order"]

SLOT = "orders_events"

_TABLES = """
CREATE TABLE IF NOT EXISTS orders (
    id uuid PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL CHECK (cents > 0),
    status text NOT NULL
);
CREATE TABLE IF NOT EXISTS outbox (
    id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL,
    payload jsonb, created_at timestamptz NOT NULL DEFAULT now()
);
"""

Connection = psycopg.Connection[Any]


def create_tables(connection: Connection) -> None:
    """Create the tables of the service, if they do not exist."""
    with connection.transaction():
        connection.execute(_TABLES)


def create_order(connection: Connection, customer: str, cents: int) -> uuid.UUID:
    """Store an order and the event that it was placed; either both or none."""
    order = uuid.uuid4()
    with connection.transaction():
        connection.execute(
            "INSERT INTO orders (id, customer, cents, status) VALUES (%s, %s, %s, 'placed')",
            (order, customer, cents),
        )
        _publish(connection, order, "placed", {"customer": customer, "cents": cents})
    return order


def ship_order(connection: Connection, order: uuid.UUID) -> bool:
    """Ship an order that was placed; whether it was."""
    return _change_status(connection, order, "shipped")


def cancel_order(connection: Connection, order: uuid.UUID) -> bool:
    """Cancel an order that was placed; whether it was."""
    return _change_status(connection, order, "cancelled")


def clean_outbox(connection: Connection, *, hours: int = 72) -> int:
    """Delete old events: the query reads the log, not the table. Return how many."""
    deleted = connection.execute(
        "DELETE FROM outbox WHERE created_at < now() - make_interval(hours => %s)", (hours,)
    )
    return deleted.rowcount


def _change_status(connection: Connection, order: uuid.UUID, status: str) -> bool:
    with connection.transaction():
        changed = connection.execute(
            "UPDATE orders SET status = %s WHERE id = %s AND status = 'placed'", (status, order)
        )
        if changed.rowcount:
            _publish(connection, order, status, {})
    return bool(changed.rowcount)


def _publish(
    connection: Connection, order: uuid.UUID, event: str, payload: Mapping[str, object]
) -> None:
    """Insert an event, in the transaction of the caller."""
    connection.execute(
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) "
        "VALUES (%s, 'order', %s, %s, %s)",
        (uuid.uuid4(), str(order), event, json.dumps(payload)),
    )
