"""A listener that raises alarms for streaming queries."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streamops.kernel.errors import located
from streamops.observe import conditions
from streamops.observe.core.alarms import Alarm, Rule, Run, raise_alarms
from streamops.observe.core.progress import PartitionLag
from streamops.observe.core.retention import DataLoss
from streamops.observe.kafka import KafkaRetention, require_retention
from streamops.observe.progress import read_progress

_LOG = logging.getLogger("streamops.observe")


def _log(alarm: Alarm) -> None:
    _LOG.warning("%s", alarm)


class AlarmListener(StreamingQueryListener):
    """Evaluates rules on the progress of streaming queries, and raises alarms.

    The listener observes all queries of the session that it is added to. Rules apply to each run of
    a query, and to each operator, separately. An alarm is raised once per episode: in the first
    micro-batch that violates a rule. The episode ends with the first micro-batch that does not.

    Parameters
    ----------
    *rules : LateRows, LateShare, StuckWatermark, PoisonedWatermark, ConsumerLag or DataLoss
        The rules.
    retention : KafkaRetention, optional
        What `DataLoss` compares the query with.
    notify : function, optional
        Called with each :class:`Alarm`, in the thread that delivers the progress, so it should
        return quickly. If it fails, the error and the alarm are logged. Default: a warning in the
        log ``streamops.observe``.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING`` or ``PARAMETER_TYPE``.

    Examples
    --------
    >>> from streamops import observe
    >>> alarms = observe.AlarmListener(
    ...     observe.LateShare(0.01), observe.StuckWatermark(), observe.PoisonedWatermark()
    ... )
    >>> spark.streams.addListener(alarms)

    Notes
    -----
    On Spark Connect the listener runs in the client.

    Rules evaluate micro-batches with rows; one without rows is merged into the previous one. Rules
    have no information from before the start of the run, or from before the listener was added.

    See Also
    --------
    account_late : count late rows by producer and lateness.
    """

    @located("observe.AlarmListener")
    def __init__(
        self,
        *rules: Rule,
        retention: KafkaRetention | None = None,
        notify: Callable[[Alarm], Any] | None = None,
    ) -> None:
        if not rules:
            raise conditions.NO_RULE.error(got="no rules")
        for rule in rules:
            if not isinstance(rule, Rule):
                raise conditions.NOT_A_RULE.error(got=f"{rule!r} of type {type(rule).__name__}")
        require_retention(retention)
        if retention is None and any(isinstance(rule, DataLoss) for rule in rules):
            raise conditions.NO_RETENTION.error(got="no retention")
        if notify is not None and not callable(notify):
            raise conditions.NOT_A_FUNCTION.error(
                got=f"an object of type {type(notify).__name__}",  # a URL may have a secret
            )
        self._rules = rules
        self._retention = retention
        self._notify = notify or _log
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()  # Spark may call from different threads

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Evaluate the rules on a micro-batch."""
        # An error here would be logged by the JVM only; on Connect, it would end all listeners.
        try:
            progress = read_progress(event.progress)
            if self._retention is not None:
                progress = self._retention.look_up(progress)
            with self._lock:
                run = self._runs.get(progress.run, Run())
                self._runs[progress.run], alarms = raise_alarms(self._rules, run, progress)
        except Exception:
            _LOG.exception("the rules could not be evaluated on a micro-batch, which is skipped")
            return
        for alarm in alarms:
            try:
                self._notify(alarm)
            except Exception:
                _LOG.exception("`notify` failed; the alarm was:\n%s", alarm)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there are no rows."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove the state of the run; a restart has another id."""
        with self._lock:
            self._runs.pop(str(event.runId), None)


def consumer_lag(progress: Any) -> tuple[PartitionLag, ...]:
    """How far a query is behind each partition of its Kafka sources, after a micro-batch.

    Structured Streaming has no backpressure: a query that is slower than its source falls behind.

    Parameters
    ----------
    progress : StreamingQueryProgress
        Such as ``query.lastProgress``, or ``event.progress`` of a listener. Not a dict.

    Returns
    -------
    tuple of PartitionLag
        By source, topic and partition; empty for other sources, and while nothing is known.

    Examples
    --------
    >>> for lag in observe.consumer_lag(query.lastProgress):
    ...     print(lag.topic, lag.partition, lag.behind)

    See Also
    --------
    ConsumerLag : alarm if a query falls behind.
    """
    return tuple(lag for source in read_progress(progress).sources for lag in source.lags)
