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
from streamops.spark.garbage_collection import freeze_imports
from streamops.spark.packing import NOTHING
from streamops.spark.runners import STORED, Advance, Stored, packs_of
from streamops.spark.wire import framed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Begin", "Beginning", "Standing", "Stepping", "untimed"]

Stepping = Callable[
    [Sequence[Any] | None, list[bytes]],
    "tuple[tuple[Any, ...] | None, pd.DataFrame | None]",
]
"""From what Spark stored and the packs of a micro-batch, which may be none, to what Spark shall
store and what comes out; None: all stays as it is, nothing comes out."""


Begin = Callable[[Sequence[Any] | None, list[bytes]], tuple[Any, ...]]
"""From what Spark stored, if anything, and packs that were there before the first micro-batch, to
what Spark shall store."""


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
            after, made = self.advance(stored, packs, 0)
            return (None if stored is not None and tuple(stored) == after else after), made
        before = None if stored is None else Stored(*stored)
        kept = (0, 0) if before is None else (before.entries, len(before.blob))
        return None, framed([], [*astuple(Counts()), *kept, None])


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a shard begins with: packs of the right side, as the ``begin`` of its core takes them.

    Parameters
    ----------
    advance : Advance
        The step, of a core with two inputs.
    """

    advance: Advance

    def __call__(self, stored: Sequence[Any] | None, packs: list[bytes]) -> tuple[Any, ...]:
        """Put the packs into the state."""
        core: Any = self.advance.core
        spec, known = self.advance.spec, self.advance.known
        state = core.empty(spec)
        if stored is not None:
            state = Stored(*stored).state(known, where=self.advance.operator)
        _, rows = self.advance.opener(core, spec, packs)
        return astuple(Stored.of(core.begin(spec, state, rows), known))


def untimed(
    packs: DataFrame,
    step: Stepping,
    made: str,
    api: str,
    begun: tuple[DataFrame, Begin] | None = None,
) -> DataFrame:
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
    begun : tuple of DataFrame and callable, optional
        Packs of a batch frame that the state begins with, and what is made of them; not with
        applyInPandasWithState.
    """
    # Without the event time: were it marked, Spark would ask for a watermark.
    shards = packs.select("shard", "packed").groupBy("shard")
    if api == "applyInPandasWithState":
        return shards.applyInPandasWithState(
            _by_group_state(step), made, STORED, "append", GroupStateTimeout.NoTimeout
        )
    if begun is None:
        return shards.transformWithStateInPandas(_ShardProcessor(step), made, "append", "None")
    first, begin = begun
    processor = _ShardProcessor(step, begin)
    return shards.transformWithStateInPandas(
        processor,
        made,
        "append",
        "None",
        initialState=first.select("shard", "packed").groupBy("shard"),
    )


def _packs(frames: Iterator[pd.DataFrame]) -> list[bytes]:
    return [pack for pack in packs_of(frames) if pack != NOTHING]


def _by_group_state(step: Stepping) -> Callable[..., Iterator[pd.DataFrame]]:
    def run(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        freeze_imports("step")
        stored, made = step(state.get if state.exists else None, _packs(frames))
        if stored is not None:
            state.update(stored)
        if made is not None:
            yield made

    return run


class _ShardProcessor(StatefulProcessor):
    """The processor for ``transformWithStateInPandas``, without timers."""

    def __init__(self, step: Stepping, begin: Begin | None = None) -> None:
        self.step, self.begin = step, begin

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one value per shard."""
        freeze_imports("step")
        self.stored = handle.getValueState("stored", STORED)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Rows that were there before the first micro-batch, in as many pieces as Spark likes."""
        packs = _packs(iter([initialState]))
        if packs and self.begin is not None:
            self.stored.update(self.begin(self.stored.get(), packs))

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
