"""One step of a clock per micro-batch, in one group, behind either of Spark's state APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)

from streamops.kernel.clocks import ClockCore, ClockMetrics, ClockSpec
from streamops.kernel.codec import ipc_read
from streamops.kernel.columns import concat
from streamops.kernel.contract import State
from streamops.spark.garbage_collection import freeze_imports
from streamops.spark.packing import NOTHING
from streamops.spark.runners import STORED, Known, Stored, packs_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TICKED", "TICKED_NAMES", "TickProcessor", "Ticking", "by_one_group"]

_PLACES = 1
"""A clock is never spread: all of it is in the one group."""

TICKED_NAMES = (*(f.name for f in fields(ClockMetrics)), "state_bytes")
_TEXT = ("held_by", "led_by")
TICKED = ", ".join(f"{name} {'string' if name in _TEXT else 'bigint'}" for name in TICKED_NAMES)
"""One row per micro-batch: what the step tells. Instants are microseconds."""


@dataclass(frozen=True, slots=True)
class Ticking:
    """The step of a clock, from what Spark stored to what Spark shall store.

    Parameters
    ----------
    operator : str
        For errors.
    core, spec : the clock
    """

    operator: str
    core: ClockCore
    spec: ClockSpec

    def __call__(
        self, stored: Sequence[Any] | None, packs: list[bytes]
    ) -> tuple[tuple[Any, ...], pd.DataFrame]:
        """Advance by one micro-batch.

        Parameters
        ----------
        stored : sequence, optional
            Fields of :class:`Stored`; None where Spark has nothing yet.
        packs : list of bytes
            What the tasks of this micro-batch summed up.
        """
        import pandas as pd

        packed = [ipc_read(pack) for pack in packs if pack != NOTHING]
        rows = concat(packed or [self.core.pack(self.spec, self.spec.input.empty_table())])
        tick = self.core.step(self.spec, self._state(stored), rows)
        kept = Stored.of(tick.state, self._known)
        told = (*astuple(tick.told), len(kept.blob))
        # As objects: an integer that may be missing would become a float.
        return astuple(kept), pd.DataFrame([told], columns=[*TICKED_NAMES], dtype=object)

    def _state(self, stored: Sequence[Any] | None) -> State:
        if stored is None:
            return self.core.empty(self.spec)
        return Stored(*stored).state(self._known, where=self.operator)

    @property
    def _known(self) -> Known:
        return self.core.STATE, self.spec.identity, _PLACES


def by_one_group(ticking: Ticking) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for ``applyInPandasWithState`` without timeouts."""

    def run(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        freeze_imports("tick")
        stored, frame = ticking(state.get if state.exists else None, packs_of(frames))
        state.update(stored)
        yield frame

    return run


class TickProcessor(StatefulProcessor):
    """The processor for ``transformWithStateInPandas`` without timers."""

    def __init__(self, ticking: Ticking) -> None:
        self.ticking = ticking

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one value."""
        freeze_imports("tick")
        self.stored = handle.getValueState("stored", STORED)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """The sums of all tasks of a micro-batch."""
        stored, frame = self.ticking(self.stored.get(), packs_of(rows))
        self.stored.update(stored)
        yield frame

    def close(self) -> None:
        """Nothing is held between calls."""
