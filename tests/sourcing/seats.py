"""Commands that reserve seats, for tests on Spark. Workers import this module."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamops import sourcing
from streamops.spark.operator import Operator
from streamops.testing import at

COMMAND = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("user", pa.string()),
        ("seen", pa.int64()),
    ]
)


def reserve(state: Any, command: Any) -> Any:
    """A seat is reserved once, and released by its holder."""
    if state.holder is None:
        return [("reserved", command.user)]
    if state.holder == command.user:
        return [("released", command.user), ("cleaned", None)]
    return sourcing.Rejected(f"taken by {state.holder}")


def change(state: Any, event: Any) -> Any:
    """The holder of the seat."""
    if event.type == "cleaned":
        return state
    return state._replace(holder=event.user if event.type == "reserved" else None)


def seats(**parameters: Any) -> Operator:
    """The operator."""
    return sourcing.decide(
        reserve,
        change,
        by="k",
        command_id="id",
        time="ts",
        state="holder string",
        event="type string, user string",
        expected_version="seen",
        **{"delay": "10 seconds", **parameters},
    )


def commands() -> list[tuple[list[dict[str, Any]], ...]]:
    """Micro-batches of commands, some of them repeated, or with an old version."""
    batches = []
    for batch, start in enumerate((0, 20, 45, 70)):
        rows = [
            {
                "k": "abc"[n % 3],
                "ts": at(start + (n * 7) % 24 - n % 9),
                "id": batch * 10 + n % 8,
                "user": "xy"[n % 2],
                "seen": n if n % 4 == 3 else None,
            }
            for n in range(12)
        ]
        if batch == 3:
            rows.append({"k": "a", "ts": at(600), "id": 999, "user": "z", "seen": None})
        batches.append((rows,))
    return batches
