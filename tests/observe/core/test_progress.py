"""What is displayed and exported of a micro-batch: numbers, by a closed list of names."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

import pytest

import streamops
from streamops.kernel.operator import Core
from streamops.observe.core.alarms import GAUGES
from streamops.observe.core.progress import (
    COUNTS,
    LATE,
    OperatorProgress,
    PartitionLag,
    Progress,
    QueryTotals,
    Source,
    Totals,
)

SECOND = 1_000_000


def micro_batch(batch: int = 0, *, query: str = "q", run: str = "r", **changed: object) -> Progress:
    return Progress(
        query=query, run=run, batch=batch, started=100 * SECOND, **({"rows": 4} | changed)
    )


def test_every_count_of_every_core_is_displayed() -> None:
    for module in pkgutil.walk_packages(streamops.__path__, "streamops."):
        if ".core." in module.name:
            importlib.import_module(module.name)
    names = {name for core in Core.__subclasses__() for name in core.METRICS}
    assert len(names) > 15
    assert names - COUNTS.keys() == set()
    assert {*LATE, "side_output"} <= COUNTS.keys()
    assert not COUNTS.keys() & {*GAUGES}


def test_delays_are_measured_at_the_start_of_the_micro_batch() -> None:
    progress = micro_batch(watermark=90 * SECOND, newest=97 * SECOND, oldest=85 * SECOND)
    assert (progress.watermark_delay, progress.event_delay) == (10 * SECOND, 3 * SECOND)
    assert progress.lateness == 5 * SECOND
    assert micro_batch(watermark=90 * SECOND, oldest=95 * SECOND).lateness == 0


def test_without_a_watermark_there_are_no_delays() -> None:
    for watermark in (None, 0):
        progress = micro_batch(watermark=watermark, oldest=85 * SECOND)
        assert (progress.watermark_delay, progress.event_delay, progress.lateness) == (None,) * 3
    assert micro_batch(watermark=90 * SECOND).lateness is None


def test_the_rate_is_that_of_the_whole_micro_batch() -> None:
    assert micro_batch(duration=2 * SECOND).processing_rate == 2.0
    assert micro_batch(duration=0).processing_rate is None
    assert micro_batch().processing_rate is None


def test_the_lag_is_that_of_all_partitions_of_all_sources() -> None:
    lags = PartitionLag("a", 0, 3), PartitionLag("a", 1, 4)
    sources = Source("one", 1, lags), Source("files", 1), Source("two", 1, lags[:1])
    assert micro_batch(sources=sources).behind == 10
    assert micro_batch(sources=sources[1:2]).behind is None


def operator(name: str = "w", size: int = 5, **counts: int) -> OperatorProgress:
    return OperatorProgress(name, counts, state_rows=size)


def test_late_rows_are_those_of_all_types() -> None:
    late = operator(stragglers=1, too_late=2, dropped=4, on_time=8)
    assert late.late == 7
    progress = micro_batch(operators=(late, operator("v", too_late=16)))
    assert progress.count(*LATE) == 23


def test_totals_add_up_counts_and_retain_the_last_state() -> None:
    batches = [
        micro_batch(n, duration=2, phases={"a": 1, "b": 1}, operators=(operator(size=n, rows=3),))
        for n in range(3)
    ]
    totals = QueryTotals(batches[0])
    for progress in batches:
        totals.add(progress)
    assert (totals.batches, totals.rows, totals.duration) == (3, 12, 6)
    assert totals.phases == {"a": 3, "b": 3}
    assert totals.counts == {"w": Counter(rows=9)}
    assert totals.count("rows", "late") == 9
    assert totals.operators["w"].state_rows == 2


def test_operators_of_a_previous_run_are_not_displayed_and_their_counts_remain() -> None:
    totals = QueryTotals(micro_batch())
    totals.add(micro_batch(operators=(operator("old", rows=1),)))
    totals.add(micro_batch(1, run="s", operators=(operator("new", rows=2),)))
    assert totals.operators.keys() == {"new"}
    assert totals.count("rows") == 3


def test_the_number_of_queries_is_limited_and_those_that_ended_are_removed_first() -> None:
    totals = Totals(2)
    for query in "abc":
        totals.add(micro_batch(query=query, run=query))
    assert [name for name, _ in totals] == ["b", "c"]
    totals.end("c")
    totals.add(micro_batch(query="d", run="d"))
    assert [name for name, _ in totals] == ["b", "d"]
    totals.add(micro_batch(1, query="b", run="b"))
    totals.add(micro_batch(query="e", run="e"))
    assert [(name, query.batches) for name, query in totals] == [("b", 2), ("e", 1)]


def test_a_query_that_runs_again_is_active_again() -> None:
    totals = Totals(2)
    totals.add(micro_batch())
    totals.end("another")
    totals.end("r")
    ((_, query),) = totals
    assert not query.is_active
    totals.add(micro_batch(1, run="s"))
    ((_, query),) = totals
    assert (query.is_active, query.batches) == (True, 2)


@pytest.mark.parametrize("limit", [1, 3])
def test_the_query_that_is_added_is_never_the_one_that_is_removed(limit: int) -> None:
    totals = Totals(limit)
    for number in range(5):
        added = totals.add(micro_batch(query=str(number)))
        assert [*totals][-1] == (str(number), added)
    assert len([*totals]) == limit
