"""Steps of shards without watermark and timers, behind either of Spark's state APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)

from streamops.kernel.contract import Counts
from streamops.spark.cells import framed
from streamops.spark.packing import NOTHING
from streamops.spark.runners import STORED, Advance, Stored, packs_of
from streamops.spark.workers import settle

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Standing", "Stepping", "untimed"]

Stepping = Callable[
    [Sequence[Any] | None, list[bytes]],
    "tuple[tuple[Any, ...] | None, pd.DataFrame | None]",
]
"""From what Spark stored and the packs of a micro-batch, which may be none, to what Spark shall
store and what comes out; None: all stays as it is, nothing comes out."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The step of a shard where there is no watermark: without rows, all stays as it is.

    Parameters
    ----------
    advance : Advance
        The step where there are rows.
    """

    advance: Advance

    def __call__(
        self, stored: Sequence[Any] | None, packs: list[bytes]
    ) -> tuple[tuple[Any, ...] | None, pd.DataFrame]:
        """Advance by one micro-batch; without rows, only say how much is kept."""
        if any(pack != NOTHING for pack in packs):
            return self.advance(stored, packs, 0)
        before = None if stored is None else Stored(*stored)
        kept = (0, 0) if before is None else (before.entries, len(before.blob))
        return None, framed([], [*astuple(Counts()), *kept, None])


def untimed(packs: DataFrame, step: Stepping, made: str, api: str) -> DataFrame:
    """What the steps of all shards put out.

    Parameters
    ----------
    packs : DataFrame
        As :func:`streamops.spark.inputs.packed` makes it, streaming.
    step : callable
        Of one shard and micro-batch.
    made : str
        The columns of what it puts out.
    api : str
        The state API.
    """
    # Without the event time: were it marked, Spark would ask for a watermark.
    shards = packs.select("shard", "packed").groupBy("shard")
    if api == "applyInPandasWithState":
        return shards.applyInPandasWithState(
            _by_group_state(step), made, STORED, "append", GroupStateTimeout.NoTimeout
        )
    return shards.transformWithStateInPandas(_ShardProcessor(step), made, "append", "None")


def _packs(frames: Iterator[pd.DataFrame]) -> list[bytes]:
    return [pack for pack in packs_of(frames) if pack != NOTHING]


def _by_group_state(step: Stepping) -> Callable[..., Iterator[pd.DataFrame]]:
    def run(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        settle("step")
        stored, made = step(state.get if state.exists else None, _packs(frames))
        if stored is not None:
            state.update(stored)
        if made is not None:
            yield made

    return run


class _ShardProcessor(StatefulProcessor):
    """The processor for ``transformWithStateInPandas``, without timers."""

    def __init__(self, step: Stepping) -> None:
        self.step = step

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one value per shard."""
        settle("step")
        self.stored = handle.getValueState("stored", STORED)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Rows came for the shard, or an empty pack."""
        stored, made = self.step(self.stored.get(), _packs(rows))
        if stored is not None:
            self.stored.update(stored)
        if made is not None:
            yield made

    def close(self) -> None:
        """Nothing is held between calls."""
