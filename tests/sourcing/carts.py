"""Commands that fill shopping carts. Workers import this module."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import sourcing
from streamops.spark.operator import Operator
from streamops.testing import at

# The id is not the first column: what orders commands at one instant is the id, and not their content.
COMMAND = pa.schema(
    [
        ("cart", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("op", pa.string()),
        ("sku", pa.string()),
        ("uid", pa.int64()),
        ("version", pa.int64()),
    ]
)
VALUES = {
    "cart": st.sampled_from("cd"),
    "uid": st.integers(0, 6),
    "op": st.sampled_from(["add", "remove"]),
    "sku": st.sampled_from(["pen", "ink"]),
    "version": st.sampled_from([None, None, 0, 1, 2]),
}
"""Values of random commands, some of them repeated, or with an old version."""

STATE: dict[str, Any] = {"state": "items map<string,int>", "initial": {"items": {}}}


def change_cart(state: Any, command: Any) -> Any:
    """Removed is not the same as never added."""
    if command.op == "add":
        return [("added", command.sku)]
    if command.sku not in state.items:
        return sourcing.Rejected("never added")
    if state.items[command.sku] == 0:
        return sourcing.Rejected("already removed")
    return [{"type": "removed", "item": command.sku}]


def fold_cart(state: Any, event: Any) -> Any:
    """The number of each item; zero if it was removed."""
    count = state.items.get(event.item, 0)
    items = {**state.items, event.item: count + 1 if event.type == "added" else 0}
    return state._replace(items=items)


def carts(**changed: Any) -> Operator:
    """The operator."""
    given: dict[str, Any] = {
        **STATE,
        "by": "cart",
        "command_id": "uid",
        "time": "ts",
        "event": "type string, item string",
        "delay": "0 seconds",
        "expected_version": "version",
    }
    return sourcing.decide(change_cart, fold_cart, **{**given, **changed})


def command(id_: int | None, op: str, sku: str = "pen", *, cart: str = "c", **more: Any) -> Any:
    """A command; by default its id is its second."""
    second = more.pop("second", id_ or 0)
    values = {"cart": cart, "ts": at(second), "op": op, "sku": sku, "uid": id_, "version": None}
    return {**values, **more}
