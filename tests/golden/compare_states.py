"""Histories of comparisons whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import windows
from streamops.kernel.core import State
from streamops.testing.laws import to_rows
from streamops.windows.core.compare import CompareCore
from streamops.windows.core.compare_spec import CompareSpec
from tests.golden.states import AUTUMN, FOLDER, HOUR, stored
from tests.oracles.compare import CompareOracle

INSTANT = pa.timestamp("us", tz="UTC")
PLAIN = pa.schema(
    [
        ("origin", pa.string()),
        ("gate", pa.float64()),
        ("window_start", INSTANT),
        ("window_end", INSTANT),
        ("n", pa.int64()),
        ("price", pa.decimal128(6, 2)),
    ]
)
CHANGES = PLAIN.append(pa.field("revision", pa.int32())).append(
    pa.field("_change_type", pa.string())
)

Batch = list[tuple[Any, ...]]


@dataclass(frozen=True)
class History:
    """Micro-batches of windows of an hour, and the watermark each of them closed by, in hours."""

    name: str
    settings: dict[str, Any]
    schema: pa.Schema
    batches: tuple[tuple[Batch, int], ...]

    @property
    def file(self) -> Any:
        return FOLDER / f"{self.name}.bin"

    @property
    def spec(self) -> CompareSpec:
        arguments = {
            "zone": None,
            "values": ("n", "price"),
            "by": ("origin", "gate"),
            "delay": "1 second",
            "allowed_lateness": "0 seconds",
            "stragglers": "drop",
            "too_late": "drop",
        } | self.settings
        return windows.compare(**arguments).parameters.resolve(
            (self.schema,), carried=(None,), shards=1
        )

    def table(self, rows: Batch) -> pa.Table:
        """Rows of (hour, origin, gate, n, price, revision, change)."""
        cells = [
            (origin, gate, AUTUMN + hour * HOUR, AUTUMN + (hour + 1) * HOUR, n, price, *rest)
            for hour, origin, gate, n, price, *rest in rows
        ]
        columns = zip(*cells, strict=True) if cells else [()] * len(self.schema)
        arrays = [
            pa.array(column, pa.int64() if field.type == INSTANT else field.type).cast(field.type)
            for column, field in zip(columns, self.schema, strict=False)
        ]
        return pa.table(arrays, schema=self.schema)

    def oracle(self) -> CompareOracle:
        """The oracle, after the history."""
        spec = self.spec
        oracle = CompareOracle(
            period=self.settings["period"] if "zone" in self.settings else 2 * HOUR,
            by=spec.by,
            values=spec.values,
            zone=self.settings.get("zone", ""),
            revised=spec.revised,
            allowed_lateness=spec.allowed_lateness,
            stragglers=spec.stragglers,
            periods=spec.periods,
            threshold=spec.threshold,
            min_periods=spec.fewest,
        )
        for batch, hour in self.batches:
            oracle.step(to_rows(self.table(batch)), AUTUMN + hour * HOUR)
        return oracle

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(CompareCore().layout(self.spec))
        for batch, hour in self.batches:
            packed = CompareCore().pack(spec, self.table(batch))
            state = CompareCore().step(spec, state, [packed], AUTUMN + hour * HOUR).state
        return state

    @property
    def watermark(self) -> int:
        return AUTUMN + self.batches[-1][1] * HOUR


NAN = float("nan")
HISTORIES = [
    History(
        "windows.compare-v1-drop",
        {"period": "2 hours"},
        PLAIN,
        (
            ([(0, "EWR", 0.5, 4, Decimal("9.99")), (1, None, NAN, None, None)], 1),
            ([(2, "EWR", 0.5, 6, Decimal("-0.05")), (3, None, NAN, 2**40, None)], 3),
        ),
    ),
    History(
        "windows.compare-v1-band",
        {
            "period": "2 hours",
            "periods": 3,
            "stragglers": "update",
            "allowed_lateness": "4 hours",
        },
        PLAIN,
        (
            (
                [
                    (0, "EWR", 0.5, 4, Decimal("9.99")),
                    (1, "ä", None, 2**60, None),
                    (2, "EWR", 0.5, 6, Decimal("1.50")),
                ],
                3,
            ),
            ([(4, "EWR", 0.5, 9, Decimal("0.00")), (3, "ä", None, 2**60 + 1, None)], 4),
        ),
    ),
    # Over the night in which the clock of New York is put back.
    History(
        "windows.compare-v1-retract",
        {
            "period": "day",
            "zone": "America/New_York",
            "stragglers": "retract",
            "allowed_lateness": "1 day",
        },
        CHANGES,
        (
            (
                [
                    (20, "EWR", 0.5, 4, Decimal("9.99"), 0, "insert"),
                    (30, "ä", None, 7, None, 0, "insert"),
                    (45, "EWR", 0.5, 5, Decimal("1.00"), 0, "insert"),
                ],
                46,
            ),
            (
                [
                    (20, "EWR", 0.5, 4, Decimal("9.99"), 0, "update_preimage"),
                    (20, "EWR", 0.5, 3, Decimal("9.99"), 1, "update_postimage"),
                    (30, "ä", None, 7, None, 0, "delete"),
                    (50, "ä", None, 1, None, 2, "insert"),
                ],
                47,
            ),
        ),
    ),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(CompareCore, of.spec, of.state()) for of in HISTORIES}
