"""Histories of functions of other rows whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops import windows
from streamops.kernel.core import State
from streamops.windows.core.over import OverCore, OverSpec
from tests.golden.states import EARLY, FOLDER, LAST, LATER, NOW, SCHEMA, SECOND, stored, table

BATCHES = ((EARLY, None), (LATER, NOW + 3 * SECOND), (LAST, NOW + 6 * SECOND))
EARLIER = {
    "origin_before": windows.lag("gate", 2),
    "change": windows.difference("price"),
    "rate": windows.rate("delay"),
}


@dataclass(frozen=True)
class History:
    """Micro-batches, and the watermark each of them closed by."""

    name: str
    settings: dict[str, Any]

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.bin"

    @property
    def spec(self) -> OverSpec:
        arguments = {
            "time": "ts",
            "by": ("origin",),
            "tie_break": "seq",
            "values": EARLIER,
            "within": "12 seconds",
            "delay": "1 second",
        } | self.settings
        made: Any = windows.over(**arguments).parameters
        return made.resolve((SCHEMA,), carried=(None,), shards=1)

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(OverCore().layout(self.spec))
        for batch, watermark in BATCHES:
            packed = OverCore().pack(spec, table(batch))
            state = OverCore().step(spec, state, [packed], watermark).state
        return state


HISTORIES = [
    History("windows.over-v1", {}),
    History("windows.over-v1-lead", {"values": EARLIER | {"after": windows.lead("gate")}}),
    History(
        "windows.over-v1-ewma",
        {
            "values": {
                "short": windows.ewma("delay", half_life="10 milliseconds"),
                "long": windows.ewma("price", half_life="1 hour"),
            }
        },
    ),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(OverCore, of.spec, of.state()) for of in HISTORIES}
