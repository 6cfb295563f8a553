"""Rules about watermarks: one that stands still, one that ran away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from streamops.kernel.time import Duration, format_duration, format_instant, parse_duration
from streamops.observe.core.facts import Facts, History
from streamops.observe.core.rules import Finding, Rule, require_batches

__all__ = ["PoisonedWatermark", "StuckWatermark"]

_OPERATOR = "the watermark of the query"

_SILENT = (
    "see why the culprit is silent or slow; Spark waits for it for ever. time.producers with an "
    "idle timeout goes on without it"
)
_HELD = (
    "see why the culprit is silent or slow; time.producers forgets it when it has been silent for "
    "`idle`, by arrival. If that is too long, make `idle` shorter; if this alarm is too early, "
    "take more `batches` than micro-batches fit into `idle`"
)
_UNKNOWN = (
    "no source is silent, so one of the inputs with a watermark of its own gets no rows, or rows "
    "whose event times stand still: compare the newest event times of each. After a restart, older "
    "rows or a larger delay look the same until event times are beyond those of the run before"
)


@dataclass(frozen=True)
class StuckWatermark(Rule):
    """Alarm where the watermark stands still although event times go on.

    That is: each of the last `batches` micro-batches with rows told the same watermark, and within
    them, the last one left out, the greatest event time of the query rose, to above the watermark.
    (What the last one brings moves the watermark of the next.) A stream whose event times stand
    still, too, is not stuck: it waits.

    The culprits: sources that gave no row in any of these micro-batches, where others did; and the
    producer that holds a clock of ``time.producers`` that stood still, too. ``time.producers``
    forgets such a one after `idle`: with a shorter alarm, every pause of a producer is told.

    Parameters
    ----------
    batches : int
        How many micro-batches with rows, >= 3.

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
        require_batches(self, self.batches, least=3)

    @property
    def remembers(self) -> int:
        """How many micro-batches with rows it looks back on."""
        return self.batches

    def judge(self, history: History) -> Iterator[Finding]:
        """An alarm if the watermark is stuck."""
        recent = history[-self.batches :]
        watermark = recent[-1].watermark
        if len(recent) < self.batches or watermark is None or not all(f.rows for f in recent):
            return
        if any(facts.watermark != watermark for facts in recent) or not _rose(recent[:-1]):
            return
        rows = sum(facts.rows for facts in recent)
        # Behind a clock of producers Spark sees the clock, and only the operator all event times.
        times = [told[-1]["newest_micros"] for told in _held(recent).values() if told]
        newest = max([*times, recent[-1].highest or 0])
        silent = [f"{name}: no rows" for name in _silent(recent)]
        holding = _holding(recent[:-1])
        yield Finding(
            _OPERATOR,
            "the watermark stands still while event times go on",
            f"watermark {_instant(watermark)} through {self.batches} micro-batches with "
            f"{rows:,} rows; newest event time {_instant(newest)}",
            _SILENT if silent else _HELD if holding else _UNKNOWN,
            (*silent, *holding),
        )


@dataclass(frozen=True)
class PoisonedWatermark(Rule):
    """Alarm where event times, or the watermark, ran ahead of the clock.

    That is: the greatest event time of the last micro-batch, or the watermark, lies more than
    `ahead` after the start of the micro-batch. A watermark never goes back: all rows up to there
    are late from then on, also after a restart. Behind ``time.producers`` the watermark follows
    only when the other producers are silent: before that, the alarm is one of that operator.

    The culprit: the producer furthest ahead, where ``time.producers`` is in the query and has not
    forgotten it. Else ``observe.furthest_ahead`` finds it in a batch.

    Parameters
    ----------
    ahead : duration
        The error of clocks that is forgiven, >= 0.

    Raises
    ------
    SpecError
        `ahead` is no duration, or negative.

    Examples
    --------
    >>> PoisonedWatermark("90 minutes")
    PoisonedWatermark(ahead='1 hour 30 minutes')
    """

    code: ClassVar[str] = "POISONED_WATERMARK"

    ahead: Duration = "1 hour"

    def __post_init__(self) -> None:
        micros = parse_duration(
            self.ahead, parameter="ahead", where="observe.PoisonedWatermark", minimum=0
        )
        object.__setattr__(self, "ahead", format_duration(micros))

    def judge(self, history: History) -> Iterator[Finding]:
        """An alarm if the watermark is poisoned, or about to be."""
        last = history[-1]
        limit = parse_duration(self.ahead, parameter="ahead", where="") + last.started
        told = {"watermark": last.watermark, "newest event time": last.newest}
        beyond = {name: at for name, at in told.items() if at is not None and at > limit}
        # Who leads may be far behind: one that made the clock run ahead is forgotten in the end.
        leading = {
            operator: producers[-1]
            for operator, producers in _told(history[-1:]).items()
            if (producers[-1].get("newest_micros") or 0) > limit
        }
        if not beyond:
            yield from (_ahead(name, producers, last) for name, producers in leading.items())
            return
        yield Finding(
            _OPERATOR,
            "the watermark is ahead of the clock, and stays there"
            if "watermark" in beyond
            else "an event time is ahead of the clock, and the watermark follows it",
            _how_far(beyond, last),
            "put time.guard before the watermark; this checkpoint keeps the watermark, so start "
            "from a new one. observe.furthest_ahead finds who sent such rows",
            tuple(dict.fromkeys(map(_leader, leading.values()))),
        )


def _ahead(operator: str, producers: Mapping[str, Any], last: Facts) -> Finding:
    """A producer ahead of the clock, which those beside it still hold."""
    return Finding(
        operator,
        "an event time is ahead of the clock, and the watermark follows it when all other "
        "producers are silent",
        _how_far({"newest event time": producers["newest_micros"]}, last),
        "put time.guard before time.producers; this checkpoint keeps the event time until its "
        "producer has been silent for `idle`. If all others are silent before, start from a new one",
        (_leader(producers),),
    )


def _leader(producers: Mapping[str, Any]) -> str:
    return f"producer {producers['led_by']!r}: the clock furthest ahead"


def _how_far(beyond: Mapping[str, int], last: Facts) -> str:
    numbers = ", ".join(f"{name} {_instant(at)}" for name, at in beyond.items())
    return (
        f"{numbers}: {_coarse(max(beyond.values()) - last.started)} after the micro-batch, which "
        f"started at {_instant(last.started)}"
    )


def _rose(recent: Sequence[Facts]) -> bool:
    """Whether event times went on within these micro-batches, and beyond the watermark."""
    first, last = recent[0], recent[-1]
    watermark = last.watermark or 0
    before, after = first.highest, last.highest
    if after is not None and (before is None or after > before) and after > watermark:
        return True
    return any(
        max(one["newest_micros"], watermark) < other["newest_micros"]
        for told in _held(recent).values()
        for one, other in pairwise(told)
    )


def _told(recent: Sequence[Facts]) -> dict[str, list[Mapping[str, Any]]]:
    """What each clock of producers told, micro-batch by micro-batch, where it was asked.

    It is not where none of its rows came, and then its clock stands still.
    """
    told: dict[str, list[Mapping[str, Any]]] = {}
    for facts in recent:
        for name, each in facts.counts.items():
            if "held_by" in each and each.get("rows") is not None:
                told.setdefault(name, []).append(each)
    return told


def _held(recent: Sequence[Facts]) -> dict[str, list[Mapping[str, Any]]]:
    """The same, where somebody holds the clock, and somebody has a time.

    Where nobody does, all producers are behind the clock, and what they send moves nothing.
    """
    return {
        name: [each for each in told if each["held_by"] and each.get("newest_micros") is not None]
        for name, told in _told(recent).items()
    }


def _holding(recent: Sequence[Facts]) -> list[str]:
    """Who holds a clock that stood still all the time."""
    found = []
    for told in _told(recent).values():
        last = told[-1]
        if last["held_by"] and len({each.get("clock_micros") for each in told}) == 1:
            waits = last.get("clock_micros") is None
            said = "is waited for" if waits else "the slowest clock"
            found.append(f"producer {last['held_by']!r}: {said}")
    return list(dict.fromkeys(found))


def _silent(recent: Sequence[Facts]) -> list[str]:
    """Sources without rows, where there is one with rows; by description, numbered if alike."""
    sources = recent[-1].sources
    rows = [
        sum(facts.sources[place].rows for facts in recent if len(facts.sources) == len(sources))
        for place in range(len(sources))
    ]
    names = [source.description for source in sources]
    return [
        f"source {place} ({name})" if names.count(name) > 1 else f"source {name}"
        for place, name in enumerate(names)
        if not rows[place] and any(rows)
    ]


def _instant(micros: int | None) -> str:
    return "none yet" if not micros else format_instant(micros)


def _coarse(micros: int) -> str:
    """A duration in its greatest units, for people; below a second, all of it."""
    day, second = 86_400_000_000, 1_000_000
    unit = day if micros >= 2 * day else second if micros >= second else 1
    return format_duration(micros // unit * unit)
