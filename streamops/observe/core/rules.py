"""Rules about late rows, and about watermarks that are stuck or poisoned."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

from streamops.kernel.errors import Condition, SpecError, located
from streamops.kernel.time import Duration, format_duration, format_instant, parse_duration
from streamops.observe import conditions
from streamops.observe.core.alarms import GAUGES, Finding, History, Rule
from streamops.observe.core.progress import LATE, PartitionLag, Progress

_CLASSIFIED = ("on_time", "stragglers", "too_late", "rejected")
_MAX_BATCHES = 10_000

_WATERMARK = "the watermark of the query"
_SILENT_SOURCE = (
    "find out why the culprit is silent or slow; Spark waits for it without a timeout. "
    "time.producers has an idle timeout"
)
_SLOW_PRODUCER = (
    "find out why the culprit is silent or slow; time.producers evicts it when it has been silent "
    "for `idle`, by arrival. If that is too long, use a shorter `idle`; if this alarm is too early, "
    "use more `batches` than there are micro-batches within `idle`"
)
_UNKNOWN_CAUSE = (
    "no source is silent, so an input with its own watermark has no rows, or rows whose event times "
    "do not advance: compare the newest event times of the inputs. After a restart, older rows or a "
    "larger delay look the same until event times exceed those of the previous run"
)


class _LateRule(Rule):
    """The parameters and the evaluation that both rules about late rows share."""

    counts: Sequence[str]

    def __post_init__(self) -> None:
        require_batches(self, least=1)
        object.__setattr__(self, "counts", _parse_counts(self))

    def evaluate(self, history: History) -> Iterator[Finding]:
        """Yield a finding for each operator with too many late rows."""
        recent = history[-self.batches :]
        for operator in dict.fromkeys(name for progress in recent for name in progress.metrics):
            metrics = [p.metrics[operator] for p in recent if operator in p.metrics]
            counts = {
                name: sum(_count(m, name) for m in metrics)
                for name in self.counts
                if any(name in m for m in metrics)
            }
            if counts:
                amount = self.exceeded(sum(counts.values()), sum(map(_total_rows, metrics)))
                if amount:
                    yield self._finding(operator, amount, counts, len(recent))

    @abstractmethod
    def exceeded(self, late: int, rows: int) -> str | None:
        """Describe the amount of late rows if it is too large."""

    def _finding(self, operator: str, amount: str, counts: dict[str, int], batches: int) -> Finding:
        are_late = set(self.counts) <= set(LATE)
        listed = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return Finding(
            operator,
            f"too many rows are {'late' if are_late else ' or '.join(self.counts)}",
            f"{amount} in the last {batches} micro-batch{'es' * (batches > 1)} with rows: {listed}",
            "find out who sends them (observe.account_late on the side output); a larger delay or "
            "allowed_lateness accepts them (observe.lateness_needed estimates it)"
            if are_late
            else "inspect the rows: docs/operations.md describes each metric",
        )


@dataclass(frozen=True)
class LateRows(_LateRule):
    """Alarm if the number of late rows in recent micro-batches reaches a limit.

    Parameters
    ----------
    rows : int
        The limit, >= 1.
    batches : int
        Number of recent micro-batches with rows.
    counts : str or sequence of str
        Metrics that are added up: counts in the ``observedMetrics`` of an operator, and
        ``dropped``, the ``numRowsDroppedByWatermark`` of Spark's own operators. The rule applies
        to each operator separately.

    Raises
    ------
    SpecError
        A parameter is out of range, or `counts` has a gauge, such as ``state_rows``.

    Examples
    --------
    >>> LateRows(1_000, batches=10)
    LateRows(rows=1000, batches=10, counts=('stragglers', 'too_late', 'dropped'))
    """

    code: ClassVar[str] = "LATE_ROWS"

    rows: int
    batches: int = 1
    counts: Sequence[str] = LATE

    def __post_init__(self) -> None:
        _require_rows(self, "rows")
        _LateRule.__post_init__(self)

    def exceeded(self, late: int, rows: int) -> str | None:
        """Describe the amount of late rows if it reaches the limit."""
        return f"{late:,} rows" if late >= self.rows else None


@dataclass(frozen=True)
class LateShare(_LateRule):
    """Alarm if the share of late rows in recent micro-batches reaches a limit.

    The share is a share of ``on_time``, ``stragglers``, ``too_late`` and ``rejected`` together; for
    an operator without these metrics, of its ``rows``; for one of Spark's own operators, of all
    input rows of the query. Rows that ``time.producers`` reads twice are counted once.

    Parameters
    ----------
    share : float
        The limit, 0 < share <= 1.
    batches : int
        Number of recent micro-batches with rows.
    at_least : int
        Minimum number of rows in them.
    counts : str or sequence of str
        As in :class:`LateRows`.

    Raises
    ------
    SpecError
        A parameter is out of range, or `counts` has a gauge, such as ``state_rows``.

    Examples
    --------
    >>> LateShare(0.01)
    LateShare(share=0.01, batches=10, at_least=100, counts=('stragglers', 'too_late', 'dropped'))
    """

    code: ClassVar[str] = "LATE_SHARE"

    share: float
    batches: int = 10
    at_least: int = 100
    counts: Sequence[str] = LATE

    def __post_init__(self) -> None:
        with located(_where(self)):
            require_share(self.share)
        _LateRule.__post_init__(self)
        _require_rows(self, "at_least")

    def exceeded(self, late: int, rows: int) -> str | None:
        """Describe the share of late rows if it reaches the limit."""
        if rows < self.at_least or late < Fraction(str(self.share)) * rows:
            return None
        return f"{100 * late / rows:.3g} % of {rows:,} rows"


@dataclass(frozen=True)
class StuckWatermark(Rule):
    """Alarm if the watermark does not advance although event times do.

    The last `batches` micro-batches with rows have the same watermark, and within them, without the
    last one, the greatest event time of the query increased and exceeds the watermark. (Event times
    of the last micro-batch advance the watermark of the next one.) If event times do not advance
    either, there is no alarm.

    The culprits are sources without rows in all of these micro-batches while others had some, and
    the producer that holds a clock of ``time.producers`` that did not advance. ``time.producers``
    evicts a silent producer after `idle`; with fewer `batches` than that, every pause of a producer
    raises an alarm.

    Parameters
    ----------
    batches : int
        Number of micro-batches with rows, >= 3.

    Raises
    ------
    SpecError
        `batches` is out of range.

    Examples
    --------
    >>> StuckWatermark(batches=5)
    StuckWatermark(batches=5)
    """

    code: ClassVar[str] = "STUCK_WATERMARK"

    batches: int = 10

    def __post_init__(self) -> None:
        require_batches(self, least=3)

    def evaluate(self, history: History) -> Iterator[Finding]:
        """Yield a finding if the watermark is stuck."""
        recent = history[-self.batches :]
        watermark = recent[-1].watermark
        if len(recent) < self.batches or watermark is None or not all(p.rows for p in recent):
            return
        if any(p.watermark != watermark for p in recent) or not _event_times_advance(recent[:-1]):
            return
        rows = sum(p.rows for p in recent)
        # Downstream of `time.producers`, Spark reports the clock; the operator reports the rows.
        times = [clock[-1]["newest_micros"] for clock in _held_clocks(recent) if clock]
        newest = max([*times, recent[-1].newest_so_far or 0])
        silent, slow = _silent_sources(recent), _slow_producers(recent[:-1])
        yield Finding(
            _WATERMARK,
            "the watermark does not advance although event times do",
            f"watermark {_format_instant(watermark)} in {self.batches} micro-batches with "
            f"{rows:,} rows; newest event time {_format_instant(newest)}",
            _SILENT_SOURCE if silent else _SLOW_PRODUCER if slow else _UNKNOWN_CAUSE,
            (*silent, *slow),
        )


@dataclass(frozen=True)
class PoisonedWatermark(Rule):
    """Alarm if event times, or the watermark, are ahead of the current time.

    The greatest event time of the last micro-batch, or the watermark, is later than the start of
    the micro-batch by more than `ahead`. A watermark never goes back: all rows before it are late
    from then on, also after a restart. With ``time.producers``, the watermark advances only when
    all other producers are silent; until then, the alarm has the name of that operator.

    The culprit is the producer with the newest event time if the query has a ``time.producers`` and
    the producer is still active. Otherwise, use ``observe.furthest_ahead`` on a batch.

    Parameters
    ----------
    ahead : duration
        The tolerated clock error, >= 0.

    Raises
    ------
    SpecError
        `ahead` is not a duration, or is negative.

    Examples
    --------
    >>> PoisonedWatermark("90 minutes")
    PoisonedWatermark(ahead='1 hour 30 minutes')
    """

    code: ClassVar[str] = "POISONED_WATERMARK"

    ahead: Duration = "1 hour"

    def __post_init__(self) -> None:
        with located(_where(self)):
            micros = parse_duration(self.ahead, parameter="ahead", minimum=0)
        object.__setattr__(self, "ahead", format_duration(micros))

    def evaluate(self, history: History) -> Iterator[Finding]:
        """Yield a finding if the watermark is poisoned, or will be."""
        last = history[-1]
        limit = parse_duration(self.ahead, parameter="ahead") + last.started
        instants = {"watermark": last.watermark, "newest event time": last.newest}
        beyond = {name: at for name, at in instants.items() if at is not None and at > limit}
        # The producer that poisoned the clock may have been evicted; then the leader is not ahead.
        leaders = {
            operator: clock[-1]
            for operator, clock in _clocks(history[-1:]).items()
            if (clock[-1].get("newest_micros") or 0) > limit
        }
        if beyond:
            yield Finding(
                _WATERMARK,
                "the watermark is ahead of the current time, and does not go back"
                if "watermark" in beyond
                else "an event time is ahead of the current time, and advances the watermark",
                _format_distance(beyond, last),
                "apply time.guard before the watermark is defined; this checkpoint contains the "
                "watermark, so start with a new one. observe.furthest_ahead finds who sent such rows",
                tuple(dict.fromkeys(map(_leader, leaders.values()))),
            )
            return
        for operator, metrics in leaders.items():
            yield Finding(
                operator,
                "an event time is ahead of the current time, and advances the watermark when all "
                "other producers are silent",
                _format_distance({"newest event time": metrics["newest_micros"]}, last),
                "apply time.guard before time.producers; this checkpoint contains the event time "
                "until its producer has been silent for `idle`. If all others are silent before "
                "that, start with a new checkpoint",
                (_leader(metrics),),
            )


def require_share(share: object) -> None:
    """Raise an error if the value is not in (0, 1]."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise conditions.SHARE_OUT_OF_RANGE.error(got=f"share={share!r}")


def require_count(
    value: object,
    example: str,
    condition: Condition[SpecError] = conditions.COUNT_OUT_OF_RANGE,
    *,
    parameter: str,
) -> None:
    """Raise an error if the value is not a positive integer."""
    if type(value) is not int or value < 1:
        got = f"{parameter}={value!r}"
        raise condition.error(parameter=parameter, example=example, got=got)


def _require_rows(rule: Rule, parameter: str) -> None:
    value, condition = getattr(rule, parameter), conditions.ROWS_OUT_OF_RANGE
    with located(_where(rule)):
        require_count(value, "100", condition, parameter=parameter)


def require_batches(rule: Rule, *, least: int) -> None:
    """Raise an error if the number of micro-batches of a rule is out of range."""
    batches: object = rule.batches
    if type(batches) is not int or not least <= batches <= _MAX_BATCHES:
        raise conditions.BATCHES_OUT_OF_RANGE.error(
            where=_where(rule), least=least, max_batches=_MAX_BATCHES, got=f"batches={batches!r}"
        )


def _parse_counts(rule: _LateRule) -> tuple[str, ...]:
    counts: object = rule.counts
    names = (counts,) if isinstance(counts, str) or not isinstance(counts, Sequence) else counts
    if not names or not all(isinstance(name, str) and name for name in names):
        raise conditions.NOT_A_NAME.error(
            where=_where(rule), late=", ".join(LATE), got=f"counts={counts!r}"
        )
    gauges = [name for name in names if name in GAUGES]
    if gauges:
        raise conditions.NOT_A_COUNT.error(
            where=_where(rule), gauges=", ".join(gauges), got=f"counts={counts!r}"
        )
    return tuple(dict.fromkeys(names))


def _where(rule: Rule) -> str:
    return f"observe.{type(rule).__name__}"


def _count(metrics: Mapping[str, Any], name: str) -> int:
    """Return a count; 0 if it is missing, null, or not an integer."""
    value = metrics.get(name)
    return value if isinstance(value, int) else 0


def _total_rows(metrics: Mapping[str, Any]) -> int:
    names = _CLASSIFIED if "on_time" in metrics else ("rows",)
    return sum(_count(metrics, name) for name in names)


def _event_times_advance(recent: Sequence[Progress]) -> bool:
    """Whether event times increase within these micro-batches, and exceed the watermark."""
    first, last = recent[0].newest_so_far, recent[-1].newest_so_far
    watermark = recent[-1].watermark or 0
    if last is not None and (first is None or last > first) and last > watermark:
        return True
    return any(
        max(before["newest_micros"], watermark) < after["newest_micros"]
        for clock in _held_clocks(recent)
        for before, after in pairwise(clock)
    )


def _clocks(recent: Sequence[Progress]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the metrics of each ``time.producers``, by micro-batch.

    Micro-batches in which the operator has no rows are left out: its clock does not change.
    """
    clocks: dict[str, list[Mapping[str, Any]]] = {}
    for progress in recent:
        for operator, metrics in progress.metrics.items():
            if "held_by" in metrics and metrics.get("rows") is not None:
                clocks.setdefault(operator, []).append(metrics)
    return clocks


def _held_clocks(recent: Sequence[Progress]) -> list[list[Mapping[str, Any]]]:
    """Return the same where a producer holds the clock and there is a newest event time.

    If no producer holds the clock, all are behind it, and their rows do not advance it.
    """
    return [
        [m for m in clock if m["held_by"] and m.get("newest_micros") is not None]
        for clock in _clocks(recent).values()
    ]


def _slow_producers(recent: Sequence[Progress]) -> list[str]:
    """Describe the producers that hold a clock that did not advance."""
    found = []
    for clock in _clocks(recent).values():
        last = clock[-1]
        if last["held_by"] and len({metrics.get("clock_micros") for metrics in clock}) == 1:
            is_awaited = last.get("clock_micros") is None
            problem = "has not sent a row yet" if is_awaited else "the slowest clock"
            found.append(f"producer {last['held_by']!r}: {problem}")
    return list(dict.fromkeys(found))


def _silent_sources(recent: Sequence[Progress]) -> list[str]:
    """Describe the sources without rows, if others have rows. Equal names get a number."""
    sources = recent[-1].sources
    comparable = [p.sources for p in recent if len(p.sources) == len(sources)]
    rows = [sum(s[index].rows for s in comparable) for index in range(len(sources))]
    names = [source.description for source in sources]
    return [
        f"source {index} ({name}): no rows" if names.count(name) > 1 else f"source {name}: no rows"
        for index, name in enumerate(names)
        if not rows[index] and any(rows)
    ]


def _leader(metrics: Mapping[str, Any]) -> str:
    return f"producer {metrics['led_by']!r}: the newest event time"


def _format_distance(beyond: Mapping[str, int], last: Progress) -> str:
    instants = ", ".join(f"{name} {_format_instant(at)}" for name, at in beyond.items())
    micros = max(beyond.values()) - last.started
    day, second = 86_400_000_000, 1_000_000
    unit = day if micros >= 2 * day else second if micros >= second else 1
    return (
        f"{instants}: {format_duration(micros // unit * unit)} after the micro-batch, which "
        f"started at {_format_instant(last.started)}"
    )


def _format_instant(micros: int | None) -> str:
    return "none yet" if not micros else format_instant(micros)


_LISTED = 5


@dataclass(frozen=True)
class ConsumerLag(Rule):
    """Alarm if a query is behind the end of its topics, and does not catch up.

    At the end of the last micro-batch, a source is `rows` or more behind, and not less than at the
    end of the first of the last `batches` micro-batches with rows. A query that catches up raises no
    alarm. The culprits are the partitions with the greatest lag, and how it changed.

    Parameters
    ----------
    rows : int
        The limit for the partitions of a source together, >= 1.
    batches : int
        Number of micro-batches with rows, of which the first and the last are compared. With 1,
        every lag that reaches the limit raises the alarm.

    Raises
    ------
    SpecError
        A parameter is out of range.

    Examples
    --------
    >>> ConsumerLag(100_000)
    ConsumerLag(rows=100000, batches=10)
    """

    code: ClassVar[str] = "CONSUMER_LAG"

    rows: int
    batches: int = 10

    @located("observe.ConsumerLag")
    def __post_init__(self) -> None:
        require_count(self.rows, "100_000", parameter="rows")
        require_batches(self, least=1)

    def evaluate(self, history: History) -> Iterator[Finding]:
        """Yield a finding for each source that is behind."""
        recent = history[-self.batches :]
        first, last = recent[0].sources, recent[-1].sources
        if len(recent) < self.batches or len(first) != len(last):
            return
        for index, (before, now) in enumerate(zip(first, last, strict=True)):
            behind, previous = _total(now.lags), _total(before.lags)
            if behind < self.rows or behind < previous:
                continue
            trend = f", {_change(behind - previous, self.batches)}" if self.batches > 1 else ""
            yield Finding(
                f"source {index} ({now.description})",
                "the query is behind its source, and does not catch up",
                f"{behind:,} records behind{trend}",
                "add tasks (partitions, cores), raise maxOffsetsPerTrigger, or find the slow part of "
                "the query in durationMs; a lag in one partition is a skewed key of the producer",
                tuple(_describe_partitions(before.lags, now.lags, self.batches)),
            )


def parse_lags(end: Any, latest: Any) -> tuple[PartitionLag, ...]:
    """The lag of each partition, from the offsets that a source reports; empty if it is not Kafka.

    Examples
    --------
    >>> parse_lags('{"views": {"0": 7}}', '{"views": {"0": 9}}')
    (PartitionLag(topic='views', partition=0, behind=2),)
    >>> parse_lags("4", "5")
    ()
    """
    reached, known = parse_offsets(end), parse_offsets(latest)
    return tuple(
        PartitionLag(topic, partition, max(offset - reached[topic, partition], 0))
        for (topic, partition), offset in sorted(known.items())
        # A partition that was added during the micro-batch is part of the next one.
        if (topic, partition) in reached
    )


def parse_offsets(reported: Any) -> dict[tuple[str, int], int]:
    """Offsets by topic and partition, from JSON, or from its value over Connect."""
    try:
        offsets = json.loads(reported) if isinstance(reported, str) else reported
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}  # another source, or none reported


def _total(lags: tuple[PartitionLag, ...]) -> int:
    return sum(lag.behind for lag in lags)


def _change(amount: int, batches: int) -> str:
    return f"{amount:+,} in {batches} micro-batches"


def _describe_partitions(
    before: tuple[PartitionLag, ...], now: tuple[PartitionLag, ...], batches: int
) -> Iterator[str]:
    previous: Mapping[tuple[str, int], int] = {(p.topic, p.partition): p.behind for p in before}
    for lag in sorted(now, key=lambda lag: -lag.behind)[:_LISTED]:
        if lag.behind:
            change = lag.behind - previous.get((lag.topic, lag.partition), 0)
            trend = f", {_change(change, batches)}" if batches > 1 else ""
            yield f"partition {lag.partition} of {lag.topic}: {lag.behind:,} behind{trend}"
