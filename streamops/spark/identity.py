"""Which query, and which run of it, delivers a micro-batch; and what a stopped one leaves in this process."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from streamops.kernel.errors import StreamopsError
from streamops.spark import conditions
from streamops.spark.starting import compare

_QUERY = "sql.streaming.queryId"
_RUN = "spark.jobGroup.id"
# Under Connect, a Python worker of the server serves one run.
_THIS_PROCESS = str(uuid.uuid4())
_COMPARED = set[str]()
"""Runs whose state was compared with their plan."""
_LOG = logging.getLogger("streamops.state")


class Identity(NamedTuple):
    """The identifiers of a query.

    Parameters
    ----------
    query : str
        From the metadata of the checkpoint: the same after a restart.
    run : str
        Another one at every start.
    """

    query: str
    run: str


def unload_state_stores() -> None:
    """Unload the state stores of stopped queries, if they are in this process.

    Up to ``spark.sql.streaming.stateStore.maintenanceInterval`` after its query has stopped, a state store may
    still write a snapshot. Executors of a cluster, and servers of Connect, are not reached.
    """
    spark: Any = SparkSession.getActiveSession()
    if spark is not None and hasattr(spark, "_jsparkSession") and not spark.streams.active:
        spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def identify(batch: DataFrame, checkpoint: str | None) -> Identity:
    """Return the query that delivers a micro-batch to ``foreachBatch``.

    A classic session knows it. Under Connect it is in the metadata of the `checkpoint`.

    Raises
    ------
    SinkError
        ``QUERY_UNKNOWN``: not in ``foreachBatch``, or under Connect without `checkpoint`.
    """
    session: Any = batch.sparkSession
    if hasattr(session, "_jsparkSession"):
        context = session.sparkContext
        query, run = context.getLocalProperty(_QUERY), context.getLocalProperty(_RUN)
        if query is not None and run is not None:
            return Identity(query, run)
    elif checkpoint is not None:
        text = session.read.text(f"{checkpoint.rstrip('/')}/metadata").first()
        return Identity(json.loads(text[0])["id"], _THIS_PROCESS)
    raise conditions.QUERY_UNKNOWN.error(
        got="a call outside of foreachBatch, or a Spark Connect session without `checkpoint`"
    )


def begin_run(batch: DataFrame, batch_id: int, checkpoint: str | None) -> Identity:
    """Identify a query as :func:`identify`, and compare its plan with its checkpoint.

    A restarted query is compared at its first micro-batch, before a task reads the state. Only a classic session knows
    the plan of a query. Elsewhere, the tasks compare what they read.

    Raises
    ------
    SinkError
        ``QUERY_UNKNOWN``.
    StateFormatError
        The state was written with other parameters, another number of shards, or another release.
    """
    identity = identify(batch, checkpoint)
    session: Any = batch.sparkSession
    is_first = identity.run not in _COMPARED
    _COMPARED.add(identity.run)
    if is_first and batch_id and hasattr(session, "_jsparkSession"):
        try:
            running = session._jsparkSession.sharedState().activeStreamingQueries()
            query = running.get(session._jvm.java.util.UUID.fromString(identity.query))
            plan, path = query.analyzedPlan().toString(), query.resolvedCheckpointRoot()
            compare(session, plan, path, batch=batch_id - 1)
        except StreamopsError:
            raise
        except Exception as error:
            _LOG.info("the state is compared by the tasks, not by the driver: %s", error)
    return identity


def parallelism(frame: DataFrame) -> int:
    """How many tasks run at a time; under Connect, whose clients do not know, as many as a shuffle has."""
    session: Any = frame.sparkSession
    if hasattr(session, "_jsparkSession"):
        return int(session.sparkContext.defaultParallelism)
    return int(session.conf.get("spark.sql.shuffle.partitions"))
