"""As-of joins played step by step, with explicit watermarks. Instants are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamops import joins
from streamops.joins.core.asof import AsofCore, AsofSpec
from streamops.kernel.core import Metrics, State
from streamops.spark.drive import resolve

SECOND = 1_000_000
INSTANT = pa.timestamp("us", tz="UTC")
FACTS = pa.schema([("k", pa.string()), ("ts", INSTANT), ("n", pa.int64())])
VERSIONS = [("k", pa.string()), ("since", INSTANT), ("seq", pa.int64()), ("v", pa.string())]
EXTRA = {"until": INSTANT, "gone": pa.bool_(), "_change_type": pa.string()}
EXTRA |= {"_tombstone": pa.bool_(), "a": pa.string()}

ARGUMENTS: dict[str, Any] = {
    "by": "k",
    "time": "ts",
    "version": "since",
    "sequence": "seq",
    "until": None,
    "deleted": None,
    "how": "left",
    "tolerance": None,
    "direction": "backward",
    "allow_exact": True,
    "waits_for": "both",
    "delay": "0 seconds",
    "allowed_lateness": "0 seconds",
    "stragglers": "drop",
    "late_versions": "ignore",
    "too_late": "drop",
    "into": "status",
}


class Batch:
    """A frame of versions that requires no tolerance."""

    isStreaming = False


def bound(*extra: str, **arguments: Any) -> AsofSpec:
    """The spec over facts, and versions with these extra columns."""
    table = pa.schema([*VERSIONS, *((name, EXTRA[name]) for name in extra)])
    return bound_to(FACTS, table, **arguments)


def bound_to(facts: pa.Schema, table: pa.Schema, **arguments: Any) -> AsofSpec:
    """The spec over these columns."""
    right: Any = Batch()
    spec = resolve(joins.asof(right, **(ARGUMENTS | arguments)), (facts, table), (None, None))
    assert isinstance(spec, AsofSpec)
    return spec


def rows_as(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows as a table; instants in seconds, missing columns are null."""
    columns = []
    for at, field in enumerate(schema):
        values = [row[at] if at < len(row) else None for row in rows]
        if field.type == INSTANT:
            micros = [None if v is None else round(v * SECOND) for v in values]
            columns.append(pa.array(micros, pa.int64()).cast(INSTANT))
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def packed(
    spec: AsofSpec, facts: Sequence[Sequence[Any]], versions: Sequence[Sequence[Any]]
) -> tuple[pa.Table, pa.Table]:
    """Both sides of a micro-batch, packed."""
    left, right = rows_as(spec.facts, facts), rows_as(spec.table, versions)
    return AsofCore().pack(spec, left, "left"), AsofCore().pack(spec, right, "right")


class Played:
    """An as-of join with its state."""

    def __init__(self, *extra: str, **arguments: Any) -> None:
        self.spec = bound(*extra, **arguments)
        self.state = State.empty(AsofCore().layout(self.spec))
        self.late: list[tuple[Any, ...]] = []
        self.counts = Metrics()

    def __call__(
        self,
        facts: Sequence[Sequence[Any]] = (),
        versions: Sequence[Sequence[Any]] = (),
        *,
        watermark: float | None = None,
    ) -> list[tuple[Any, ...]]:
        """Results of a step as (change if any, key, time, value); sorted."""
        inputs = packed(self.spec, facts, versions)
        micros = None if watermark is None else round(watermark * SECOND)
        step = AsofCore().step(self.spec, self.state, inputs, micros)
        AsofCore().check(self.spec, step.state)
        self.state, self.counts = step.state, step.metrics
        self.late = late_of(step.late)
        return results_of(step.output)

    def finish(self) -> list[tuple[Any, ...]]:
        return results_of(AsofCore().finish(self.spec, self.state))

    @property
    def stored(self) -> tuple[int, int]:
        """How many versions and facts there are in state."""
        return len(self.state.tables["versions"]), len(self.state.tables["facts"])


def results_of(emitted: pa.Table) -> list[tuple[Any, ...]]:
    rows = []
    for row in emitted.to_pylist():
        assert row["status"] == ("missing" if row["since"] is None else "matched")
        change = [row["_change_type"]] if "_change_type" in row else []
        rows.append((*change, row["k"], row["ts"].timestamp(), row["v"]))
    return sorted(rows, key=str)


def late_of(late: pa.Table) -> list[tuple[Any, ...]]:
    """Late rows as (side, reason, lateness in seconds, value of the row)."""
    rows = []
    for row in late.to_pylist():
        late = row["late"]
        assert all(value is None for name, value in row.items() if name != "late")
        lateness = None if late["lateness"] is None else late["lateness"].total_seconds()
        row = late["row"][late["side"]]
        value = row["n"] if late["side"] == "left" else row["v"]
        rows.append((late["side"], late["reason"], lateness, value))
    return sorted(rows, key=str)
