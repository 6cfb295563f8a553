"""The windows of an instant, and the panes that they share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.grids import FixedGrid
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT


def windows(grid: FixedGrid, instant: int) -> list[int]:
    """Numbers of the windows [origin + k*hop, origin + k*hop + size) that contain it."""
    guess = (instant - grid.origin) // grid.hop
    reach = grid.size // grid.hop + 2
    return [
        k
        for k in range(guess - reach, guess + 2)
        if grid.origin + k * grid.hop <= instant < grid.origin + k * grid.hop + grid.size
    ]


def numbers(grid: FixedGrid, instant: int) -> list[int]:
    first, last = grid.windows_of(np.array([instant]))
    return list(range(int(first[0]), int(last[0]) + 1))


def pane(grid: FixedGrid, instant: int) -> int:
    return int(grid.pane_of(np.array([instant]))[0])


@st.composite
def grids(draw: st.DrawFn) -> FixedGrid:
    size = draw(st.integers(1, 50) | st.integers(1, 10**12))
    hop = draw(st.integers(max(size // 12, 1), size))
    return FixedGrid(size, hop, draw(st.integers(0, hop - 1)))


everywhere = st.integers(-200, 200) | st.integers(MIN_INSTANT, MAX_INSTANT)


def test_an_event_at_a_boundary_belongs_to_the_window_that_starts_there() -> None:
    assert numbers(FixedGrid(10, 10), 10) == [1]


def test_one_microsecond_before_a_boundary_belongs_to_the_window_that_ends_there() -> None:
    assert numbers(FixedGrid(10, 10), 9) == [0]


def test_instants_before_1970_are_rounded_down_not_towards_zero() -> None:
    assert numbers(FixedGrid(10, 10), -1) == [-1]
    assert numbers(FixedGrid(10, 10), -10) == [-1]
    assert numbers(FixedGrid(10, 10), -11) == [-2]


def test_the_origin_moves_every_boundary() -> None:
    grid = FixedGrid(10, 10, 3)
    assert [numbers(grid, t) for t in (2, 3, 12, 13)] == [[-1], [0], [0], [1]]
    assert grid.start_of(np.array([0, 1])).tolist() == [3, 13]
    assert grid.end_of(np.array([0, 1])).tolist() == [13, 23]


def test_if_hop_divides_size_every_event_is_in_the_same_number_of_windows() -> None:
    assert {len(numbers(FixedGrid(12, 4), t)) for t in range(-50, 50)} == {3}


def test_if_hop_does_not_divide_size_some_events_are_in_one_window_fewer() -> None:
    assert [len(numbers(FixedGrid(10, 4), t)) for t in range(8)] == [3, 3, 2, 2, 3, 3, 2, 2]


def test_if_hop_does_not_divide_size_there_are_two_panes_per_hop() -> None:
    assert [pane(FixedGrid(10, 4), t) for t in range(-4, 5)] == [-4, -4, -2, -2, 0, 0, 2, 2, 4]


def test_if_hop_divides_size_a_pane_is_a_hop() -> None:
    assert [pane(FixedGrid(8, 4), t) for t in range(-5, 5)] == [-8, -4, -4, -4, -4, 0, 0, 0, 0, 4]


def test_a_window_is_closed_once_the_watermark_is_at_its_end() -> None:
    grid = FixedGrid(10, 10)
    assert grid.last_closed(9) == -1
    assert grid.last_closed(10) == 0
    assert grid.last_closed(-1) == -2


def test_pairs_of_rows_and_windows_are_ordered_by_row() -> None:
    rows, pairs = FixedGrid(10, 4).explode(np.array([9, 2, 9]), -100, 100)
    assert rows.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert pairs.tolist() == [0, 1, 2, -1, 0, 0, 1, 2]


def test_pairs_may_be_limited_to_some_windows_and_to_none() -> None:
    grid = FixedGrid(10, 4)
    rows, pairs = grid.explode(np.array([9, 2, 40]), 1, 1)
    assert (rows.tolist(), pairs.tolist()) == ([0], [1])
    assert [len(part) for part in grid.explode(np.array([9, 2]), 5, 4)] == [0, 0]
    assert [len(part) for part in grid.explode(np.array([], np.int64), 0, 9)] == [0, 0]


@given(grids(), everywhere)
def test_the_windows_of_an_instant_are_those_that_contain_it(grid: FixedGrid, instant: int) -> None:
    assert numbers(grid, instant) == windows(grid, instant)


@given(grids(), everywhere)
def test_the_number_of_windows_of_an_event_varies_by_at_most_one(
    grid: FixedGrid, instant: int
) -> None:
    most = -(-grid.size // grid.hop)
    assert len(windows(grid, instant)) in (
        {most} if grid.size % grid.hop == 0 else {most, most - 1}
    )


@given(grids(), everywhere)
def test_all_instants_of_a_pane_are_in_the_same_windows(grid: FixedGrid, instant: int) -> None:
    start = pane(grid, instant)
    assert start <= instant < start + grid.hop
    assert pane(grid, start) == start
    assert windows(grid, start) == windows(grid, instant)
    # Half of a pane would do as well, and cost more.
    assert start == MIN_INSTANT or windows(grid, start - 1) != windows(grid, start)


@given(grids(), everywhere)
def test_a_closed_window_ends_at_or_below_the_watermark(grid: FixedGrid, watermark: int) -> None:
    closed = grid.last_closed(watermark)
    ends = grid.end_of(np.array([closed, closed + 1]))
    assert ends[0] <= watermark < ends[1]


@given(grids(), st.lists(everywhere, max_size=8), st.data())
def test_pairs_are_those_of_a_loop_over_rows_and_windows(
    grid: FixedGrid, instants: list[int], data: st.DataObject
) -> None:
    about = [k for t in instants for k in windows(grid, t)] or [0]
    lowest, highest = data.draw(st.sampled_from(about)), data.draw(st.sampled_from(about))
    rows, pairs = grid.explode(np.array(instants, np.int64), lowest, highest)
    expected = [
        (row, k)
        for row, t in enumerate(instants)
        for k in windows(grid, t)
        if lowest <= k <= highest
    ]
    assert list(zip(rows.tolist(), pairs.tolist(), strict=True)) == expected


@pytest.mark.parametrize("instant", [MIN_INSTANT, MAX_INSTANT])
def test_the_first_and_the_last_instant_of_the_calendar_have_windows(instant: int) -> None:
    grid = FixedGrid(86_400_000_000, 3_600_000_000)
    assert len(numbers(grid, instant)) == 24
