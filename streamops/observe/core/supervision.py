"""When a supervised query is started again, and when it is stuck or behind: functions of what was observed and a clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamops.kernel import codes, errors
from streamops.observe.core.progress import Progress

EventType = Literal[
    "started",
    "restarting",
    "failed",
    "ended",
    "stuck",
    "recovered",
    "behind",
    "caught_up",
    "stopped",
    "interrupted",
]
Status = Literal["starting", "running", "waiting", "ended", "failed", "stopped", "interrupted"]

ACTIVE: frozenset[Status] = frozenset({"starting", "running", "waiting"})
"""Statuses of a query that may still run."""

_SAMPLES = 20  # intervals of `behind_after`, at whose borders micro-batches are compared

# What passes by itself, such as a server that restarts. No other code of streamops does.
_PASSING = {
    codes.FUNCTION_RAISED,
    codes.KEY_TABLE_UNAVAILABLE,
    codes.SLOT_IN_USE,
    codes.SOURCE_UNAVAILABLE,
    codes.TARGET_REFUSED,
    codes.TARGET_UNAVAILABLE,
    codes.WAIT_TIMEOUT,
}
_LASTING = {
    code.name
    for code in vars(codes).values()
    if isinstance(code, errors.Code) and code not in _PASSING
}
# Of the function that starts a query; those of a running query are wrapped.
_MISTAKES = {
    *("AnalysisException", "PySparkValueError"),
    *("TypeError", "NameError", "AttributeError", "ImportError"),
}
_CODE = re.compile(r"streamops\.(?:kernel\.)?errors\.\w+: \[([A-Z_]+)\]")
_ANALYSIS = re.compile(
    r"\b(?:org\.apache\.spark\.sql\.|pyspark\.errors\.[\w.]+\.)AnalysisException\b"
)


def is_lasting(error: BaseException) -> bool:
    """Whether a restart cannot mend an error: the plan, a parameter or the checkpoint is wrong.

    Spark wraps an error of a running query: its class and its code are in the text.

    Examples
    --------
    >>> is_lasting(TypeError("start() takes 1 argument")), is_lasting(OSError("disk full"))
    (True, False)
    >>> is_lasting(RuntimeError("streamops.errors.StateFormatError: [STATE_SHARDS] ..."))
    True
    """
    if isinstance(error, errors.StreamopsError):
        return error.code in _LASTING
    if not _MISTAKES.isdisjoint(cls.__name__ for cls in type(error).__mro__):
        return True
    text = str(error)
    return bool(_ANALYSIS.search(text)) or not _LASTING.isdisjoint(_CODE.findall(text))


def describe_error(error: BaseException) -> str:
    """The class of an error, and its code. Its message may have values of rows.

    Examples
    --------
    >>> describe_error(RuntimeError("streamops.errors.SinkError: [FENCED] ..."))
    'RuntimeError FENCED'
    """
    condition = getattr(error, "getCondition", lambda: None)()
    known = [getattr(error, "code", None), condition, *_CODE.findall(str(error))]
    return " ".join([type(error).__name__, *dict.fromkeys(str(code) for code in known if code)])


@dataclass(frozen=True, slots=True)
class Policy:
    """When a query is started again, and when it is stuck or behind. Durations are microseconds."""

    restarts: int
    backoff: int
    longest_backoff: int
    reset_after: int
    stuck_after: int
    behind_after: int

    def wait(self, failures: int) -> int:
        """How long to wait before the restart after this number of failures.

        Examples
        --------
        >>> policy = Policy(5, 1, 10, 100, 100, 100)
        >>> [policy.wait(failures) for failures in (1, 2, 3, 4, 5, 5_000)]
        [1, 2, 4, 8, 10, 10]
        """
        doublings = min(failures - 1, self.longest_backoff.bit_length())
        return min(self.backoff << doublings, self.longest_backoff)


@dataclass(frozen=True, slots=True)
class SupervisionEvent:
    """What happened to a supervised query.

    ``str(event)`` has all fields except `exception`, whose message may have values of rows.

    Parameters
    ----------
    member : str
        The name of the query in the job.
    type : str
        ``started``, ``restarting``, ``failed`` (it is not started again), ``ended``, ``stuck``,
        ``recovered``, ``behind``, ``caught_up``, ``stopped`` (after a micro-batch) or
        ``interrupted`` (within one, which the next start repeats).
    restarts : int
        Restarts without success so far.
    details : str
        The class and the code of an error, a time to wait, or how far the query is behind.
    exception : Exception, optional
        The error.
    """

    member: str
    type: EventType
    restarts: int = 0
    details: str = ""
    exception: BaseException | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        details = f": {self.details}" if self.details else ""
        return (
            f"query {self.member} {self.type.replace('_', ' ')}, restarts {self.restarts}{details}"
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """How far a query was behind in a micro-batch: records of its sources, and its newest event time."""

    started: int
    records: int | None
    delay: int | None


@dataclass(frozen=True, slots=True)
class Member:
    """The state of a supervised query. Instants are microseconds of a clock that is never set back.

    Parameters
    ----------
    name : str
        Its name in the job.
    status : str
        What it is doing. ``waiting`` is the time before a restart.
    since : int
        When this status began.
    progressed : int
        When it was last idle, finished a micro-batch, or began to start.
    failures : int
        Failures since it last ran for `Policy.reset_after`.
    restarts : int
        All restarts.
    batch : int
        The last micro-batch that was finished.
    is_stuck, is_behind : bool
        Whether that was reported.
    samples : tuple of Sample
        Micro-batches of the time that `Policy.behind_after` looks back on, in intervals.
    """

    name: str
    status: Status = "starting"
    since: int = 0
    progressed: int = 0
    failures: int = 0
    restarts: int = 0
    batch: int = -1
    is_stuck: bool = False
    is_behind: bool = False
    samples: tuple[Sample, ...] = ()

    @property
    def restart_at(self) -> int:
        """When it is started again, if its status is ``waiting``."""
        return self.since

    def event(self, type: EventType, details: str = "", error: Any = None) -> SupervisionEvent:
        """An event of this query."""
        return SupervisionEvent(self.name, type, self.failures, details, error)


Outcome = tuple[Member, list[SupervisionEvent]]


def start(member: Member, at: int) -> Outcome:
    """The query is being started."""
    again = int(member.status == "waiting")
    restarts = member.restarts + again
    return replace(member, status="starting", since=at, progressed=at, restarts=restarts), []


def run(member: Member, at: int) -> Outcome:
    """The query was started."""
    running = replace(member, status="running", since=at, progressed=at, batch=-1, samples=())
    return _recover(running, [member.event("started")])


def observe(
    member: Member, policy: Policy, at: int, recent: Sequence[Progress], *, is_idle: bool
) -> Outcome:
    """The query was running: idle or not, with these micro-batches finished since the last time."""
    if at - member.since >= policy.reset_after:
        member = replace(member, failures=0)
    events: list[SupervisionEvent] = []
    if is_idle or recent:
        batch = recent[-1].batch if recent else member.batch
        member, events = _recover(replace(member, progressed=at, batch=batch), events)
    member, others = measure(member, policy, recent)
    return member, [*events, *others]


def fail(member: Member, policy: Policy, at: int, error: BaseException) -> Outcome:
    """The query failed, or could not be started: it is started again later, or not."""
    member = replace(member, failures=member.failures + 1, is_stuck=False, is_behind=False)
    reason = describe_error(error)
    if is_lasting(error):
        reason += ", which a restart cannot mend"
    elif member.failures > policy.restarts:
        reason += f", after {policy.restarts} restarts"
    else:
        wait = policy.wait(member.failures)
        member = replace(member, status="waiting", since=at + wait)
        return member, [member.event("restarting", f"{reason}, in {wait / 1e6:g} s", error)]
    member, events = give_up(member, at, reason, error)
    # No restart follows this failure.
    return member, [replace(event, restarts=member.failures - 1) for event in events]


def give_up(member: Member, at: int, reason: str, error: BaseException | None = None) -> Outcome:
    """The query has failed for good."""
    member = replace(member, status="failed", since=at, is_stuck=False, is_behind=False)
    return member, [member.event("failed", reason, error)]


def end(member: Member, at: int, status: Literal["ended", "stopped", "interrupted"]) -> Outcome:
    """The query ended by itself, or was stopped."""
    ended = replace(member, status=status, since=at, is_stuck=False, is_behind=False)
    return ended, [ended.event(status)]


def check(member: Member, policy: Policy, at: int) -> Outcome:
    """Time has passed: the query may be stuck."""
    silence = at - member.progressed
    may_be = member.status in {"starting", "running"} and not member.is_stuck
    if not may_be or silence < policy.stuck_after:
        return member, []
    stuck = replace(member, is_stuck=True)
    return stuck, [stuck.event("stuck", f"{member.status}, no progress for {silence / 1e6:.1f} s")]


def measure(member: Member, policy: Policy, recent: Sequence[Progress]) -> Outcome:
    """Micro-batches were finished: the query may be behind, or have caught up.

    It is behind if, over `Policy.behind_after`, the records between it and the end of its sources
    were never zero and did not become fewer. If its sources do not report them, its newest event
    time must have advanced by less than half of that time.
    """
    details, is_behind, samples = "", member.is_behind, member.samples
    for progress in recent:
        if not progress.rows:
            continue
        sample = Sample(progress.started, progress.behind, progress.event_delay)
        if sample.records == 0:  # caught up: the time begins anew
            is_behind, samples = False, ()
            continue
        if samples and sample.started - samples[0].started >= policy.behind_after:
            details = _falls_behind(samples[0], sample)
            is_behind = bool(details)
        samples = _append(policy, samples, sample)
    changed = replace(member, is_behind=is_behind, samples=samples)
    if is_behind == member.is_behind:
        return changed, []
    return changed, [changed.event("behind" if is_behind else "caught_up", details)]


def _falls_behind(first: Sample, last: Sample) -> str:
    """How far the query fell behind between two samples; empty if it did not."""
    if last.records is not None and first.records is not None:
        change = last.records - first.records
        return f"{last.records:,} records, {change:+,}" if change >= 0 else ""
    if last.delay is None or first.delay is None:
        return ""
    change = last.delay - first.delay
    if 2 * change < last.started - first.started:
        return ""
    return f"the newest event time by {last.delay / 1e6:.1f} s, {change / 1e6:+.1f} s"


def _append(policy: Policy, samples: tuple[Sample, ...], sample: Sample) -> tuple[Sample, ...]:
    """Add a sample after an interval; remove those that are not needed to look back."""
    if samples and (sample.started - samples[-1].started) * _SAMPLES < policy.behind_after:
        return samples
    oldest = sample.started - policy.behind_after
    first = max((i for i, s in enumerate(samples) if s.started <= oldest), default=0)
    return (*samples[first:], sample)


def _recover(member: Member, events: list[SupervisionEvent]) -> Outcome:
    """The query made progress."""
    if not member.is_stuck:
        return member, events
    recovered = replace(member, is_stuck=False)
    return recovered, [*events, recovered.event("recovered")]


@dataclass(frozen=True, slots=True)
class Health:
    """What the members of a job are doing, and whether they were checked lately."""

    members: tuple[Member, ...]
    is_checked: bool = True

    @property
    def is_live(self) -> bool:
        """Whether no query is stuck or has failed for good: a new process may mend that."""
        broken = any(member.is_stuck or member.status == "failed" for member in self.members)
        return self.is_checked and not broken

    @property
    def is_ready(self) -> bool:
        """Whether all queries are running, or have ended by themselves."""
        return self.is_live and all(m.status in {"running", "ended"} for m in self.members)

    def to_dict(self) -> dict[str, Any]:
        """The members by name, for JSON."""
        return {
            member.name: {
                "status": member.status,
                "stuck": member.is_stuck,
                "behind": member.is_behind,
                "restarts": member.restarts,
                "batch": None if member.batch < 0 else member.batch,
            }
            for member in self.members
        }
