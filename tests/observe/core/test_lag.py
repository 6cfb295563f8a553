"""A query that is behind its Kafka source raises an alarm, unless it catches up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamops.errors import SpecError
from streamops.observe.core.progress import Progress, Source
from streamops.observe.core.rules import ConsumerLag, parse_lags
from tests.observe.core.history import alarm_positions, alarms_of, micro_batch


def behind(*partitions: int, source: str = "KafkaV2[Subscribe[views]]") -> Progress:
    """A micro-batch after which the partitions are behind by these numbers."""
    end = {"views": {str(n): 100 for n in range(len(partitions))}}
    latest = {"views": {str(n): 100 + lag for n, lag in enumerate(partitions)}}
    return replace(micro_batch(), sources=(Source(source, 10, parse_lags(end, latest)),))


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        ([10, 20, 30], [2]),  # grows
        ([30, 30, 30], [2]),  # does not shrink
        (
            [40, 10, 39, 40],
            [3],
        ),  # the first and the last of three: 40 to 39 shrinks, 10 to 40 grows
        ([10, 20, 29], []),  # below the limit
        ([30, 30], []),  # too few micro-batches
        ([30, 30, 30, 29, 30, 31], [2, 4]),  # ends, and begins again
    ],
)
def test_an_alarm_is_raised_if_the_lag_reaches_the_limit_and_does_not_shrink(
    lags: list[int], expected: list[int]
) -> None:
    assert alarm_positions(ConsumerLag(30, batches=3), *(behind(lag) for lag in lags)) == expected


def test_one_micro_batch_is_enough_where_no_trend_is_required() -> None:
    assert alarm_positions(ConsumerLag(30, batches=1), behind(29), behind(15, 15)) == [1]


def test_the_alarm_names_the_partitions_with_the_greatest_lag_and_their_trend() -> None:
    *_, [alarm] = alarms_of(ConsumerLag(30, batches=2), behind(0, 9, 1_000), behind(0, 7, 3_000))
    assert alarm.operator == "source 0 (KafkaV2[Subscribe[views]])"
    assert alarm.numbers == "3,007 records behind, +1,998 in 2 micro-batches"
    assert alarm.culprits == (
        "partition 2 of views: 3,000 behind, +2,000 in 2 micro-batches",
        "partition 1 of views: 7 behind, -2 in 2 micro-batches",
    )


@pytest.mark.parametrize(
    ("end", "latest", "expected"),
    [
        ('{"t": {"0": 5}}', '{"t": {"0": 9, "1": 4}}', [("t", 0, 4)]),  # partition 1 is new
        ({"t": {"0": 5}}, {"t": {"0": 4}}, [("t", 0, 0)]),  # known before it was read
        ('{"b": {"10": 1, "9": 1}, "a": {"0": 1}}',) * 2
        + ([("a", 0, 0), ("b", 9, 0), ("b", 10, 0)],),
        (None, '{"t": {"0": 9}}', []),
        ('{"logOffset": 3}', '{"logOffset": 4}', []),  # files
        ("not JSON", "7", []),
    ],
)
def test_lags_are_parsed_from_the_offsets_of_a_source(
    end: object, latest: object, expected: list[tuple[str, int, int]]
) -> None:
    assert [(p.topic, p.partition, p.behind) for p in parse_lags(end, latest)] == expected


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(SpecError, match="PARAMETER_OUT_OF_RANGE"):
        ConsumerLag(0)
    with pytest.raises(SpecError, match="PARAMETER_OUT_OF_RANGE"):
        ConsumerLag(1, batches=0)
