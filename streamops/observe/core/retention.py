"""When a query loses data: where it is in a partition, and what the brokers delete."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from streamops.kernel.errors import located
from streamops.kernel.time import Duration, format_duration, format_instant, parse_duration
from streamops.observe.core.alarms import Finding, History, Rule
from streamops.observe.core.progress import Loss

_STANDINGS = 60
_DELETIONS = 10
_LISTED = 5


@dataclass(frozen=True, slots=True)
class Retention:
    """What a topic retains: the age of records in microseconds, and the bytes of a partition."""

    age: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a query is in a partition.

    Parameters
    ----------
    at : int
        The instant, in microseconds.
    offset, earliest, latest : int
        The next offset of the query; the first offset and the end of the partition.
    written : int, optional
        The timestamp of the record at the offset, in microseconds; None if it is not known.
    record_size : float, optional
        The mean size of the records from there on, in bytes.
    """

    at: int
    offset: int
    earliest: int
    latest: int
    written: int | None = None
    record_size: float | None = None

    @property
    def reached(self) -> int | None:
        """The time of the log up to which the query has read: now, if it is at the end."""
        return self.at if self.offset >= self.latest else self.written


class Partition:
    """What was observed of a partition: the last standings, and the last deletions."""

    def __init__(self) -> None:
        self._standings: deque[Standing] = deque(maxlen=_STANDINGS)
        self._deletions: deque[Standing] = deque(maxlen=_DELETIONS)

    def add(self, standing: Standing) -> None:
        """Add a standing, later than all others."""
        if self._standings:
            last = self._standings[-1]
            if standing.latest < last.latest or standing.offset < last.offset:
                # A topic that was created again, or a query that starts again from an older offset.
                self._standings.clear()
                self._deletions.clear()
            elif standing.earliest > last.earliest:
                self._deletions.append(standing)
        self._standings.append(standing)

    def forecast(self, retention: Retention) -> tuple[int, str] | None:
        """When records are deleted before they are read, and why; None if the query is fast enough."""
        last = self._standings[-1]
        if last.offset < last.earliest:
            return last.at, f"{last.earliest - last.offset:,} offsets are deleted"
        if last.offset >= last.latest:
            return None
        found = [
            *self._by_age(retention.age),
            *self._by_size(retention.size),
            *self._by_deletions(),
        ]
        return min(found, default=None)

    def _by_age(self, age: int | None) -> Iterator[tuple[int, str]]:
        """From the age of the next record, which grows by less than a second per second."""
        first, last = self._standings[0], self._standings[-1]
        if age is None or last.reached is None or first.reached is None or last.at == first.at:
            return
        growth = 1 - (last.reached - first.reached) / (last.at - first.at)
        if growth > 0:
            left = (age - (last.at - last.reached)) / growth
            yield last.at + max(int(left), 0), f"retention.ms={age // 1_000}"

    def _by_size(self, size: int | None) -> Iterator[tuple[int, str]]:
        """From the lag, which grows up to the number of records that the partition retains."""
        first, last = self._standings[0], self._standings[-1]
        if size is None or last.at == first.at:
            return
        retained = last.latest - last.earliest
        if last.record_size:
            retained = max(retained, int(size / last.record_size))
        elif not last.earliest:
            return  # nothing was deleted yet
        lag = last.latest - last.offset
        growth = lag - (first.latest - first.offset)
        if growth > 0:
            left = (retained - lag) / growth * (last.at - first.at)
            yield last.at + max(int(left), 0), f"retention.bytes={size}"

    def _by_deletions(self) -> Iterator[tuple[int, str]]:
        """From the advance of the earliest offset, whatever deletes, from one deletion to others.

        A deletion is a segment or more: an advance that is not more than one beyond that of the query
        is no rate.
        """
        first, last = self._standings[0], self._standings[-1]
        if len(self._deletions) < 2 or last.at == first.at:
            return
        offsets = [deletion.earliest for deletion in self._deletions]
        elapsed = last.at - self._deletions[0].at
        read = (last.offset - first.offset) / (last.at - first.at) * elapsed
        growth = offsets[-1] - offsets[0] - read
        if growth > max(after - before for before, after in pairwise(offsets)):
            left = (last.offset - last.earliest) / growth * elapsed
            yield last.at + int(left), "the first offset advances"


@dataclass(frozen=True)
class DataLoss(Rule):
    """Alarm if a query loses data of its Kafka topics within this time, at its present rate.

    The listener needs ``retention``, a :class:`KafkaRetention`. The culprits are the partitions that
    lose data first, with the time that is left and what deletes their records.

    Parameters
    ----------
    within : duration
        The time in which you can still do something about it.

    Raises
    ------
    SpecError
        ``within`` is not a duration, or negative.

    Examples
    --------
    >>> DataLoss("3 hours")
    DataLoss(within='3 hours')
    """

    code: ClassVar[str] = "DATA_LOSS"

    within: Duration

    @located("observe.DataLoss")
    def __post_init__(self) -> None:
        object.__setattr__(self, "within", format_duration(self._micros))

    @property
    def _micros(self) -> int:
        return parse_duration(self.within, parameter="within")

    def evaluate(self, history: History) -> Iterator[Finding]:
        """Yield a finding if records are deleted within that time."""
        last = history[-1]
        limit = last.started + self._micros
        soon = sorted((loss for loss in last.losses if loss.at <= limit), key=lambda loss: loss.at)
        if not soon:
            return
        left = _left(soon[0], last.started)
        yield Finding(
            "the Kafka topics of the query",
            f"the query loses data {left} at this rate"
            if left != "now"
            else "the query loses data",
            f"{len(soon)} of {len(last.losses)} partitions that lose data, the first one at "
            f"{format_instant(soon[0].at)}",
            "raise retention.ms and retention.bytes of the topic, which works at once; then add tasks "
            "(partitions, cores), raise maxOffsetsPerTrigger, or find the slow part of the query",
            tuple(
                f"partition {loss.partition} of {loss.topic}: {_left(loss, last.started)}, {loss.reason}"
                for loss in soon[:_LISTED]
            ),
        )


def _left(loss: Loss, now: int) -> str:
    """How long it takes, in whole seconds."""
    seconds = (loss.at - now) // 1_000_000
    return f"in {format_duration(seconds * 1_000_000)}" if seconds > 0 else "now"
