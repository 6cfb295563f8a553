"""Histories of changes for ``changes.aggregate``, whose states are stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import aggregates as agg
from streamops.changes import aggregate as changes_aggregate
from streamops.changes.core.aggregate import AggregateCore, AggregateSpec
from streamops.kernel.core import State
from tests.golden.states import FOLDER, SHARDS, stored
from tests.oracles.aggregate import AggregateOracle, Answer, count, extreme, mean, total

SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("line", pa.float64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("_change_type", pa.string()),
    ]
)
TOTALS: dict[str, tuple[Any, Answer]] = {
    "rows": (agg.count(), count(None)),
    "n": (agg.sum("n"), total("n")),
    "x": (agg.sum("x"), total("x")),
    "mean": (agg.mean("x"), mean("x")),
    "there": (agg.count("d"), count("d")),
}
# The stored rows have two columns, sorted by name; the frame has them in the other order.
FROM_ROWS = {
    "most": (agg.max("n"), extreme("n", max)),
    "dearest": (agg.max("d"), extreme("d", max)),
    **TOTALS,
}
HISTORIES = {"totals": TOTALS, "rows": FROM_ROWS}

Rows = list[tuple[Any, ...]]
NAN = float("nan")
PLUS, MINUS = "insert", "delete"
CENTS = Decimal("1.25")
BATCHES: list[Rows] = [
    [("a", 0.5, 1, 0.1, CENTS, PLUS), ("a", 0.5, 2**40, 1e300, None, PLUS)],
    [(None, NAN, 7, NAN, CENTS, PLUS), ("b", None, -1, -2.5, CENTS, MINUS)],
    [("a", 0.5, 2**40, 1e300, None, MINUS), ("ä", -0.0, None, None, None, PLUS)],
    [("a", 0.5, 9, -1e-300, CENTS, PLUS), ("c", 1.0, 1, 1.0, None, PLUS)],
    [("c", 1.0, 1, 1.0, None, MINUS)],
]
MORE: list[Rows] = [
    [("a", 0.5, 9, -1e-300, CENTS, MINUS), ("b", None, -1, -2.5, CENTS, PLUS)],
    [("ä", 0.0, 3, float("inf"), CENTS, PLUS), (None, NAN, 7, NAN, CENTS, MINUS)],
]


def file_of(history: str) -> Any:
    return FOLDER / f"changes.aggregate-v1-{history}.bin"


def spec_of(history: str, **changed: Any) -> AggregateSpec:
    """The operator, or one with other parameters."""
    requested = {name: requested for name, (requested, _) in HISTORIES[history].items()}
    given: dict[str, Any] = {"by": ("page", "line"), "agg": requested} | changed
    spec: AggregateSpec = changes_aggregate(**given).parameters.resolve(
        (SCHEMA,), carried=(None,), shards=SHARDS
    )
    return spec


def oracle_of(history: str) -> AggregateOracle:
    requested = HISTORIES[history]
    stored = {
        name: aggregate_.columns
        for name, (aggregate_, _) in requested.items()
        if name not in TOTALS
    }
    return AggregateOracle(
        ("page", "line"), {name: requested[name][1] for name in requested}, stored
    )


def table(rows: Rows) -> pa.Table:
    """The rows as a table."""
    columns = [pa.array([row[at] for row in rows], f.type) for at, f in enumerate(SCHEMA)]
    return pa.table(columns, schema=SCHEMA)


def state(history: str) -> State:
    """The state after the history."""
    spec = spec_of(history)
    after = State.empty(AggregateCore().layout(spec))
    for rows in BATCHES:
        after = AggregateCore().step(spec, after, [AggregateCore().pack(spec, table(rows))]).state
    return after


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {file_of(name): stored(AggregateCore, spec_of(name), state(name)) for name in HISTORIES}
