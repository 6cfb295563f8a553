from __future__ import annotations

import datetime as dt
import io
from typing import Any

import pytest

from examples.flights.contents import QUERIES
from examples.flights.progress import Progress

HOURS = QUERIES["hours"].windows


class Query:
    """As much of a query of Spark's as is looked at: micro-batches that are done one look later."""

    def __init__(self, *batches: dict[str, int], fails: bool = False) -> None:
        self.recentProgress: list[Report] = []
        self._coming = [Report(number, **counts) for number, counts in enumerate(batches)]
        self._fails = fails

    def awaitTermination(self, timeout: float) -> bool:
        if self._coming:
            self.recentProgress.append(self._coming.pop(0))
        elif self._fails:
            raise RuntimeError("failed")
        return not (self._coming or self._fails)

    @property
    def lastProgress(self) -> Report | None:
        return self.recentProgress[-1] if self.recentProgress else None


class Report:
    def __init__(self, number: int, **counts: int) -> None:
        self.batchId = number
        self.numInputRows = counts.get("rows", 0)
        self.observedMetrics = {
            report: Row(reports) for report, reports in metrics(**counts).items()
        }


class Row(dict[str, Any]):
    def asDict(self) -> dict[str, Any]:
        return dict(self)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def metrics(watermark: str | None = "2013-03-08 17:30:00", **counts: int) -> dict[str, Any]:
    names = ("rows", "stragglers", "corrections", "too_late", "state_rows", "state_bytes")
    observed = {**dict.fromkeys(names, 0), **counts, "watermark": watermark}
    return dict.fromkeys(HOURS, observed)


def test_counts_add_up_and_state_does_not() -> None:
    progress = Progress("hours", 2, io.StringIO())
    progress.add(metrics(rows=10, stragglers=2, state_rows=5), rows=True)
    progress.add(metrics(rows=20, stragglers=1, state_rows=7), rows=True)
    assert progress.counts["hourly"]["rows"] == 30
    assert progress.counts["three_hours"]["stragglers"] == 3
    assert "state_rows" not in progress.counts["hourly"]


def test_a_micro_batch_without_rows_does_not_belong_to_the_log() -> None:
    screen = io.StringIO()
    progress = Progress("hours", 1, screen)
    progress.add(metrics(rows=10), rows=True)
    progress.add(metrics(), rows=False)
    assert [line.split()[0] for line in screen.getvalue().splitlines()] == ["1/1", "1/1"]


def test_the_watermark_is_displayed_in_new_york_and_stored_in_utc() -> None:
    screen = io.StringIO()
    progress = Progress("hours", 3, screen)
    progress.add(metrics(watermark=None), rows=True)
    assert progress.watermark is None
    progress.add(metrics(), rows=True)
    progress.add(metrics(watermark="2013-07-01 16:00:00"), rows=True)
    none, winter, summer = screen.getvalue().splitlines()
    assert "none yet" in none
    assert "8 Mar 12:30 EST" in winter
    assert "1 Jul 12:00 EDT" in summer
    assert progress.watermark == dt.datetime(2013, 7, 1, 16, tzinfo=dt.UTC)


def test_values_without_windows_have_no_watermark_and_no_stragglers() -> None:
    progress = Progress("days", 3, io.StringIO())
    windowed = {"airline_days": metrics(rows=10)["hourly"]}
    running = {"rows": 10, "ignored": 0, "results": 4, "corrections": 1, "state_rows": 4}
    progress.add({**windowed, "route_delays": running, "busiest_routes": running}, rows=True)
    assert progress.watermark == dt.datetime(2013, 3, 8, 17, 30, tzinfo=dt.UTC)
    assert progress.counts["route_delays"] == {k: running[k] for k in running if k != "state_rows"}


def test_a_terminal_has_one_line_that_is_updated() -> None:
    screen = Terminal()
    progress = Progress("hours", 2, screen)
    progress.add(metrics(rows=10), rows=True)
    progress.add(metrics(rows=20), rows=True)
    assert "\n" not in screen.getvalue()
    assert screen.getvalue().count("\r") == 2


@pytest.mark.parametrize("query", QUERIES)
def test_columns_are_aligned_with_their_headings(query: str) -> None:
    progress = Progress(query, 68, io.StringIO())
    line = progress.line({"state_rows": 1_234, "state_bytes": 56_000})
    groups, titles = progress.header().splitlines()
    assert len(groups) <= len(titles) <= 110
    assert len(line) == len(titles)
    assert line[: titles.index("rows   kB") + 9].endswith("1,234   56")


def test_a_query_is_followed_to_its_end() -> None:
    screen = io.StringIO()
    progress = Progress("hours", 2, screen)
    query: Any = Query({"rows": 10}, {"rows": 20}, {})
    progress.follow(query, batches=1)
    assert progress.counts["hourly"]["rows"] == 10
    progress.follow(query)
    assert progress.counts["hourly"]["rows"] == 30
    assert [line.split()[0] for line in screen.getvalue().splitlines()] == ["1/2", "2/2", "2/2"]


def test_micro_batches_between_two_polls_are_displayed_too() -> None:
    progress = Progress("hours", 3, io.StringIO())
    query: Any = Query()
    query.recentProgress = [Report(n, rows=10) for n in range(3)]
    progress.follow(query)
    assert progress.counts["hourly"]["rows"] == 30


def test_a_query_without_a_micro_batch_does_not_block_others() -> None:
    screen = io.StringIO()
    nothing: Any = Query()
    Progress("hours", 2, screen).follow(nothing, batches=1)
    assert screen.getvalue() == ""


def test_a_query_that_fails_raises_its_error() -> None:
    broken: Any = Query({"rows": 10}, fails=True)
    with pytest.raises(RuntimeError, match="failed"):
        Progress("hours", 2, io.StringIO()).follow(broken)


def test_operators_before_a_join_are_counted_but_not_displayed() -> None:
    screen = io.StringIO()
    progress = Progress("departures", 4, screen)
    reports = metrics(rows=10)["hourly"]
    progress.add({"weather": reports, "aircraft": reports, "register": reports}, rows=True)
    assert [*progress.counts] == ["weather", "aircraft", "register"]
    (line,) = screen.getvalue().splitlines()
    assert len(line) == len(progress.header().splitlines()[1])
