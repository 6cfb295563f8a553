"""The watermark is a staircase, and rows below it are late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.patches import StepPatch

from streamops import aggregates, joins, plots, testing, time, windows
from streamops.kernel.errors import SchemaError, SpecError
from streamops.spark.operator import Operator
from tests.plots.artists import at, dots, legend, minutes, texts

ROWS = {"batch": [0, 0, 1, 1, 2, 2, 2], "t": [3, 8, 12, 4, 11, 10, 2]}


def stairs(ax: Axes, name: str) -> tuple[list[float], list[float]]:
    """The edges and the levels of a staircase."""
    (found,) = [patch for patch in ax.patches if patch.get_label() == name]
    assert isinstance(found, StepPatch)
    data = found.get_data()
    return list(data.edges), list(data.values)


def test_a_row_is_compared_with_the_watermark_of_the_micro_batches_before() -> None:
    ax = plots.plot_watermark(ROWS, time="t", arrival="batch", delay=2)
    edges, levels = stairs(ax, "watermark")
    assert edges == [-0.5, 0.5, 1.5, 2.5]
    assert np.isnan(levels[0])
    assert levels[1:] == [6, 10]
    assert sorted(dots(ax, "on time")) == [(0, 3), (0, 8), (1, 12), (2, 11)]
    assert sorted(dots(ax, "late")) == [(1, 4), (2, 2), (2, 10)]  # 10 is at the watermark
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("micro-batch", "event time")


def test_rows_beyond_the_allowed_lateness_are_too_late() -> None:
    ax = plots.plot_watermark(ROWS, time="t", arrival="batch", delay=2, allowed_lateness=8)
    assert sorted(dots(ax, "straggler")) == [(1, 4), (2, 10)]
    assert dots(ax, "too late") == [(2, 2)]  # 2 is 8 below the watermark
    assert stairs(ax, "end of the allowed lateness")[1][1:] == [-2, 2]
    assert legend(ax) == [
        "on time", "straggler", "too late", "watermark", "end of the allowed lateness",
    ]  # fmt: skip


def test_the_watermark_does_not_fall() -> None:
    rows = {"batch": [0, 1, 2, 3], "t": [10, 3, 4, 12]}
    ax = plots.plot_watermark(rows, time="t", arrival="batch", delay=0)
    assert stairs(ax, "watermark")[1][1:] == [10, 10, 10]


def test_a_watermark_of_the_query_can_be_drawn() -> None:
    rows = {"batch": [0, 1, 1, 2], "t": [5, 6, 1, 9], "watermark": [None, 2, 2, 3]}
    ax = plots.plot_watermark(rows, time="t", arrival="batch", watermark="watermark")
    assert stairs(ax, "watermark")[1][1:] == [2, 3]
    assert dots(ax, "late") == [(1, 1)]


CLICKS = [
    {"ts": at(minute), "batch": number}
    for number, minutes in enumerate([[3, 8], [6, 16], [9], [4, 21], [12, 45], [7, 12], [2]])
    for minute in minutes
]
COUNT = {"n": aggregates.count()}


def test_an_operator_decides_which_rows_are_late() -> None:
    """It compares the ends of windows with the watermark of the micro-batch before."""
    tumbling = windows.tumbling(
        "10 minutes", time="ts", agg=COUNT, delay="5 minutes", allowed_lateness="20 minutes",
        stragglers="update",
    )  # fmt: skip
    ax = plots.plot_watermark(CLICKS, time="ts", arrival="batch", operator=tumbling)
    drawn = {
        name: [(int(batch), round(float(minutes(y)))) for batch, y in sorted(dots(ax, name))]
        for name in ("on time", "straggler", "too late")
    }
    assert drawn == {
        "on time": [(0, 3), (0, 8), (1, 6), (1, 16), (2, 9), (3, 21), (4, 12), (4, 45), (5, 12)],
        "straggler": [(3, 4), (5, 7)],
        "too late": [(6, 2)],
    }
    assert minutes(stairs(ax, "watermark")[1][2:]).round().tolist() == [3, 11, 11, 16, 40]
    assert "end of the allowed lateness" in legend(ax)


@pytest.mark.parametrize(
    ("operator", "late"),
    [
        (windows.session("10 seconds", time="ts", agg=COUNT, delay="0 seconds"), [5, 10, 61, 88]),
        (windows.tumbling("10 seconds", time="ts", agg=COUNT, delay="0 seconds"), [5, 10, 61, 88, 95]),
        (windows.hopping("20 seconds", "10 seconds", time="ts", agg=COUNT, delay="0 seconds"), [5, 10, 61, 88]),
        (windows.sliding("10 seconds", time="ts", agg=COUNT, delay="0 seconds"), [5, 10, 61, 88, 95]),
    ],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_the_dots_are_what_the_operator_counts(operator: Operator, late: list[int]) -> None:
    seconds = [[100], [101], [10, 61, 95, 88, 120], [109, 119, 5]]
    batches = [[{"ts": testing.at(second)} for second in numbers] for numbers in seconds]
    rows = [{**row, "batch": n} for n, batch in enumerate(batches) for row in batch]
    ax = plots.plot_watermark(rows, time="ts", arrival="batch", operator=operator)
    found = sorted(round(24 * 3600 * (y % 1)) for _, y in dots(ax, "too late"))
    assert found == late
    if operator.name != "windows.hopping":  # which counts pairs of a row and a window
        counts = [result.counts for result in testing.replay(operator, batches)]
        assert sum(of.too_late for of in counts if of is not None) == len(late)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"watermark": "ts"}, "PARAMETERS_CONTRADICT"),
        ({"allowed_lateness": "1 hour"}, "PARAMETERS_CONTRADICT"),
        ({"operator": time.processing_time()}, "NOT_REPLAYABLE"),
        ({"operator": windows.running(agg=COUNT)}, "NOT_REPLAYABLE"),
        ({"operator": joins.interval(None, "0 seconds", "1 hour", by="k", time="ts")}, "NOT_REPLAYABLE"),
    ],
)  # fmt: skip
def test_an_operator_that_cannot_decide_is_refused(given: dict[str, Any], code: str) -> None:
    operator = windows.sliding("1 hour", time="ts", agg=COUNT, delay="1 hour")
    arguments: dict[str, Any] = {"operator": operator, **given}
    with pytest.raises(SpecError, match=code):
        plots.plot_watermark(CLICKS, time="ts", arrival="batch", **arguments)


INTERVALS = {"window_start": [at(0)], "window_end": [at(10)]}


@pytest.mark.parametrize(
    "draw",
    [
        lambda **how: plots.plot_watermark(CLICKS, time="ts", arrival="ts", **how),
        lambda **how: plots.plot_windows(INTERVALS, **how),
        lambda **how: plots.plot_sessions(INTERVALS, gap="1 minute", **how),
        lambda **how: plots.plot_corrections({**INTERVALS, "batch": [0]}, **how),
        lambda **how: plots.plot_history(
            {**INTERVALS, "k": [1]}, by="k", start="window_start", end="window_end", **how
        ),
        lambda **how: plots.plot_matches(
            INTERVALS, CLICKS, time="ts", start="window_start", end="window_end", **how
        ),
        lambda **how: plots.plot_state({"batch": [at(0)], "state_rows": [1]}, **how),
    ],
    ids=["watermark", "windows", "sessions", "corrections", "history", "matches", "state"],
)
def test_a_picture_has_the_time_zone_that_it_is_given(draw: Callable[..., Axes]) -> None:
    for zone, hour in (("Asia/Tokyo", "18"), (None, "09")):
        formatter: Any = draw(zone=zone).xaxis.get_major_formatter()
        assert formatter.format_data_short(date2num(at(0)))[11:13] == hour
    with pytest.raises(SpecError, match="INVALID_PARAMETER"):
        draw(zone="Tokyo")


def test_between_arrivals_the_watermark_rises_right_after_a_row() -> None:
    rows = [{"ts": at(m), "arrived": at(a)} for m, a in ((0, 1), (5, 6), (2, 8))]
    ax = plots.plot_watermark(rows, time="ts", arrival="arrived", delay="1 minute")
    edges, levels = stairs(ax, "watermark")
    assert minutes(edges[1:3]).tolist() == [1, 6]
    assert minutes(levels[1:]).tolist() == [-1, 4]
    assert [float(minutes(y)) for _, y in dots(ax, "late")] == [2]
    assert ax.get_xlabel() == "arrival"


def test_without_a_watermark_events_are_dots() -> None:
    ax = plots.plot_watermark(ROWS, time="t", arrival="batch")
    assert len(dots(ax, "event")) == 7
    assert not ax.patches


def test_nulls_are_left_out() -> None:
    rows: dict[str, Any] = {"batch": [0, 0, 1], "t": [3.0, None, 9.0]}
    ax = plots.plot_watermark(rows, time="t", arrival="batch", delay=1)
    assert dots(ax, "on time") == [(0, 3), (1, 9)]


def test_an_event_time_in_the_year_2999_can_be_drawn() -> None:
    rows = [{"ts": at(0), "batch": 0}, {"ts": at(0).replace(year=2999), "batch": 1}]
    ax = plots.plot_watermark(rows, time="ts", arrival="batch", delay="1 hour")
    assert len(dots(ax, "on time")) == 2
    assert ax.get_ylim()[1] > 365 * 1000


def test_delay_and_a_watermark_contradict() -> None:
    with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT"):
        plots.plot_watermark(ROWS, time="t", arrival="batch", delay=1, watermark="t")


def test_text_is_no_event_time() -> None:
    with pytest.raises(SchemaError, match="COLUMN_TYPE"):
        plots.plot_watermark({"a": ["x"], "b": [1]}, time="a", arrival="b")


def test_the_share_of_late_rows_falls_with_the_delay() -> None:
    rows = {"batch": [0, 1, 2, 3], "t": [3, 8, 4, 5]}  # behind by -, -5, 4, 3
    ax = plots.plot_late_share(rows, time="t", arrival="batch", delay=3.5)
    edges, levels = stairs(ax, "late rows")
    assert edges[:3] == [0, 3, 4]
    assert levels == [0.5, 0.25, 0]
    assert texts(ax) == ["25 % late"]
    assert ax.get_xlabel() == "delay"


def test_a_row_that_is_behind_by_exactly_the_delay_is_late() -> None:
    rows = {"batch": [0, 1], "t": [8, 4]}
    shares = {
        delay: texts(plots.plot_late_share(rows, time="t", arrival="batch", delay=delay))
        for delay in (4, 4.001)
    }
    assert shares == {4: ["50 % late"], 4.001: ["0 % late"]}


@pytest.mark.parametrize("delay", ["10 hours", "20 days", "30 minutes", "0 seconds"])
def test_the_marked_delay_is_in_the_picture(delay: str) -> None:
    rows = [{"ts": at(second), "n": n} for n, second in enumerate((100, 60, 130, 95, 140))]
    ax = plots.plot_late_share(rows, time="ts", arrival="n", delay=delay)
    (mark,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert 0 <= mark.get_xdata()[0] < ax.get_xlim()[1]
    ax.figure.canvas.draw()
    picture = ax.figure.bbox
    for text in ax.texts:
        box = text.get_window_extent()
        assert ax.bbox.x0 <= box.x0 < box.x1 <= ax.bbox.x1
    assert ax.bbox.width > picture.width / 2
    assert texts(ax) == [
        {"30 minutes": "40 % late", "0 seconds": "40 % late"}.get(delay, "0 % late")
    ]


@pytest.mark.parametrize(
    ("behind", "unit"), [(1 / 60, "seconds"), (30, "minutes"), (300, "hours"), (10_000, "days")]
)
def test_the_unit_of_the_delay_fits(behind: float, unit: str) -> None:
    rows = [{"ts": at(20_000), "n": 0}, {"ts": at(20_000 - behind), "n": 1}]
    ax = plots.plot_late_share(rows, time="ts", arrival="n")
    assert ax.get_xlabel() == f"delay, in {unit}"
