"""Tests of results."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest

from streamops import aggregates as agg
from streamops import changes, windows
from streamops.changes.core.latest import ChangeMetrics
from streamops.kernel.core import Metrics
from streamops.kernel.errors import CapacityError
from streamops.kernel.time import MAX_INSTANT
from streamops.testing import replay


def test_a_window_that_ends_after_the_year_9999_is_in_the_table_only() -> None:
    daily = windows.tumbling("1 day", time="ts", agg={"n": agg.count()}, delay="0 seconds")
    noon = dt.datetime(9999, 12, 31, 12, tzinfo=dt.UTC)
    result = replay(daily, [[{"ts": noon}]], flush=True)[-1]
    assert result.table.column("n").to_pylist() == [1]
    assert result.table.column("window_end").cast("int64").to_pylist() == [MAX_INSTANT + 1]
    with pytest.raises(CapacityError, match="VALUE_TYPE") as caught:
        _ = result.rows
    assert "`table`" in caught.value.fix


def test_metrics_of_several_micro_batches_are_added() -> None:
    assert Metrics(rows=1, results=2) + Metrics(rows=3) == Metrics(rows=4, results=2)
    script = [
        [{"k": "a", "lsn": n, "_change_type": "insert"}, {"k": "a", "lsn": 0}] for n in (1, 2)
    ]
    results = replay(changes.normalize("k", sequence="lsn", horizon=100), script)
    first, second = (result.counts for result in results)
    assert first is not None
    assert second is not None
    assert type(first) is ChangeMetrics
    total = ChangeMetrics(rows=4, rejected=2, results=1, corrections=0)
    assert first + second == total
    assert sum([first, second], Metrics()) == total


def test_unrelated_metrics_are_not_added() -> None:
    @dataclass(frozen=True, slots=True)
    class Others(Metrics):
        others: int = 0

    assert Others(rows=1, others=2) + Metrics(rows=1) == Others(rows=2, others=2)
    with pytest.raises(TypeError):
        _ = Others() + ChangeMetrics()
