"""Histories of sessions whose state is kept as bytes: see ``states``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops.kernel.core import State
from streamops.windows.core.session import SessionCore
from streamops.windows.core.session_spec import SessionSpec
from tests.golden.states import stored
from tests.laws.session_strategies import spec_of, table_of
from tests.laws.strategies import AGGREGATES
from tests.oracles.sessions import SessionOracle

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
NAN = float("nan")
# By name: the aggregates of the laws may grow, these bytes may not change.
AGG = {
    name: AGGREGATES[name]
    for name in [
        "rows",
        "present",
        "sum_n",
        "sum_x",
        "sum_d",
        "mean_n",
        "mean_x",
        "mean_d",
        "min_x",
        "max_word",
        "first_word",
        "last_n",
    ]
}


@dataclass(frozen=True)
class History:
    """Micro-batches of (second, word, number, n, seconds that it lasts, closes), and watermarks."""

    name: str
    settings: dict[str, Any]
    batches: tuple[tuple[list[tuple[Any, ...]], int | None], ...]

    @property
    def file(self) -> Path:
        return Path(__file__).parent / f"{self.name}.bin"

    @property
    def spec(self) -> SessionSpec:
        settings = {"gap": 10 * SECOND, "by": ("word", "number"), "time": "ts", "agg": AGG}
        return spec_of(SessionOracle(**(settings | self.settings)), delay=SECOND)

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(SessionCore().layout(self.spec))
        for seq, (batch, watermark) in enumerate(self.batches):
            rows = [
                (NOW + int(second * SECOND), word, number, n, None, None, seq * 10 + i,
                 int(lasts * SECOND), closes)
                for i, (second, word, number, n, lasts, closes) in enumerate(batch)
            ]  # fmt: skip
            packed = SessionCore().pack(spec, table_of(rows).select(spec.input.names))
            mark = None if watermark is None else NOW + watermark * SECOND
            state = SessionCore().step(spec, state, [packed], mark).state
        return state


FIRST = [
    (0, "a", 0.5, 7, 10, False),
    (9, "a", 0.5, None, 10, False),
    (3, None, -0.0, -4, 5, False),
    (3, None, 0.0, 2**40, 10, True),
    (4, "b", NAN, 1, 10, False),
    (30, "ä", None, 0, 10, False),
]
SECOND_BATCH = [
    (17, "a", 0.5, 3, 10, False),
    (33, "b", NAN, 8, 2, False),
    (5, "new", 1.5, 1, 10, True),
]
THIRD = [(12, "b", NAN, 5, 10, False), (40, "a", 0.5, 1, 10, True), (36, "ä", None, 2, 9, False)]
BATCHES = ((FIRST, None), (SECOND_BATCH, 20), (THIRD, 24))

HISTORIES = [
    History("windows.session-v1-drop", {}, BATCHES),
    History(
        "windows.session-v1-retract",
        {
            "gap_column": "lasts",
            "until": "over",
            "max_length": 12 * SECOND,
            "stragglers": "retract",
            "allowed_lateness": 30 * SECOND,
            "early": "every batch",
        },
        BATCHES,
    ),
    History("windows.session-v1-route", {"stragglers": "route", "gap": 12 * SECOND}, BATCHES),
    History("windows.session-v1-early", {"early": "every batch"}, BATCHES),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(SessionCore, of.spec, of.state()) for of in HISTORIES}
