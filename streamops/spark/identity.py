"""Which query, and which run of it, delivers a micro-batch; and what a stopped one leaves in this process."""

from __future__ import annotations

import functools
import json
import logging
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
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
_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""Where Spark puts the checkpoint of a query that names none, until the query stops."""
NO_CHECKPOINT = (
    "the query has no checkpointLocation, so its checkpoint is a temporary folder that Spark deletes: the next start "
    "reads everything again, as another query, which sinks refuse; set "
    'writeStream.option("checkpointLocation", ...)'
)


class Identity(NamedTuple):
    """The identifiers of a query.

    Parameters
    ----------
    query : str
        From the metadata of the checkpoint: the same after a restart.
    run : str
        Another one at every start.
    offsets : tuple of str
        Where each source is after the micro-batch, in Spark's JSON. Empty if that is not known.
    is_temporary : bool
        Whether the query is known to have no ``checkpointLocation``, so that the next start is a new query.
    """

    query: str
    run: str
    offsets: tuple[str, ...] = ()
    is_temporary: bool = False


def refuse_worker_python(frame: DataFrame) -> None:
    """Refuse a local session whose workers run a Python without the packages that operators need.

    A session that was not made by streamops starts the first ``python3`` on ``PATH``, and the query would fail in a
    task. Elsewhere, the driver does not see the machines of the workers.

    Raises
    ------
    RequirementError
        ``PACKAGE_MISSING``.
    """
    session: Any = frame.sparkSession
    if not hasattr(session, "_jsparkSession") or not session.sparkContext.master.startswith(
        "local"
    ):
        return
    problem = _missing_in(session.sparkContext.pythonExec)
    if problem:
        raise conditions.OTHER_PYTHON.error(driver=sys.executable, got=problem)


@functools.cache
def _missing_in(executable: str) -> str:
    """What a Python of workers lacks; "" if nothing, or if that is not known."""
    path = shutil.which(executable)
    # No links are followed: the Python of a virtual environment is a link, and has packages of its own.
    if path is not None and Path(path).absolute() == Path(sys.executable).absolute():
        return ""
    if path is None:
        return f"{executable}, which is not on PATH"
    try:
        command = [path, "-c", "import numpy, pandas, pyarrow"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{path}: {done.stderr.strip().splitlines()[-1:]}" if done.returncode else ""


def unload_state_stores() -> None:
    """Unload the state stores of stopped queries, if they are in this process.

    Up to ``spark.sql.streaming.stateStore.maintenanceInterval`` after its query has stopped, a state store may
    still write a snapshot. Executors of a cluster, and servers of Connect, are not reached.
    """
    spark: Any = SparkSession.getActiveSession()
    if spark is not None and hasattr(spark, "_jsparkSession") and not spark.streams.active:
        spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def identify(batch: DataFrame, batch_id: int, checkpoint: str | None) -> Identity:
    """Return the query that delivers a micro-batch to ``foreachBatch``.

    A classic session knows it, and its offsets. Under Connect both are in the `checkpoint`.

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
            return Identity(query, run, _offsets(session, query, batch_id))
    elif checkpoint is not None:
        paths = [f"{checkpoint.rstrip('/')}/{name}" for name in ("metadata", f"offsets/{batch_id}")]
        first, second = sorted(row[0] for row in session.read.text(paths, wholetext=True).collect())
        text, plan = (first, second) if first.startswith("{") else (second, first)
        return Identity(json.loads(text)["id"], _THIS_PROCESS, parse_offsets(plan.splitlines()[2:]))
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
    identity = identify(batch, batch_id, checkpoint)
    session: Any = batch.sparkSession
    is_first = identity.run not in _COMPARED
    _COMPARED.add(identity.run)
    if is_first and hasattr(session, "_jsparkSession"):
        try:
            query = _execution(session, identity.query)
            plan, path = query.analyzedPlan().toString(), query.resolvedCheckpointRoot()
            if batch_id:
                compare(session, plan, path, batch=batch_id - 1)
            elif _TEMPORARY.search(path):
                identity = identity._replace(is_temporary=True)
                _LOG.warning(NO_CHECKPOINT)
        except StreamopsError:
            raise
        except Exception as error:
            _LOG.info("the state is compared by the tasks, not by the driver: %s", error)
    return identity


@contextmanager
def name_cause(identity: Identity) -> Iterator[None]:
    """State about a query without ``checkpointLocation`` that this is why a target takes it for another one."""
    try:
        yield
    except StreamopsError as error:
        if error.code == "NEW_CHECKPOINT" and identity.is_temporary:
            fix = f"{NO_CHECKPOINT}, the same at every start. For the rows that are there: {error.fix}"
            raise error.replace(fix=fix) from None
        raise


def parse_offsets(lines: Iterable[str]) -> tuple[str, ...]:
    """Where each source is, from the lines of a plan after its metadata. Empty: it has no offset yet.

    Examples
    --------
    >>> parse_offsets(['{"logOffset":3}', "-"])
    ('{"logOffset":3}', '')
    """
    return tuple("" if line == "-" else line for line in lines)


def _execution(session: Any, query: str) -> Any:
    """What runs a query, in the JVM of a classic session."""
    running = session._jsparkSession.sharedState().activeStreamingQueries()
    return running.get(session._jvm.java.util.UUID.fromString(query))


def _offsets(session: Any, query: str, batch_id: int) -> tuple[str, ...]:
    try:
        offsets = _execution(session, query).offsetLog().get(batch_id).get().offsets().iterator()
        found = []
        while offsets.hasNext():
            of = offsets.next()
            found.append(of.get().json() if of.isDefined() else "-")
        return parse_offsets(found)
    except Exception as error:
        _LOG.info("the ledger does not get the offsets of the micro-batch: %s", error)
        return ()


def parallelism(frame: DataFrame) -> int:
    """How many tasks run at a time; under Connect, whose clients do not know, as many as a shuffle has."""
    session: Any = frame.sparkSession
    if hasattr(session, "_jsparkSession"):
        return int(session.sparkContext.defaultParallelism)
    return int(session.conf.get("spark.sql.shuffle.partitions"))
