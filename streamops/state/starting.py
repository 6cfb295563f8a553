"""Compare a query with a checkpoint before it starts."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from streamops.kernel.versions import require_state_reader
from streamops.spark.metadata import plan_text
from streamops.spark.starting import compare


def check(frame: DataFrame, checkpoint: str | Path) -> None:
    """Compare the operators of a query with a checkpoint, before the query starts.

    A query with other parameters, another number of shards, or another release is refused anyway: by
    the sinks of streamops in a classic session before the first task starts, and by the tasks elsewhere. This
    function refuses it before ``start()``, in any session and with any sink.

    Parameters
    ----------
    frame : DataFrame
        The frame that the query writes.
    checkpoint : path
        The checkpoint of the query, which may be running; any path that Spark can read. A
        checkpoint that does not exist yet is accepted.

    Raises
    ------
    StateFormatError
        ``STATE_PARAMETERS``, ``STATE_SHARDS``, ``STATE_VERSION``: as when a task reads the state.
    RequirementError
        ``VERSION_NOT_SUPPORTED``: Spark cannot read state stores.

    Examples
    --------
    >>> from streamops import state
    >>> state.check(hourly, "/data/checkpoint")
    >>> hourly.writeStream.option("checkpointLocation", "/data/checkpoint").toTable("hourly")

    Notes
    -----
    Operators are compared in the order of their numbers in the checkpoint. If the query has other operators than the checkpoint,
    nothing is compared: ``python -m streamops doctor CHECKPOINT`` lists those of the checkpoint. It reads
    one shard of each operator.
    """
    require_state_reader()
    compare(frame.sparkSession, plan_text(frame), str(checkpoint).rstrip("/"))
