"""Steps of shards behind Spark's two state APIs, with and without event time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streamops.kernel.prompt import prompt
from streamops.kernel.versions import require_whole_positions
from streamops.spark.packing import EMITTED, freeze_imports
from streamops.spark.state_rows import STATE_SCHEMA, Begin, read_group
from streamops.spark.step import ShardStep

if TYPE_CHECKING:
    import pandas as pd


def run_steps(
    packs: DataFrame,
    step: ShardStep[Any],
    api: str,
    *,
    event_time: bool,
    initial: tuple[DataFrame, Begin] | None = None,
) -> DataFrame:
    """Run the step of every shard in every micro-batch.

    Parameters
    ----------
    packs : DataFrame
        Columns ``shard, packed, event_time``, streaming; with a watermark if ``event_time``.
    step : ShardStep
    api : str
        The state API.
    event_time : bool
        Whether the steps follow the watermark. Then every shard is visited when it moves.
    initial : tuple of DataFrame and callable, optional
        Packs of a batch frame that the state starts with, and the function that stores them; only
        with transformWithStateInPandas and without event time.

    Returns
    -------
    DataFrame
        Columns of :data:`streamops.spark.packing.EMITTED`.
    """
    # Without event time the column must go: Spark would ask for a watermark.
    shards = (packs if event_time else packs.select("shard", "packed")).groupBy("shard")
    if api == "applyInPandasWithState":
        timeout = GroupStateTimeout.EventTimeTimeout if event_time else GroupStateTimeout.NoTimeout
        require_whole_positions(api, "transformWithStateInPandas, since Spark 4.0")
        function = _state_function(step, event_time)
        return shards.applyInPandasWithState(function, EMITTED, STATE_SCHEMA, "append", timeout)
    # Imported here: Spark 3.5 has no such processors.
    from streamops.spark.shard_processor import ShardProcessor

    mode = "EventTime" if event_time else "None"
    if initial is None:
        processor = ShardProcessor(step, event_time)
        return shards.transformWithStateInPandas(processor, EMITTED, "append", mode)
    rows, begin = initial
    return shards.transformWithStateInPandas(
        ShardProcessor(step, event_time, begin),
        EMITTED,
        "append",
        mode,
        initialState=rows.select("shard", "packed").groupBy("shard"),
    )


def _state_function(
    step: ShardStep[Any], event_time: bool
) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for ``applyInPandasWithState``."""

    def run(
        key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        freeze_imports("step")
        before = state.get if state.exists else None
        packs = [] if event_time and state.hasTimedOut else read_group(frames)
        watermark = state.getCurrentWatermarkMs() if event_time else None
        after, emitted = step(before, packs, watermark, shard=key[0])
        if event_time:
            # A timed-out group that is neither updated nor removed would fire in every batch.
            stored = before if after is None else after
            assert stored is not None, "the first step stores the watermark"
            state.update(stored)
            # Fires once the watermark has moved: each shard follows every watermark.
            state.setTimeoutTimestamp(max(watermark or 0, 1))
        elif after is not None:
            state.update(after)
        yield emitted

    return prompt(run)
