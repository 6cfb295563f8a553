"""Histories of rolling aggregates whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.core import State
from streamops.testing.laws import to_rows
from streamops.windows.core.rolling import RollingCore, RollingSpec
from tests.golden.states import AGG, EARLY, FOLDER, LAST, LATER, NOW, SCHEMA, SECOND, stored, table
from tests.oracles.rolling import RollingOracle

BATCHES = ((EARLY, None), (LATER, NOW + 3 * SECOND), (LAST, NOW + 6 * SECOND))


@dataclass(frozen=True)
class History:
    """Micro-batches, and the watermark each of them closed by."""

    name: str
    settings: dict[str, Any]

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.bin"

    @property
    def spec(self) -> RollingSpec:
        arguments = {
            "every": "2 seconds",
            "horizons": {"4s": "4 seconds", "12s": "12 seconds"},
            "time": "ts",
            "by": ("origin", "gate"),
            "agg": AGG,
            "delay": "1 second",
        } | self.settings
        made: Any = windows.rolling(**arguments).parameters
        return made.resolve((SCHEMA,), carried=(None,), shards=1)

    @property
    def watermark(self) -> int | None:
        return BATCHES[-1][1]

    def oracle(self) -> RollingOracle:
        """The oracle, after the history."""
        spec = self.spec
        oracle = RollingOracle(
            spec.every,
            dict(spec.horizons),
            spec.by,
            "ts",
            dict(spec.agg),  # type: ignore[arg-type]
            stragglers=spec.stragglers,
        )
        for batch, watermark in BATCHES:
            oracle.step(to_rows(table(batch)), watermark)
        return oracle

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(RollingCore().layout(self.spec))
        for batch, watermark in BATCHES:
            packed = RollingCore().pack(spec, table(batch))
            state = RollingCore().step(spec, state, [packed], watermark).state
        return state


HISTORIES = [
    History("windows.rolling-v1-rows", {}),
    History("windows.rolling-v1-panes", {"agg": {"n": agg.count()}, "stragglers": "route"}),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(RollingCore, of.spec, of.state()) for of in HISTORIES}
