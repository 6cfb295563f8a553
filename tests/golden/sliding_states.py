"""Histories of sliding windows whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops import windows
from streamops.kernel.core import State
from streamops.testing.laws import to_rows
from streamops.windows.core.sliding import SlidingCore
from streamops.windows.core.sliding_spec import SlidingSpec
from tests.golden.states import AGG, EARLY, FOLDER, LAST, LATER, NOW, SCHEMA, SECOND, stored, table
from tests.oracles.sliding import SlidingOracle


@dataclass(frozen=True)
class History:
    """Micro-batches, and the watermark each of them closed by."""

    name: str
    settings: dict[str, Any]
    batches: tuple[tuple[list[tuple[Any, ...]], int | None], ...]

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.bin"

    @property
    def spec(self) -> SlidingSpec:
        arguments = {
            "time": "ts",
            "by": ("origin", "gate"),
            "agg": AGG,
            "delay": "1 second",
            "allowed_lateness": "0 seconds",
            "stragglers": "drop",
            "too_late": "drop",
            "early": "never",
        } | self.settings
        settings = windows.sliding(arguments.pop("size"), **arguments).parameters
        return settings.resolve((SCHEMA,), carried=(None,), shards=1)

    @property
    def watermark(self) -> int | None:
        return self.batches[-1][1]

    def oracle(self) -> SlidingOracle:
        """The oracle, after the history."""
        spec = self.spec
        oracle = SlidingOracle(
            spec.size,
            spec.by,
            spec.time,
            AGG,
            spec.allowed_lateness,
            spec.stragglers,
            early=spec.early,
        )
        for batch, watermark in self.batches:
            oracle.step(to_rows(table(batch)), watermark)
        return oracle

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(SlidingCore().layout(self.spec))
        for batch, watermark in self.batches:
            packed = SlidingCore().pack(spec, table(batch))
            state = SlidingCore().step(spec, state, [packed], watermark).state
        return state


HISTORIES = [
    History(
        "windows.sliding-v1-drop",
        {"size": "10 seconds"},
        ((EARLY, None), (LATER, NOW + 3 * SECOND), (LAST, NOW + 6 * SECOND)),
    ),
    History(
        "windows.sliding-v1-retract",
        {"size": "5 seconds", "stragglers": "retract", "allowed_lateness": "20 seconds"},
        ((EARLY, NOW + 7 * SECOND), (LATER, NOW + 12 * SECOND), (LAST, NOW + 13 * SECOND)),
    ),
    History(
        "windows.sliding-v1-update",
        {"size": "7 seconds", "stragglers": "update", "allowed_lateness": "20 seconds"},
        ((EARLY, NOW + 7 * SECOND), (LATER, NOW + 12 * SECOND), (LAST, NOW + 13 * SECOND)),
    ),
    History(
        "windows.sliding-v1-early",
        {
            "size": "5 seconds",
            "stragglers": "retract",
            "allowed_lateness": "20 seconds",
            "early": "every batch",
        },
        ((EARLY, NOW + 2 * SECOND), (LATER, NOW + 5 * SECOND), (LAST, NOW + 8 * SECOND)),
    ),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(SlidingCore, of.spec, of.state()) for of in HISTORIES}
