"""When a query loses data is what a simulated log, consumer and retention do."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from streamops.errors import SpecError
from streamops.observe.core.alarms import append_progress
from streamops.observe.core.progress import Loss
from streamops.observe.core.retention import DataLoss, Partition, Retention, Standing
from tests.observe.core.history import SECOND, START, alarm_positions, alarms_of, micro_batch

RECORD = 200  # bytes


def log(
    second: int,
    *,
    produced: int,
    consumed: int,
    age: int | None = None,
    size: int | None = None,
    segment: int = 1,
    known: bool = True,
) -> Standing:
    """A partition after so many seconds, of producers and a consumer with constant rates per second.

    It deletes whole segments, of records that are `age` seconds old or beyond `size` bytes.
    """
    latest, offset = produced * second, consumed * second
    oldest = 0 if age is None else produced * (second - age)
    if size is not None:
        oldest = max(oldest, latest - size // RECORD)
    earliest = max(oldest // segment * segment, 0)
    written = START * SECOND + offset * SECOND // produced
    at = (START + second) * SECOND
    return Standing(
        at, offset, earliest, latest, written if known else None, RECORD if known else None
    )


LIMITS = [
    Retention(age=100 * SECOND),
    Retention(size=100 * 50 * RECORD),
    Retention(age=100 * SECOND, size=70 * 50 * RECORD),
    Retention(age=60 * SECOND, size=100 * 50 * RECORD),
]


@pytest.mark.parametrize("retention", LIMITS)
@pytest.mark.parametrize("consumed", [0, 1, 25, 40, 49])
def test_the_forecast_is_the_second_in_which_the_simulation_loses_data(
    retention: Retention, consumed: int
) -> None:
    age = None if retention.age is None else retention.age // SECOND

    def at(second: int) -> Standing:
        return log(second, produced=50, consumed=consumed, age=age, size=retention.size)

    lost = next(n for n in count(1) if at(n).offset < at(n).earliest)
    partition = Partition()
    for second in range(lost + 2):
        partition.add(at(second))
        forecast = partition.forecast(retention)
        if second < 2:
            continue
        assert forecast is not None
        found = (forecast[0] - START * SECOND) / SECOND
        if second < lost:
            # At a whole second: the first one in which an offset that is not read is deleted.
            assert lost - 2.5 <= max(found, second) <= lost, second
        else:
            assert found == second
            assert "deleted" in forecast[1]


@pytest.mark.parametrize("consumed", [50, 60])
def test_a_query_that_is_fast_enough_loses_nothing(consumed: int) -> None:
    partition = Partition()
    for second in range(61, 360, 7):
        now = log(second, produced=50, consumed=50, age=100, size=10**6, segment=40)
        behind = max(3_000 - (consumed - 50) * (second - 61), 0)
        offset = max(now.latest - behind, now.earliest)
        partition.add(replace(now, offset=offset, written=now.at - behind // 50 * SECOND))
        assert partition.forecast(Retention(100 * SECOND, 10**6)) is None


@pytest.mark.parametrize("segment", [1, 500])
def test_deletions_of_any_other_cause_are_extrapolated(segment: int) -> None:
    """No retention is known; the first offset advances by whole segments."""
    partition = Partition()
    lost = next(
        n
        for n in count(1)
        if log(n, produced=50, consumed=25, age=200).offset
        < log(n, produced=50, consumed=25, age=200).earliest
    )
    found = []
    for second in range(lost):
        partition.add(log(second, produced=50, consumed=25, age=200, segment=segment, known=False))
        forecast = partition.forecast(Retention())
        if forecast is not None:
            assert forecast[1] == "the first offset advances"
            found.append((forecast[0] - START * SECOND) / SECOND)
    # Twice the segment, as the deletions are less frequent than that.
    assert abs(found[-1] - lost) <= 1 + 2 * segment / 50
    assert len(found) >= 5


def test_a_topic_that_was_created_again_starts_anew() -> None:
    partition = Partition()
    for second in (0, 50, 90):
        partition.add(log(second, produced=50, consumed=0, age=100))
    assert partition.forecast(LIMITS[0]) is not None
    partition.add(replace(log(1, produced=50, consumed=0), at=(START + 91) * SECOND))
    assert partition.forecast(LIMITS[0]) is None  # one observation is no rate


def losing(*seconds: int, started: int = 0) -> tuple[Loss, ...]:
    at = [(START + started + n) * SECOND for n in seconds]
    return tuple(Loss("views", n, of, "retention.ms=1000") for n, of in enumerate(at))


def test_an_alarm_is_raised_once_per_episode() -> None:
    batches = [
        replace(micro_batch(started=n), losses=losses)
        for n, losses in enumerate(
            [(), losing(12), losing(11), losing(5), (), losing(7), losing(20, 3)]
        )
    ]
    assert alarm_positions(DataLoss("10 seconds"), *batches) == [2, 5]


def test_the_alarm_names_the_partitions_that_lose_data_first() -> None:
    batch = replace(micro_batch(), losses=losing(10_800, 7_265, 99_999, -1))
    [[alarm]] = alarms_of(DataLoss("3 hours"), batch)
    assert alarm.code == "DATA_LOSS"
    assert alarm.what == "the query loses data"
    assert alarm.culprits[:2] == (
        "partition 3 of views: now, retention.ms=1000",
        "partition 1 of views: in 2 hours 1 minute 5 seconds, retention.ms=1000",
    )
    assert alarm.numbers.startswith("3 of 4 partitions")
    [[alarm]] = alarms_of(DataLoss("3 hours"), replace(batch, losses=losing(10_800)))
    assert alarm.what == "the query loses data in 3 hours at this rate"


def test_a_micro_batch_without_rows_has_its_own_losses() -> None:
    batch = replace(micro_batch(), losses=losing(5))
    [merged] = append_progress((batch,), replace(micro_batch(0), losses=losing(7)), 1)
    assert merged.losses == losing(7)


@pytest.mark.parametrize("within", ["soon", -1, None])
def test_a_time_that_is_none_is_refused(within: object) -> None:
    with pytest.raises(SpecError):
        DataLoss(within)  # type: ignore[arg-type]
