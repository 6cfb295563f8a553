"""Run several queries as one job."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamops.kernel.errors import located
from streamops.kernel.parameters import require_choice
from streamops.kernel.time import Duration, parse_duration
from streamops.observe import conditions
from streamops.observe.core import supervision
from streamops.observe.core.supervision import (
    ACTIVE,
    Health,
    Member,
    Outcome,
    Policy,
    SupervisionEvent,
)
from streamops.observe.health import exported, serve
from streamops.observe.progress import read_new_progress
from streamops.observe.stopping import is_idle, require_query, stop_between

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LOG = logging.getLogger("streamops.observe")
_TICK = 0.2  # seconds: how often the job is checked
_POLL = 1.0  # seconds: how often a query is
_PATIENCE = 10.0  # seconds, for what Spark needs to stop a query
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LEVELS = dict.fromkeys(("restarting", "stuck", "behind", "interrupted"), logging.WARNING)
_LEVELS["failed"] = logging.ERROR


@located("observe.supervise")
def supervise(
    queries: Mapping[str, Callable[[], Any]],
    *,
    restarts: int = 5,
    backoff: Duration = "1 second",
    longest_backoff: Duration = "1 minute",
    reset_after: Duration = "10 minutes",
    stuck_after: Duration = "5 minutes",
    behind_after: Duration = "10 minutes",
    stop_timeout: Duration = "1 minute",
    when_failed: Literal["stop", "continue"] = "stop",
    on_event: Callable[[SupervisionEvent], Any] | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    registry: CollectorRegistry | None = None,
    until: threading.Event | str | Path | None = None,
) -> int:
    """Run several streaming queries as one job, until all have ended or the job is stopped.

    A query that fails is started again, after a time that doubles with each failure. Queries that
    fail, end, are stuck or fall behind are reported: to the log ``streamops.observe``, to a
    function, as metrics, over HTTP, and by the exit code. SIGTERM and SIGINT stop each query after
    its present micro-batch, and so does a POST or a file; a second signal interrupts them.

    Parameters
    ----------
    queries : mapping of str to function
        By name, a function without parameters that starts a query and returns it. It is called
        again for each restart, in a thread of its own, so it should build the frame and use the
        same ``checkpointLocation``.
    restarts : int
        How often a query is started again without success. One that then fails again has failed
        for good. An error that a restart cannot mend is one at once: an `AnalysisException`, an error
        of streamops except those of unavailable servers, a mistake in the function.
    backoff, longest_backoff : duration
        The time before the first restart; the greatest one.
    reset_after : duration
        A query that ran for so long has succeeded: its failures are forgotten.
    stuck_after : duration
        A query is stuck if it was neither idle nor finished a micro-batch for this time. It must be
        longer than the longest micro-batch, and the longest start.
    behind_after : duration
        A query is behind if over this time its sources were never read to the end, and the records
        that remain did not become fewer; for other sources than Kafka, if the newest event time
        advanced by less than half of this time.
    stop_timeout : duration
        How long to wait for the end of a micro-batch. Then the query is interrupted.
    when_failed : {"stop", "continue"}
        Whether the other queries are stopped when one has failed for good, or continue.
    on_event : function, optional
        Called with each :class:`SupervisionEvent`, in the thread that called `supervise`. If it fails, the error is logged.
    port : int, optional
        Serve health over HTTP at this port: ``/live``, ``/ready`` and, with `registry`, ``/metrics``. A
        POST to ``/stop`` stops the job, as a signal does.
    host : str
        The address to serve at. A pod of Kubernetes needs ``"0.0.0.0"``.
    registry : CollectorRegistry, optional
        Export the state of the queries to Prometheus, such as ``prometheus_client.REGISTRY``.
    until : threading.Event or path, optional
        Stop the job, as a signal does, when the event is set, or when there is a local file of this name,
        which is removed then. For jobs that get no signal, such as those of `spark-submit`.

    Returns
    -------
    int
        The exit code of the process: 0 if all queries ended or were stopped, 1 if one failed for
        good, or could not be stopped.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``, ``PARAMETER_TYPE``, ``PARAMETER_OUT_OF_RANGE``, ``UNKNOWN_CHOICE``, or a
        duration that is not one.
    RequirementError
        ``PACKAGE_MISSING``: `registry` needs prometheus-client.

    Examples
    --------
    >>> def start_views():
    ...     views = spark.readStream.format("kafka").options(**kafka).load().transform(per_minute)
    ...     target = sinks.postgres(url, "views_per_minute", query="views")
    ...     return views.writeStream.foreachBatch(target).option("checkpointLocation", ...).start()
    >>> sys.exit(observe.supervise({"views": start_views, "orders": start_orders}, port=8080))

    Notes
    -----
    A query is asked for its status once a second, in a thread of its own. It works for classic
    queries and on Spark Connect, and adds no listener. Signals are handled if it is called in the main
    thread. Events and health have no values of rows, except the exception of an event.

    See Also
    --------
    stop_after_batch : stop one query.
    """
    _require_queries(queries)
    if on_event is not None and not callable(on_event):
        raise conditions.NOT_AN_OBSERVER.error(got=f"an object of type {type(on_event).__name__}")
    if type(restarts) is not int or restarts < 0:
        raise conditions.RESTARTS_OUT_OF_RANGE.error(got=repr(restarts))
    if port is not None and (type(port) is not int or not 0 < port < 65_536):
        raise conditions.NOT_A_PORT.error(got=f"port={port!r}")
    require_choice(when_failed, Literal["stop", "continue"], parameter="when_failed")
    is_requested = _request(until)
    policy = Policy(
        restarts,
        parse_duration(backoff, parameter="backoff", minimum=0),
        parse_duration(longest_backoff, parameter="longest_backoff", minimum=0),
        parse_duration(reset_after, parameter="reset_after", minimum=0),
        parse_duration(stuck_after, parameter="stuck_after", minimum=1),
        parse_duration(behind_after, parameter="behind_after", minimum=1),
    )
    timeout = parse_duration(stop_timeout, parameter="stop_timeout", minimum=0) / 1e6
    job = _Job(queries, policy, timeout, on_event, is_strict=when_failed == "stop")
    with ExitStack() as stack:
        if registry is not None:
            stack.enter_context(exported(job.health, registry))
        if port is not None:
            stack.enter_context(serve(job.health, job.stop, host, port, registry))
        stack.enter_context(_signals(job))
        return job.run(is_requested)


def _require_queries(queries: object) -> None:
    if not isinstance(queries, Mapping) or not queries:
        raise conditions.NO_QUERIES.error(got=f"an object of type {type(queries).__name__}")
    for start in queries.values():
        if not callable(start):
            raise conditions.NOT_A_START.error(got=f"an object of type {type(start).__name__}")


def _request(until: object) -> Callable[[], bool]:
    """Whether the job is to stop, by an event or a file, which is removed."""
    if until is None:
        return lambda: False
    if isinstance(until, threading.Event):
        return until.is_set
    if not isinstance(until, str | Path) or not str(until):
        raise conditions.NOT_A_REQUEST.error(got=f"an object of type {type(until).__name__}")
    file = Path(until)

    def is_there() -> bool:
        if not file.is_file():
            return False
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("the file that stopped the job stays, and stops the next one: %s", error)
        return True

    return is_there


class _Runner(threading.Thread):
    """Starts and polls one query. Whatever hangs in it is seen from outside, by the clock."""

    def __init__(self, name: str, start: Callable[[], Any], job: _Job) -> None:
        super().__init__(name=f"streamops supervise {name}", daemon=True)
        self.member = Member(name, progressed=_now())
        self._start_query, self._job = start, job

    def run(self) -> None:
        """Run the query until it ends, fails for good, or is stopped."""
        try:
            while self.member.status in ACTIVE and not self._job.stops:
                self._attempt()
                while self.member.status == "waiting" and not self._job.stops:
                    if _now() >= self.member.restart_at:
                        break
                    time.sleep(_TICK)
            if self.member.status in ACTIVE:  # stopped without a query
                self._apply(supervision.end, _now(), "stopped")
        except BaseException as error:  # nothing may end the thread without a report
            self._apply(supervision.give_up, _now(), "its supervision failed", error)

    def _attempt(self) -> None:
        """Start the query, and follow it to its end."""
        policy = self._job.policy
        self._apply(supervision.start, _now())
        try:
            query = self._start_query()
            require_query(query)
            self._apply(supervision.run, _now())
            error = self._follow(query)
        except (Exception, SystemExit) as raised:  # a library may end its process
            error = raised
        if error is not None:
            self._apply(supervision.fail, policy, _now(), error)

    def _follow(self, query: Any) -> BaseException | None:
        """Poll a query until it ends; the error with which it failed."""
        policy, batch, is_active = self._job.policy, -1, True
        while is_active:
            if self._job.stops:
                return self._stop_query(query)
            is_active = bool(query.isActive)  # before its progress is read: the last one counts
            idle = is_idle(query.status)
            recent = read_new_progress(query, batch)
            batch = recent[-1].batch if recent else batch
            self._apply(supervision.observe, policy, _now(), recent, is_idle=idle)
            if is_active:
                self._job.sleep(_POLL)
        error: BaseException | None = query.exception()
        if error is None:
            self._apply(supervision.end, _now(), "ended")
        return error

    def _stop_query(self, query: Any) -> BaseException | None:
        """Stop a query after its micro-batch; the error with which it failed meanwhile."""
        is_between = stop_between(query, self._job.is_overdue)
        error: BaseException | None = query.exception()
        if error is None:
            how: Literal["stopped", "interrupted"] = "stopped" if is_between else "interrupted"
            self._apply(supervision.end, _now(), how)
        return error

    def _apply(self, change: Callable[..., Outcome], *args: Any, **named: Any) -> None:
        self._job.apply(self, change, *args, **named)


class _Job:
    """The members of a job, and what is reported of them."""

    def __init__(
        self,
        queries: Mapping[str, Callable[[], Any]],
        policy: Policy,
        timeout: float,
        on_event: Callable[[SupervisionEvent], Any] | None,
        *,
        is_strict: bool,
    ) -> None:
        self.policy = policy
        self.stops = 0  # how often a stop was requested: a signal may only set a number
        self._stopped_at = self._overdue_at = 0.0
        self._beat = time.monotonic()
        self._timeout, self._on_event, self._is_strict = timeout, on_event, is_strict
        self._lock = threading.Lock()
        self._events: list[SupervisionEvent] = []
        self._runners = [_Runner(name, start, self) for name, start in queries.items()]

    def health(self) -> Health:
        """The state of all members."""
        members = tuple(runner.member for runner in self._runners)
        return Health(members, is_checked=time.monotonic() - self._beat < _PATIENCE)

    def apply(
        self, runner: _Runner, change: Callable[..., Outcome], *args: Any, **named: Any
    ) -> None:
        """Change the state of a member; its events are reported by the thread of the job."""
        with self._lock:
            runner.member, events = change(runner.member, *args, **named)
            self._events += events

    def stop(self) -> None:
        """Stop each query after its present micro-batch."""
        self.stops = max(self.stops, 1)

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the job is stopped."""
        end = time.monotonic() + seconds
        while not self.stops and time.monotonic() < end:
            time.sleep(min(_TICK, seconds))

    def is_overdue(self) -> bool:
        """Whether micro-batches that have not ended are interrupted."""
        since = self._stopped_at
        return self.stops > 1 or (since > 0 and time.monotonic() > since + self._timeout)

    def run(self, is_requested: Callable[[], bool]) -> int:
        """Run the members until all have ended; the exit code."""
        for runner in self._runners:
            runner.start()
        while any(runner.is_alive() for runner in self._runners) and not self._is_lost():
            time.sleep(_TICK)
            self._beat = time.monotonic()
            for runner in self._runners:
                self.apply(runner, supervision.check, self.policy, _now())
            self._report()
            has_failed = any(runner.member.status == "failed" for runner in self._runners)
            if (not self.stops and is_requested()) or (self._is_strict and has_failed):
                self.stop()
            if self.stops and not self._stopped_at:
                self._stopped_at = time.monotonic()
        for runner in self._runners:
            if runner.member.status in ACTIVE:
                self.apply(runner, supervision.give_up, _now(), "it does not stop")
        self._report()
        return int(any(runner.member.status == "failed" for runner in self._runners))

    def _is_lost(self) -> bool:
        """Whether a member does not stop: its function hangs, or Spark does."""
        if self.is_overdue() and not self._overdue_at:
            self._overdue_at = time.monotonic()
        return self._overdue_at > 0 and time.monotonic() > self._overdue_at + _PATIENCE

    def _report(self) -> None:
        with self._lock:
            events, self._events = self._events, []
        for event in events:
            level = _LEVELS.get(event.type, logging.INFO)
            _LOG.log(level, "%s", event)
            if self._on_event is None:
                continue
            try:
                self._on_event(event)
            except Exception:
                _LOG.exception("`on_event` failed; the event was: %s", event)


@contextmanager
def _signals(job: _Job) -> Iterator[None]:
    """Stop the job on a signal, if this is the main thread: Python calls no other one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        job.stops += 1

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _now() -> int:
    return time.monotonic_ns() // 1_000
