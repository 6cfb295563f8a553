"""Events of wallets in two schemas: cents, and later an amount with a currency. Workers import this module."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

OLD = pa.schema([("k", pa.string()), ("version", pa.int64()), ("cents", pa.int64())])
NEW = pa.schema(
    [
        ("k", pa.string()),
        ("version", pa.int64()),
        ("amount", pa.float64()),
        ("currency", pa.string()),
    ]
)
BOTH = pa.unify_schemas([OLD, NEW])
STATE: dict[str, Any] = {"state": "totals map<string,double>", "initial": {"totals": {}}}


def upcast(event: Any) -> Any:
    """Cents were always euros."""
    if event.cents is None:
        return event
    return event._replace(amount=event.cents / 100, currency="EUR")


def add(state: Any, event: Any) -> Any:
    """The total of each currency. Without `upcast`, it fails for cents."""
    total = state.totals.get(event.currency, 0.0) + event.amount
    return state._replace(totals={**state.totals, event.currency: total})
