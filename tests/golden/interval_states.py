"""Histories of interval joins whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import joins
from streamops.joins.core.interval import IntervalCore
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.kernel.core import State
from streamops.spark.drive import resolve
from streamops.testing.laws import to_rows
from tests.golden.states import FOLDER, NOW, SECOND, stored
from tests.oracles.interval import IntervalOracle

TIME = pa.timestamp("us", tz="UTC")
LEFT = pa.schema(
    [
        ("origin", pa.string()),
        ("gate", pa.float64()),
        ("ts", TIME),
        ("price", pa.decimal128(6, 2)),
        ("place", pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])),
    ]
)
RIGHT = pa.schema(
    [
        ("airport", pa.string()),
        ("door", pa.float64()),
        ("ts", TIME),
        ("seq", pa.int64()),
        ("codes", pa.map_(pa.string(), pa.int64())),
    ]
)
BY = {"origin": "airport", "gate": "door"}

Rows = Sequence[tuple[Any, ...]]
Batch = tuple[Rows, Rows, int | None]
"""Rows of the left as (second, origin, gate), of the right as (second, airport, door, seq); the
second of the watermark."""

NAN = float("nan")
EARLY: Batch = (
    [(0, "JFK", 1.0), (2, "ä", NAN), (3, None, 1.0)],
    [(1, "JFK", 1.0, 11), (4, "EWR", None, 12)],
    None,
)
LATER: Batch = (
    [(6, "JFK", 1.0), (7, "EWR", -0.0)],
    [(6, "ä", NAN, 13), (8, "JFK", 1.0, 14), (8, "JFK", 1.0, 9)],
    3,
)
LAST: Batch = (
    [(9, "LGA", 2.5), (9, "LGA", 2.5), (5, "EWR", 0.0)],
    [(9, "EWR", 0.0, 15), (10, "SFO", 1.0, 16)],
    8,
)


def tables(left: Rows, right: Rows) -> tuple[pa.Table, pa.Table]:
    """Both sides of a micro-batch, all columns filled in."""
    searches = [
        (
            origin,
            gate,
            NOW + s * SECOND,
            Decimal(s) / 4,
            {"x": s, "tags": ["a", None]} if s else None,
        )
        for s, origin, gate in left
    ]
    clicks = [
        (airport, door, NOW + s * SECOND, seq, [("n", seq)]) for s, airport, door, seq in right
    ]
    return _table(searches, LEFT), _table(clicks, RIGHT)


def _table(rows: Rows, schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array(c, pa.int64()).cast(TIME) if f.type == TIME else pa.array(c, f.type)
        for c, f in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, schema=schema)


@dataclass(frozen=True)
class History:
    """Micro-batches, and the watermark each of them decided by."""

    name: str
    settings: dict[str, Any]
    batches: tuple[Batch, ...] = (EARLY, LATER, LAST)

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.bin"

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "how": "inner",
            "matches": "every",
            "tie_break": None,
            "stragglers": "drop",
            "too_late": "drop",
            "early": "never",
        } | {k: v for k, v in self.settings.items() if k in _TERMS}

    @property
    def spec(self) -> IntervalSpec:
        durations = {"delay": "1 second", "allowed_lateness": "0 seconds"} | {
            k: v for k, v in self.settings.items() if k in ("delay", "allowed_lateness")
        }
        lower, upper = self.settings["bounds"]
        by, time = self.settings.get("by", BY), "ts"
        made = joins.interval(
            None,
            lower,
            upper,
            by=by,
            time=time,
            into="status",
            **durations,
            **self.arguments,
        )
        spec = resolve(made, (LEFT, RIGHT), (None, None))
        assert isinstance(spec, IntervalSpec)
        return spec

    @property
    def watermark(self) -> int | None:
        return _instant(self.batches[-1][2])

    def oracle(self) -> IntervalOracle:
        """The oracle, after the history."""
        spec = self.spec
        oracle = IntervalOracle(
            (tuple(LEFT.names), tuple(RIGHT.names)),
            tuple(BY.items()),
            ("ts", "ts"),
            spec.lower,
            spec.upper,
            allowed_lateness=spec.allowed_lateness,
            **self.arguments,
        )
        for left, right, second in self.batches:
            oracle.step(*map(to_rows, tables(left, right)), _instant(second))
        return oracle

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(IntervalCore().layout(self.spec))
        for left, right, second in self.batches:
            state = stepped(spec, state, left, right, _instant(second)).state
        return state


_TERMS = ("how", "matches", "tie_break", "stragglers", "too_late", "early")


def _instant(second: int | None) -> int | None:
    return None if second is None else NOW + second * SECOND


def stepped(
    spec: IntervalSpec, state: State, left: Rows, right: Rows, watermark: int | None
) -> Any:
    """One step of the core."""
    one, other = tables(left, right)
    packed = (
        IntervalCore().pack(spec, one, "left"),
        IntervalCore().pack(spec, other.select(spec.right.schema.names), "right"),
    )
    return IntervalCore().step(spec, state, packed, watermark)


HISTORIES = [
    History("joins.interval-v1-inner", {"bounds": ("-4 seconds", "3 seconds")}),
    History(
        "joins.interval-v1-full",
        {
            "bounds": ("-2 seconds", "2 seconds"),
            "how": "full",
            "stragglers": "retract",
            "allowed_lateness": "20 seconds",
            "early": "every batch",
        },
    ),
    History(
        "joins.interval-v1-first",
        {
            "bounds": ("0 seconds", "5 seconds"),
            "how": "left",
            "matches": "first",
            "tie_break": "seq",
            "stragglers": "retract",
            "allowed_lateness": "20 seconds",
        },
    ),
    History(
        "joins.interval-v1-last",
        {
            "bounds": ("-3 seconds", "3 seconds"),
            "matches": "last",
            "tie_break": "seq",
            "stragglers": "retract",
            "allowed_lateness": "20 seconds",
        },
    ),
    History("joins.interval-v1-anti", {"bounds": ("-1 second", "2 seconds"), "how": "anti"}),
    History("joins.interval-v1-semi", {"bounds": ("-2 seconds", "5 seconds"), "how": "semi"}),
    History("joins.interval-v1-left", {"bounds": ("-2 seconds", "4 seconds"), "how": "left"}),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(IntervalCore, of.spec, of.state()) for of in HISTORIES}
