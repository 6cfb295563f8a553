"""The clock of producers, one sentence each. Times are microseconds."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.codec import decode, encode
from streamops.kernel.core import State
from streamops.kernel.errors import StateFormatError
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing.laws import to_rows
from streamops.time.core import producers as core

TEXT = pa.string()


class Stream:
    """A clock over rows of (producer, time, arrival)."""

    def __init__(
        self, *, idle: int = 10, kind: pa.DataType = TEXT, expected: Sequence[Any] = ()
    ) -> None:
        self.spec = core.ProducersSpec(
            producer="p",
            time="t",
            delay=0,
            idle=idle,
            arrival="at",
            expected=tuple(expected),
            producer_type=kind,
        )
        self.state: State = core.empty(self.spec)

    def step(self, *rows: tuple[Any, int | None, int | None]) -> Any:
        """One micro-batch; what it tells."""
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        kinds = [self.spec.producer_type, pa.int64(), pa.int64()]
        arrays = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
        table = pa.table(arrays, names=self.spec.input.names).cast(self.spec.input)
        tick = core.step(self.spec, self.state, [core.pack(self.spec, table)], None)
        self.state = tick.state
        core.check(self.spec, self.state)
        return tick.metrics

    @property
    def kept(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in to_rows(self.state.tables["producers"])]


def test_before_anything_came_there_is_no_clock() -> None:
    stream = Stream()
    told = stream.step()
    assert told.clock is None
    assert (told.rows, told.active, told.held_by, told.led_by) == (0, 0, None, None)
    assert stream.kept == []


def test_the_clock_is_the_least_of_the_newest() -> None:
    told = Stream().step(("a", 7, 0), ("b", 3, 0), ("a", 5, 0), ("b", 4, 0))
    assert (told.clock, told.newest, told.held_by, told.led_by) == (4, 7, "b", "a")


def test_of_equals_the_first_in_the_alphabet_is_named() -> None:
    told = Stream().step(("c", 3, 0), ("b", 3, 0), ("d", 9, 0), ("e", 9, 0))
    assert (told.held_by, told.led_by) == ("b", "d")


def test_a_producer_is_idle_once_it_has_been_silent_for_idle_and_not_before() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 1, 100), ("b", 1, 100))
    assert stream.step(("b", 2, 109)).active == 2
    told = stream.step(("b", 3, 110))
    assert (told.active, told.forgotten, told.clock) == (1, 1, 3)
    assert stream.kept == [("b", 3, 110)]


def test_arrivals_out_of_order_do_not_turn_time_back() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 1, 100), ("b", 1, 108))
    assert stream.step(("b", 2, 90)).active == 2
    assert stream.kept == [("a", 1, 100), ("b", 2, 108)]


def test_who_comes_and_is_silent_in_the_same_micro_batch_has_not_joined() -> None:
    stream = Stream(idle=10)
    told = stream.step(("a", 1, 100), ("b", 5, 110))
    assert (told.active, told.joined, told.forgotten, told.clock) == (1, 1, 0, 5)


def test_who_was_forgotten_comes_back_as_a_new_one() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 50, 100), ("b", 1, 100))
    stream.step(("b", 20, 120))
    # It had been at 50; that is forgotten, and 30 is ahead of the clock.
    told = stream.step(("a", 30, 121), ("b", 60, 121))
    assert (told.joined, told.behind, told.clock, told.held_by) == (1, 0, 30, "a")


def test_one_behind_the_clock_does_not_stop_it_and_holds_it_once_it_has_caught_up() -> None:
    stream = Stream(idle=100)
    stream.step(("a", 50, 0))
    told = stream.step(("a", 60, 1), ("b", 10, 1))
    assert (told.clock, told.behind, told.held_by) == (60, 1, "a")
    told = stream.step(("a", 70, 2), ("b", 59, 2))
    assert (told.clock, told.behind) == (70, 1)
    told = stream.step(("a", 80, 3), ("b", 70, 3))  # at the clock is not behind it
    assert (told.clock, told.behind, told.held_by) == (70, 0, "b")


def test_while_all_are_behind_nobody_holds_the_clock_and_it_stands() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 50, 0))
    stream.step(("b", 10, 5), ("a", 51, 5))
    told = stream.step(("b", 20, 20))
    assert (told.active, told.behind, told.clock) == (1, 1, 51)
    assert (told.held_by, told.led_by, told.newest) == (None, "b", 20)


@pytest.mark.parametrize(
    ("time", "arrival"),
    [
        (None, 5),
        (5, None),
        (MIN_INSTANT - 1, 5),
        (MAX_INSTANT + 1, 5),
        (5, MIN_INSTANT - 1),
        (5, MAX_INSTANT + 1),
    ],
)
def test_a_row_without_a_usable_time_or_arrival_moves_nothing(
    time: int | None, arrival: int | None
) -> None:
    stream = Stream()
    stream.step(("a", 1, 1), ("b", 2, 2))
    before = stream.kept
    told = stream.step(("b", time, arrival), ("new", time, arrival))
    assert (told.rows, told.rejected, told.active, told.clock) == (2, 2, 2, 1)
    assert stream.kept == before


def test_times_from_the_year_1_to_the_year_9999_are_usable() -> None:
    told = Stream(idle=1).step(("a", MIN_INSTANT, MAX_INSTANT), ("b", MAX_INSTANT, MAX_INSTANT))
    assert (told.clock, told.newest) == (MIN_INSTANT, MAX_INSTANT)


def test_a_null_is_a_producer() -> None:
    stream = Stream()
    told = stream.step((None, 1, 0), ("a", 2, 0), (None, 3, 0))
    assert (told.active, told.clock, told.led_by) == (2, 2, "null")


@pytest.mark.parametrize(
    ("kind", "values", "name"),
    [
        (pa.int32(), [7, 10], "10"),  # in the alphabet, not by number
        (pa.float64(), [float("nan"), 1.5], "1.5"),
        (pa.bool_(), [True, False], "false"),
        (pa.binary(), [b"x", b"a"], "a"),
        (pa.binary(), [b"\xff", b"a"], "b'\\xff'"),
        (pa.struct([("rack", pa.int64())]), [{"rack": 2}, {"rack": 1}], "{'rack': 1}"),
        (pa.list_(pa.string()), [["x"], None], "['x']"),
    ],
    ids=str,
)
def test_a_producer_may_be_of_any_type_and_is_named_by_a_text(
    kind: pa.DataType, values: list[Any], name: str
) -> None:
    stream = Stream(kind=kind)
    told = stream.step(*((value, 5, 0) for value in values))
    assert told.held_by == told.led_by == name
    assert stream.step(*((value, 6, 0) for value in values)).joined == 0
    known = core.STATE, stream.spec.identity, 1
    again = decode(encode(*known, stream.state.tables), *known, where="")
    assert str(again["producers"].to_pylist()) == str(stream.state.tables["producers"].to_pylist())


def test_those_who_are_expected_hold_the_clock_at_nothing_until_they_have_sent() -> None:
    stream = Stream(expected=["a", "b", "a"])
    assert stream.step().active == 0
    assert stream.step(("c", None, 1)).active == 0
    told = stream.step(("c", 9, 5))
    assert (told.active, told.joined, told.clock) == (3, 3, None)
    assert (told.held_by, told.led_by, told.newest) == ("a", "c", 9)
    assert stream.step(("a", 3, 6)).held_by == "b"
    told = stream.step(("b", 2, 7))
    assert (told.clock, told.held_by) == (2, "b")


def test_those_who_are_expected_are_given_idle_from_the_first_micro_batch_on() -> None:
    stream = Stream(idle=10, expected=["a"])
    stream.step(("c", 1, 2), ("c", 9, 5))
    assert stream.step(("c", 10, 14)).clock is None
    told = stream.step(("c", 11, 15))
    assert (told.clock, told.forgotten) == (11, 1)


def test_nobody_is_expected_any_more_once_there_are_producers() -> None:
    stream = Stream(idle=10)
    stream.step(("c", 1, 0))
    stream.spec = replace(stream.spec, expected=("a",))
    assert stream.step(("c", 2, 1)).active == 1


def test_a_shorter_idle_holds_from_the_next_step_on() -> None:
    stream = Stream(idle=100)
    stream.step(("a", 1, 0), ("b", 2, 20))
    stream.spec = replace(stream.spec, idle=10)
    assert stream.step().active == 1


def test_an_invariant_that_does_not_hold_is_told_with_the_state() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 1, 0), ("b", 2, 5))
    table = stream.state.tables["producers"]
    broken = State(None, {"producers": pa.concat_tables([table, table])})
    with pytest.raises(AssertionError, match="each producer has one row; there is a clock if"):
        core.check(stream.spec, broken)
    with pytest.raises(
        AssertionError, match=r"no producer has been silent for `idle`: clock 1, \[\{"
    ):
        core.check(replace(stream.spec, idle=5), stream.state)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"producer": "device"}, "producer"),
        ({"producer_type": pa.int64()}, "producer"),
        ({"time": "other"}, "time"),
        ({"arrival": None}, "arrival"),
    ],
)
def test_the_state_of_other_parameters_is_refused(changed: dict[str, Any], told: str) -> None:
    spec = Stream().spec
    frame = encode(core.STATE, spec.identity, 1, core.empty(spec).tables)
    with pytest.raises(StateFormatError) as caught:
        decode(frame, core.STATE, replace(spec, **changed).identity, 1, where="time.producers")
    assert caught.value.code == "STATE_PARAMETERS"
    assert caught.value.what == f"this checkpoint was written with other parameters: {told}"


def test_the_state_of_another_idle_or_other_expected_ones_is_continued() -> None:
    spec = Stream().spec
    frame = encode(core.STATE, spec.identity, 1, core.empty(spec).tables)
    other = replace(spec, idle=99, expected=("x",))
    assert decode(frame, core.STATE, other.identity, 1, where="")["producers"].num_rows == 0


def test_settings_travel_to_workers() -> None:
    spec = Stream(expected=["a", None]).spec
    there = pickle.loads(pickle.dumps(spec))
    assert there.identity == spec.identity
    assert there.expected == spec.expected
