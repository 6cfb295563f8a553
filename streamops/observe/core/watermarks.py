"""Rules about watermarks: one that stands still, one that ran away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from streamops.kernel.time import Duration, format_duration, format_instant, parse_duration
from streamops.observe.core.facts import Facts, History
from streamops.observe.core.rules import Finding, Rule, require_batches

__all__ = ["PoisonedWatermark", "StuckWatermark"]

_OPERATOR = "the watermark of the query"


@dataclass(frozen=True)
class StuckWatermark(Rule):
    """Alarm where the watermark stands still although event times go on.

    That is: each of the last `batches` micro-batches with rows told the same watermark, and within
    them, the last one left out, the greatest event time of the query rose, to above the watermark.
    (What the last one brings moves the watermark of the next.) A stream whose event times stand
    still, too, is not stuck: it waits.

    The culprits: sources that gave no row in any of these micro-batches, where others did; and the
    producer that holds the clock of ``time.producers``.

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
        newest = [*_newest(recent[-1]).values(), _instant(recent[-1].highest)]
        silent = [f"{name}: no rows" for name in _silent(recent)]
        holding = [f"producer {name!r}: the slowest clock" for name in _said(recent, "held_by")]
        yield Finding(
            _OPERATOR,
            "the watermark stands still while event times go on",
            f"watermark {_instant(watermark)} through {self.batches} micro-batches with "
            f"{rows:,} rows; newest event time {newest[0]}",
            "see why the culprit is silent or slow; Spark waits for it for ever. time.producers "
            "with an idle timeout goes on without it"
            if silent or holding
            else "no source is silent, so one of the inputs with a watermark of its own gets no "
            "rows, or rows whose event times stand still: compare the newest event times of each",
            (*silent, *holding),
        )


@dataclass(frozen=True)
class PoisonedWatermark(Rule):
    """Alarm where event times, or the watermark, ran ahead of the clock.

    That is: the greatest event time of the last micro-batch, or the watermark, lies more than
    `ahead` after the start of the micro-batch. A watermark never goes back: all rows up to there
    are late from then on, also after a restart.

    The culprit: the producer furthest ahead, where ``time.producers`` is in the query. Else
    ``observe.furthest_ahead`` finds it in a batch.

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
        if not beyond:
            return
        furthest = max(beyond.values()) - last.started
        numbers = ", ".join(f"{name} {_instant(at)}" for name, at in beyond.items())
        leading = _said([last], "led_by")
        yield Finding(
            _OPERATOR,
            "the watermark is ahead of the clock, and stays there"
            if "watermark" in beyond
            else "an event time is ahead of the clock, and the watermark follows it",
            f"{numbers}: {_coarse(furthest)} after the micro-batch, which started at "
            f"{_instant(last.started)}",
            "put time.guard before the watermark; this checkpoint keeps the watermark, so start "
            "from a new one. observe.furthest_ahead finds who sent such rows",
            tuple(f"producer {name!r}: the clock furthest ahead" for name in leading),
        )


def _rose(recent: Sequence[Facts]) -> bool:
    """Whether event times went on within these micro-batches, and beyond the watermark."""
    first, last = recent[0], recent[-1]
    watermark = last.watermark or 0
    before, after = first.highest, last.highest
    if after is not None and (before is None or after > before) and after > watermark:
        return True
    told = map(_newest, recent)
    return any(
        other[name] > one[name] for one, other in pairwise(told) for name in one.keys() & other
    )


def _newest(facts: Facts) -> dict[str, str]:
    """The greatest event time of any producer, as operators that know who holds the clock tell.

    As text, which grows as the time does.
    """
    return {
        name: str(told["newest"])
        for name, told in facts.counts.items()
        if told.get("held_by") and told.get("newest")
    }


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


def _said(recent: Sequence[Facts], word: str) -> list[str]:
    """What operators said last, under this word."""
    found: dict[str, str] = {}
    for facts in recent:
        for name, told in facts.counts.items():
            if isinstance(told.get(word), str):
                found[name] = told[word]
    return list(dict.fromkeys(found.values()))


def _instant(micros: int | None) -> str:
    return "none yet" if not micros else format_instant(micros)


def _coarse(micros: int) -> str:
    """A duration in its greatest units, for people."""
    day, second = 86_400_000_000, 1_000_000
    return format_duration(micros // day * day if micros >= 2 * day else micros // second * second)
