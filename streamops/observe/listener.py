"""A listener that raises alarms by rule."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streamops.kernel.errors import SpecError
from streamops.observe.core.episodes import QUIET, Alarm, Watch, take_in
from streamops.observe.core.facts import Facts, Source
from streamops.observe.core.rules import Rule
from streamops.spark.progress import parse_metrics, parse_progress_time

__all__ = ["AlarmListener", "facts_of"]

_LOG = logging.getLogger("streamops.observe")
_WHERE = "observe.AlarmListener"


def _log(alarm: Alarm) -> None:
    _LOG.warning("%s", alarm)


class AlarmListener(StreamingQueryListener):
    """Raises an alarm when a rule finds something in the progress of a query.

    It hears of every query of the session that it is added to. Each run of a query is judged by
    itself, each operator by itself. An alarm is raised once per episode: when a rule begins to
    hold. The episode ends with the first micro-batch in which it no longer does.

    Parameters
    ----------
    *rules : LateRows, LateShare, StuckWatermark or PoisonedWatermark
        When to raise one.
    notify : function, optional
        What is done with an :class:`Alarm`. It is called in the thread that brings the progress,
        and should be quick. If it fails, that is logged, with the alarm, and the listener goes
        on. Left out: a warning in the log ``streamops.observe``.

    Raises
    ------
    SpecError
        ``NO_RULE``, ``NOT_A_RULE`` or ``NOT_A_FUNCTION``.

    Examples
    --------
    >>> from streamops import observe
    >>> alarms = observe.AlarmListener(
    ...     observe.LateShare(0.01), observe.StuckWatermark(), observe.PoisonedWatermark()
    ... )
    >>> spark.streams.addListener(alarms)  # doctest: +SKIP

    Notes
    -----
    On Spark Connect it runs in the client, as long as the client does.

    Rules look back on micro-batches with rows; one without rows belongs to the one before it. What
    came before this run of the query, or before the listener was added, is not known to it.

    See Also
    --------
    account_late : who sends the late rows, and how late they are.
    """

    def __init__(self, *rules: Rule, notify: Callable[[Alarm], Any] | None = None) -> None:
        if not rules:
            raise SpecError(
                "NO_RULE",
                "nothing to raise an alarm by",
                where=_WHERE,
                got="no rule",
                expected="one rule or more",
                fix="AlarmListener(observe.StuckWatermark(), observe.PoisonedWatermark())",
            )
        for rule in rules:
            if not isinstance(rule, Rule):
                raise SpecError(
                    "NOT_A_RULE",
                    "something other than a rule was given as one",
                    where=_WHERE,
                    got=f"{rule!r} of type {type(rule).__name__}",
                    expected="LateRows, LateShare, StuckWatermark or PoisonedWatermark of observe",
                    fix="give each rule by itself: AlarmListener(observe.LateShare(0.01))",
                )
        if notify is not None and not callable(notify):
            raise SpecError(
                "NOT_A_FUNCTION",
                "`notify` cannot be called",
                where=_WHERE,
                got=f"{notify!r} of type {type(notify).__name__}",
                expected="a function of one alarm",
                fix="notify=print, say; leave it out for a warning in the log",
            )
        self._rules = rules
        self._notify = notify or _log
        self._runs: dict[str, Watch] = {}
        self._lock = threading.Lock()  # Spark may call from different threads

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Judge a micro-batch."""
        # An error here would go to the log of the JVM, or, on Connect, end all listeners.
        try:
            facts = facts_of(event.progress)
            with self._lock:
                watch, alarms = take_in(self._rules, self._runs.get(facts.run, QUIET), facts)
                self._runs[facts.run] = watch
        except Exception:
            _LOG.exception("a progress could not be judged, and is passed over")
            return
        for alarm in alarms:
            try:
                self._notify(alarm)
            except Exception:
                _LOG.exception("the function to notify failed; the alarm was:\n%s", alarm)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No rows, so nothing to judge."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the run: another one would have another id."""
        with self._lock:
            self._runs.pop(str(event.runId), None)


def facts_of(progress: Any) -> Facts:
    """The facts of a ``StreamingQueryProgress``."""
    times = progress.eventTime
    counts = {name: parse_metrics(told) for name, told in progress.observedMetrics.items()}
    rows = _came_in(progress.numInputRows, counts.values())
    for place, operator in enumerate(progress.stateOperators):
        # To all of Spark's operators together came what came into the query.
        counts[f"stateOperators[{place}] ({operator.operatorName})"] = {
            "rows": rows,
            "dropped": operator.numRowsDroppedByWatermark,
        }
    return Facts(
        query=progress.name or str(progress.id),
        run=str(progress.runId),
        batch=progress.batchId,
        started=parse_progress_time(progress.timestamp) or 0,
        rows=rows,
        watermark=parse_progress_time(times.get("watermark")),
        newest=parse_progress_time(times.get("max")),
        sources=tuple(Source(each.description, each.numInputRows) for each in progress.sources),
        counts=counts,
    )


def _came_in(rows: int, counts: Iterable[Mapping[str, Any]]) -> int:
    """Rows that came into the query, each once.

    A clock of producers reads its frame twice, so Spark counts these rows twice.
    """
    twice = sum(told["rows"] or 0 for told in counts if "held_by" in told)
    return max(rows - twice, twice)
