"""Windows that grow through a period."""

from __future__ import annotations

from typing import get_args

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from streamops.kernel.calendar import Unit
from streamops.kernel.grids import CalendarGrid, CumulativeGrid, FixedGrid
from tests.kernel.test_calendar_grid import HOUR, ZONES, everywhere, instant
from tests.oracles.calendars import CumulativeOracle


def oracle(grid: CumulativeGrid) -> CumulativeOracle:
    arguments = {"by": (), "time": "t", "agg": {}, "every": grid.every}
    match grid.periods:
        case FixedGrid(size, _, origin):
            return CumulativeOracle(size=size, origin=origin, **arguments)
        case CalendarGrid(unit, zone, _):
            return CumulativeOracle(size=unit, zone=zone, **arguments)


def windows(grid: CumulativeGrid, instant: int) -> list[tuple[int, int]]:
    first, last = grid.windows_of(np.array([instant]))
    numbers = np.arange(first[0], last[0] + 1)
    return list(zip(grid.start_of(numbers).tolist(), grid.end_of(numbers).tolist(), strict=True))


@given(instant=st.integers(-(10**15), 10**15), grid=st.deferred(lambda: grids()))
def test_windows_that_contain_an_instant_exist(instant: int, grid: CumulativeGrid) -> None:
    period = grid.windows_of(np.array([instant]))[1][0] // grid.width
    numbers = period * grid.width + np.arange(grid.width)
    expected = []
    reached = int(grid.start_of(numbers)[0])
    while len(expected) < grid.width:
        end = int(grid.end_of(numbers)[len(expected)])
        expected.append(end > reached)
        reached = end
    assert grid.exist(numbers).tolist() == expected


@st.composite
def grids(draw: st.DrawFn) -> CumulativeGrid:
    if draw(st.booleans()):
        size = draw(st.integers(1, 50) | st.integers(1, 10**12))
        periods = FixedGrid(size, size, draw(st.integers(0, size - 1)))
        return CumulativeGrid(periods, draw(st.integers(max(size // 12, 1), size)))
    unit = draw(st.sampled_from(get_args(Unit)))
    hours = {"day": 24, "week": 168, "month": 744, "quarter": 2_208, "year": 8_784}[unit]
    every = draw(st.integers(hours * HOUR // 12, hours * HOUR) | st.just(hours * HOUR // 24))
    return CumulativeGrid(CalendarGrid(unit, draw(st.sampled_from(ZONES))), every)


@given(grids(), everywhere | st.integers(-200, 200))
def test_the_windows_of_an_instant_are_those_of_its_period_that_end_after_it(
    grid: CumulativeGrid, instant: int
) -> None:
    assert windows(grid, instant) == oracle(grid).windows_of(instant)


@given(grids(), everywhere | st.integers(-200, 200))
def test_all_instants_of_a_pane_are_in_the_same_windows(grid: CumulativeGrid, instant: int) -> None:
    (pane,) = grid.pane_of(np.array([instant])).tolist()
    assert pane <= instant < pane + grid.every
    assert grid.pane_of(np.array([pane])).tolist() == [pane]
    assert windows(grid, pane) == windows(grid, instant)
    assert windows(grid, pane - 1) != windows(grid, pane)


@given(grids(), everywhere | st.integers(-200, 200))
@example(CumulativeGrid(CalendarGrid("day", "Pacific/Apia"), HOUR), instant("2011-12-30T10:00"))
def test_a_closed_window_ends_at_or_below_the_watermark(
    grid: CumulativeGrid, watermark: int
) -> None:
    closed = grid.last_closed(watermark)
    ends = grid.end_of(np.array([closed, closed + 1]))
    assert ends[0] <= watermark < ends[1]


@given(grids(), everywhere)
def test_ends_never_decrease_with_the_number(grid: CumulativeGrid, instant: int) -> None:
    first = int(grid.windows_of(np.array([instant]))[0][0])
    ends = grid.end_of(first + np.arange(-2 * grid.width, 2 * grid.width))
    assert (np.diff(ends) >= 0).all()


@given(grids(), everywhere | st.integers(-200, 200), st.integers(-2, 14))
def test_a_settled_pane_is_in_the_windows_that_are_not_final(
    grid: CumulativeGrid, instant: int, before: int
) -> None:
    pane = grid.pane_of(np.array([instant]))
    closed = int(grid.windows_of(pane)[1][0]) - before
    settled = grid.settled(pane, closed)
    assert np.array_equal(grid.pane_of(settled), settled)
    first, last = grid.windows_of(pane)
    if last[0] > closed:
        expected = max(int(first[0]), closed + 1), int(last[0])
        assert tuple(int(item[0]) for item in grid.windows_of(settled)) == expected
    else:
        assert np.array_equal(settled, pane)


def test_the_last_window_is_shorter_if_every_does_not_divide_the_period() -> None:
    grid = CumulativeGrid(FixedGrid(10, 10, 3), 4)
    assert windows(grid, 3) == [(3, 7), (3, 11), (3, 13)]
    assert windows(grid, 12) == [(3, 13)]
    assert windows(grid, 2) == [(-7, 3)]


def test_a_day_has_one_cumulative_window_per_hour() -> None:
    grid = CumulativeGrid(CalendarGrid("day", "America/New_York"), HOUR)
    short, long = instant("2013-03-10T05:00"), instant("2013-11-03T04:00")
    assert [len(windows(grid, t)) for t in (short, long)] == [23, 25]
    assert windows(grid, long)[-1] == (long, long + 25 * HOUR)
    grid = CumulativeGrid(CalendarGrid("day", "Australia/Lord_Howe"), HOUR)
    start = instant("2013-04-06T13:00")
    assert windows(grid, start)[-2:] == [
        (start, start + 24 * HOUR),
        (start, start + 49 * HOUR // 2),
    ]


def test_windows_overlap_even_if_there_is_one_per_period() -> None:
    assert not CumulativeGrid(FixedGrid(10, 10), 10).is_disjoint
