"""Histories of rows in the order of event time whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops import windows
from streamops.kernel.core import State
from streamops.spark.operator import Operator
from tests.golden.states import EARLY, FOLDER, LAST, LATER, NOW, SCHEMA, SECOND, stored, table

BATCHES = ((EARLY, None), (LATER, NOW + 3 * SECOND), (LAST, NOW + 6 * SECOND))
EARLIER = {
    "origin_before": windows.lag("gate", 2),
    "change": windows.difference("price"),
    "rate": windows.rate("delay"),
}


OVER: dict[str, Any] = {"values": EARLIER, "within": "12 seconds"}
RESAMPLE: dict[str, Any] = {
    "every": "700 milliseconds",
    "values": {"gate": "previous", "delay": "null"},
    "max_gap": "5 seconds",
}
LINEAR = {"values": {"price": "linear", "gate": "linear", "seq": "previous"}}


@dataclass(frozen=True)
class History:
    """Micro-batches, and the watermark each of them closed by."""

    name: str
    make: Callable[..., Operator]
    settings: dict[str, Any]

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.bin"

    @property
    def operator(self) -> Any:
        arguments = {"time": "ts", "by": ("origin",), "tie_break": "seq", "delay": "1 second"}
        return self.make(**arguments | self.settings)

    @property
    def core(self) -> Any:
        return self.operator.core

    @property
    def spec(self) -> Any:
        return self.operator.parameters.resolve((SCHEMA,), carried=(None,), shards=1)

    def state(self) -> State:
        """The core's state after the history."""
        core, spec = self.core, self.spec
        state = State.empty(core.layout(spec))
        for batch, watermark in BATCHES:
            packed = core.pack(spec, table(batch))
            state = core.step(spec, state, [packed], watermark).state
        return state


HISTORIES = [
    History("windows.over-v1", windows.over, OVER),
    History(
        "windows.over-v1-lead",
        windows.over,
        OVER | {"values": EARLIER | {"after": windows.lead("gate")}},
    ),
    History(
        "windows.over-v1-ewma",
        windows.over,
        OVER
        | {
            "values": {
                "short": windows.ewma("delay", half_life="10 milliseconds"),
                "long": windows.ewma("price", half_life="1 hour"),
            }
        },
    ),
    History("windows.resample-v1", windows.resample, RESAMPLE),
    History("windows.resample-v1-linear", windows.resample, RESAMPLE | LINEAR),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(of.core, of.spec, of.state()) for of in HISTORIES}
