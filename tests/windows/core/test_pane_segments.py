"""Panes that are stored apart until their windows close."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.core import State
from streamops.kernel.grids import FixedGrid, Grid
from streamops.kernel.segments import UNMERGED, Segment, Segments
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from tests.windows.core.play import Stream, table


class Segmented:
    """Windows over small integers, with segments in memory."""

    def __init__(self, grid: Grid, limit: int) -> None:
        self.spec = Stream(grid).spec
        self.limit, self.store = limit, dict[int, pa.Table]()
        self.state = State.empty(GridCore().layout(self.spec))
        self.open(())

    def open(self, index: tuple[Segment, ...]) -> None:
        segments = Segments(self.load, index, self.limit)
        self.state = dataclasses.replace(self.state, segments=segments)

    def load(self, of: Segment) -> pa.Table:
        return self.store[of.number]

    def step(self, *rows: tuple[Any, ...], watermark: int | None = None) -> list[tuple[Any, ...]]:
        """One micro-batch: the published keys, starts of windows, and numbers of rows."""
        packed = [GridCore().pack(self.spec, table(rows))]
        step = GridCore().step(self.spec, self.state, packed, watermark)
        assert step.state.segments is not None
        for number in step.state.segments.removed:
            del self.store[number]
        self.store |= step.state.segments.written
        self.state = step.state
        self.open(step.state.segments.index)
        GridCore().check(self.spec, self.state)
        return sorted(tuple(row.values()) for row in to_rows(step.output))

    @property
    def index(self) -> tuple[Segment, ...]:
        assert self.state.segments is not None
        return self.state.segments.index

    @property
    def stored(self) -> int:
        """Panes that each step reads and writes."""
        return len(self.state.tables["panes"])


def tumbling(limit: int) -> Segmented:
    return Segmented(FixedGrid(10, 10, 0), limit)


def test_panes_are_moved_when_there_are_more_than_the_limit() -> None:
    stream = tumbling(limit=2)
    stream.step((1, "a"), (2, "b"))
    assert (stream.stored, stream.index) == (2, ())
    stream.step((3, "c"))
    assert (stream.stored, [of.rows for of in stream.index], stream.state.rows) == (0, [3], 3)


def test_a_segment_is_not_read_before_a_window_of_it_closes() -> None:
    stream = tumbling(limit=0)
    loads = Counter[int]()
    load = stream.load
    stream.step((1, "a"), (11, "a"), (21, "a"))
    assert [(of.first, of.last) for of in stream.index] == [(0, 0), (1, 1), (2, 2)]
    assert stream.state.segments is not None

    def count(of: Segment) -> pa.Table:
        loads[of.number] += 1
        return load(of)

    segments = dataclasses.replace(stream.state.segments, load=count)
    state = dataclasses.replace(stream.state, segments=segments)
    packed = [GridCore().pack(stream.spec, table([(22, "b")]))]
    GridCore().step(stream.spec, state, packed, 9)
    assert not loads
    GridCore().step(stream.spec, state, packed, 10)
    assert loads == {1: 1}


def test_a_segment_is_removed_when_its_last_window_closes() -> None:
    stream = tumbling(limit=8)
    stream.step(*((10 * window + 1, "a") for window in range(9)))  # nine windows, eight intervals
    assert [(of.first, of.last, of.scale) for of in stream.index] == [
        (0, 1, 1),
        (2, 3, 1),
        (4, 5, 1),
        (6, 7, 1),
        (8, 8, 1),
    ]
    assert len(stream.step(watermark=10)) == 1
    assert [of.number for of in stream.index] == [1, 2, 3, 4, 5]
    assert len(stream.step(watermark=20)) == 1
    assert [of.number for of in stream.index] == [2, 3, 4, 5]


def test_rows_of_a_pane_in_several_segments_are_one_result() -> None:
    stream = tumbling(limit=0)
    for _ in range(3):
        stream.step((1, "a"), (2, "a"), (3, "b"))
    assert [of.rows for of in stream.index] == [2, 2, 2]
    found = stream.step((4, "b"), watermark=10)
    assert [row[-1] for row in found] == [6, 4]
    assert (stream.index, stream.store, stream.state.rows) == ((), {}, 0)


def test_four_similar_segments_are_merged() -> None:
    stream = tumbling(limit=0)
    for _ in range(4):
        stream.step((1, "a"), (2, "b"))
    assert [of.rows for of in stream.index] == [2]
    assert [*stream.store] == [of.number for of in stream.index]
    assert [row[-1] for row in stream.step(watermark=10)] == [4, 4]


def test_segments_of_other_sizes_are_not_merged() -> None:
    stream = tumbling(limit=1)
    for of in range(4):
        stream.step(*((1, f"{of} {number}") for number in range(4**of + 1)))
    assert [of.rows for of in stream.index] == [2, 5, 17, 65]


@pytest.mark.parametrize("keys", [50, 400])
def test_a_state_has_at_most_four_times_as_many_rows_as_panes(keys: int) -> None:
    stream, seen = tumbling(limit=20), set[str]()
    for number in range(150):
        rows = [(1, f"{(number * 7_919 + i * 104_729) % keys}") for i in range(25)]
        stream.step(*rows)
        seen |= {key for _, key in rows}
        assert stream.state.rows <= 4 * len(seen) + 25


def test_panes_of_hopping_windows_stay_until_their_last_window_closes() -> None:
    stream = Segmented(FixedGrid(10, 5, 0), limit=0)
    stream.step((6, "a"))  # in the windows that start at 0 and 5
    (first,) = stream.index
    assert len(stream.step((7, "a"), watermark=10)) == 1
    assert first in stream.index
    (result,) = stream.step(watermark=15)
    assert result[-1] == 2
    assert stream.index == ()


def test_rows_that_tools_put_back_are_moved_again() -> None:
    stream = tumbling(limit=1)
    stream.step((1, "a"), (2, "b"))
    rows = stream.store.popitem()[1]
    tables = {**stream.state.tables, UNMERGED: pa.concat_tables([rows, rows])}
    stream.state = dataclasses.replace(stream.state, tables=tables)
    stream.open(())
    end = to_rows(GridCore().finish(stream.spec, stream.state))
    assert [[*row.values()][-1] for row in end] == [2, 2]
    stream.step((3, "c"))
    assert ([of.rows for of in stream.index], stream.stored) == ([2], 1)
    assert [row[-1] for row in stream.step(watermark=10)] == [2, 2, 1]


def test_the_deadline_is_that_of_the_first_window_in_a_segment() -> None:
    stream = tumbling(limit=0)
    assert GridCore().next_deadline(stream.spec, stream.state) is None
    stream.step((11, "a"), (1, "a"))
    assert GridCore().next_deadline(stream.spec, stream.state) == 10
    stream.step(watermark=10)
    assert GridCore().next_deadline(stream.spec, stream.state) == 20
