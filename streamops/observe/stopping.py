"""Stop a query after its present micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from streamops.kernel.errors import located
from streamops.kernel.time import Duration, parse_duration
from streamops.kernel.versions import progress_of
from streamops.observe.history import not_a_query

_TICK = 0.001  # seconds
_PLANNING = 0.05  # seconds: Spark needs longer to write the offsets and to plan a micro-batch
# Spark requests the end of its sources, before it writes the offsets of the next micro-batch.
_BETWEEN = "Getting offsets"
_ENDED = ("Stopped", "Terminated")


@located("observe.stop_after_batch")
def stop_after_batch(query: Any, *, timeout: Duration = "5 minutes") -> bool:
    """Stop a query at the end of its present micro-batch, so that nothing is computed twice.

    ``query.stop()`` interrupts a micro-batch: the next start computes it again, and a sink in
    ``foreachBatch`` is called again with it.

    Parameters
    ----------
    query : StreamingQuery
        The query, of a classic session or of Spark Connect, with any trigger.
    timeout : duration
        How long to wait for the end of the micro-batch. The query is interrupted after this time.

    Returns
    -------
    bool
        Whether the query was stopped between two micro-batches, or had ended; False if it was
        interrupted after `timeout`.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, or a duration that is not one.

    Examples
    --------
    >>> observe.stop_after_batch(query, timeout="2 minutes")
    True

    Notes
    -----
    Spark has no such request. The function reads the status of the query until it is between two
    micro-batches, and stops it there. If the next micro-batch begins in the milliseconds between, it
    is interrupted, mostly before it computes anything. In no case are rows lost, or written twice by
    a sink with a ledger.

    See Also
    --------
    supervise : run queries as one job, which ends like this on SIGTERM.
    """
    limit = parse_duration(timeout, parameter="timeout", minimum=0)
    require_query(query)
    end = time.monotonic() + limit / 1e6
    return stop_between(query, lambda: time.monotonic() >= end)


def stop_between(query: Any, is_overdue: Callable[[], bool]) -> bool:
    """Stop a query between two micro-batches, or when it is overdue; whether it was between them."""
    batch, since = _last_batch(query), time.monotonic()
    if not query.isActive:
        return True
    # Few requests, so that little time passes between an answer and the stop.
    while not (status := query.status)["message"].startswith(_ENDED):
        is_between = is_idle(status) or status["message"].startswith(_BETWEEN)
        if not is_between and (last := _last_batch(query)) != batch:
            # The next one has begun since then: mostly it is being planned.
            is_between = time.monotonic() - since < _PLANNING
            batch = last
        if is_between or is_overdue():
            query.stop()
            return is_between
        since = time.monotonic()
        time.sleep(_TICK)
    return True


def _last_batch(query: Any) -> int | None:
    reported = progress_of(query.lastProgress)
    return None if reported is None else reported.batchId


def require_query(query: Any) -> None:
    """Refuse what is not a query. Its type is read: a property would ask Spark."""
    if not all(hasattr(type(query), name) for name in ("status", "isActive", "stop")):
        raise not_a_query(query)


def is_idle(status: Any) -> bool:
    """Whether a query waits for data, or for its trigger."""
    return not status["isTriggerActive"] and status["message"].startswith("Waiting")
