"""The files with which Spark describes an operator behind a state API: those of a query without rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from streamops.environment.settings import PARTITIONS
from streamops.spark.drive import Query
from streamops.spark.packing import PACKED, PACKED_ARROW, mark_watermark
from streamops.spark.processors import run_steps
from streamops.state.checkpoint import Checkpoint
from streamops.state.shards import OperatorState
from streamops.state.stores import StoredOperator, read_shards


@dataclass(frozen=True, slots=True)
class Template:
    """A checkpoint in which the operator has another state API, and no state.

    Parameters
    ----------
    checkpoint : Checkpoint
        The checkpoint.
    stored : StoredOperator
        The operator in it.
    """

    checkpoint: Checkpoint
    stored: StoredOperator

    def convert_timers(self, state: OperatorState) -> OperatorState:
        """The state with timers of this API instead of the other one."""
        if state.timer is None:
            return state
        # A timeout fires behind a watermark, a timer at one. At the start there is no watermark, and both are 1.
        moved = state.timer + 1 if self.stored.files.has_variables else state.timer - 1
        return replace(state, timer=max(moved, 1) if state.timer > 1 else 1)


@contextmanager
def open_template(
    spark: SparkSession, query: Query, api: str, settings: Mapping[str, str]
) -> Iterator[Template]:
    """Run the step of an operator behind a state API, in a query without rows.

    Parameters
    ----------
    spark : SparkSession
        A classic session. The query has a session of its own.
    query : Query
        The operator over its frames.
    api : str
        The state API.
    settings : mapping of str to str
        Those of the checkpoint.
    """
    with tempfile.TemporaryDirectory(prefix="streamops-template-") as name:
        folder, session = Path(name), spark.newSession()
        for key, value in {**settings, PARTITIONS: "1"}.items():
            session.conf.set(key, value)
        (folder / "packs").mkdir()
        pq.write_table(PACKED_ARROW.empty_table(), folder / "packs" / "none.parquet")
        packs = session.readStream.schema(PACKED).parquet(str(folder / "packs"))
        has_time = query.spark_delay is not None
        if has_time:
            packs = mark_watermark(packs.withWatermark("event_time", "0 seconds"), 0)
        emitted: Any = run_steps(packs, query.step, api, event_time=has_time)
        writer = emitted.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
        checkpoint = Checkpoint(folder / "checkpoint")
        stored = read_shards(session, checkpoint, checkpoint.operators[0])
        assert stored is not None, "an operator of another library"
        yield Template(checkpoint, stored)
