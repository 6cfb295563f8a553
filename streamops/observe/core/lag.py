"""The lag of a query behind the partitions of its Kafka sources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from streamops.kernel.errors import located
from streamops.observe.core.alarms import Finding, History, Rule
from streamops.observe.core.progress import PartitionLag
from streamops.observe.core.rules import require_batches, require_count

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
    reached, known = _parse_offsets(end), _parse_offsets(latest)
    return tuple(
        PartitionLag(topic, partition, max(offset - reached[topic, partition], 0))
        for (topic, partition), offset in sorted(known.items())
        # A partition that was added during the micro-batch is part of the next one.
        if (topic, partition) in reached
    )


def _parse_offsets(reported: Any) -> dict[tuple[str, int], int]:
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
