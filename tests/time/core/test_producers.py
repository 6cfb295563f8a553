"""The clock of producers. Times are microseconds."""

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
from streamops.time.core.producers import ProducersCore

TEXT = pa.string()


class Stream:
    """A clock over rows of (producer, time, arrival)."""

    def __init__(
        self, *, idle: int = 10, producer_type: pa.DataType = TEXT, expected: Sequence[Any] = ()
    ) -> None:
        self.spec = core.ProducersSpec(
            producer="p",
            time="t",
            delay=0,
            idle=idle,
            arrival="at",
            expected=tuple(expected),
            producer_type=producer_type,
        )
        self.state: State = State.empty(ProducersCore().layout(self.spec))

    def step(self, *rows: tuple[Any, int | None, int | None]) -> Any:
        """Process one micro-batch, and return its metrics."""
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        types = [self.spec.producer_type, pa.int64(), pa.int64()]
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        table = pa.table(arrays, names=self.spec.input.names).cast(self.spec.input)
        step = ProducersCore().step(
            self.spec, self.state, [ProducersCore().pack(self.spec, table)], None
        )
        self.state = step.state
        ProducersCore().check(self.spec, self.state)
        return step.metrics

    @property
    def stored(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in to_rows(self.state.tables["producers"])]


def test_without_rows_there_is_no_clock() -> None:
    stream = Stream()
    metrics = stream.step()
    assert metrics.clock is None
    assert (metrics.rows, metrics.active, metrics.held_by, metrics.led_by) == (0, 0, None, None)
    assert stream.stored == []


def test_the_clock_is_the_minimum_of_the_newest_event_times() -> None:
    metrics = Stream().step(("a", 7, 0), ("b", 3, 0), ("a", 5, 0), ("b", 4, 0))
    assert (metrics.clock, metrics.newest, metrics.held_by, metrics.led_by) == (4, 7, "b", "a")


def test_of_several_producers_the_alphabetically_first_is_reported() -> None:
    metrics = Stream().step(("c", 3, 0), ("b", 3, 0), ("d", 9, 0), ("e", 9, 0))
    assert (metrics.held_by, metrics.led_by) == ("b", "d")


def test_a_producer_is_evicted_when_it_has_been_silent_for_exactly_idle() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 1, 100), ("b", 1, 100))
    assert stream.step(("b", 2, 109)).active == 2
    metrics = stream.step(("b", 3, 110))
    assert (metrics.active, metrics.forgotten, metrics.clock) == (1, 1, 3)
    assert stream.stored == [("b", 3, 110)]


def test_arrivals_out_of_order_do_not_move_time_back() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 1, 100), ("b", 1, 108))
    assert stream.step(("b", 2, 90)).active == 2
    assert stream.stored == [("a", 1, 100), ("b", 2, 108)]


def test_a_producer_that_joins_and_is_silent_in_the_same_micro_batch_is_not_counted() -> None:
    stream = Stream(idle=10)
    metrics = stream.step(("a", 1, 100), ("b", 5, 110))
    assert (metrics.active, metrics.joined, metrics.forgotten, metrics.clock) == (1, 1, 0, 5)


def test_an_evicted_producer_returns_as_a_new_one() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 50, 100), ("b", 1, 100))
    stream.step(("b", 20, 120))
    # Its event time 50 was evicted, and 30 is ahead of the clock.
    metrics = stream.step(("a", 30, 121), ("b", 60, 121))
    assert (metrics.joined, metrics.behind, metrics.clock, metrics.held_by) == (1, 0, 30, "a")


def test_a_producer_behind_the_clock_holds_it_when_it_has_caught_up() -> None:
    stream = Stream(idle=100)
    stream.step(("a", 50, 0))
    metrics = stream.step(("a", 60, 1), ("b", 10, 1))
    assert (metrics.clock, metrics.behind, metrics.held_by) == (60, 1, "a")
    metrics = stream.step(("a", 70, 2), ("b", 59, 2))
    assert (metrics.clock, metrics.behind) == (70, 1)
    metrics = stream.step(("a", 80, 3), ("b", 70, 3))  # equal to the clock is not behind
    assert (metrics.clock, metrics.behind, metrics.held_by) == (70, 0, "b")


def test_the_clock_does_not_advance_while_all_producers_are_behind() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 50, 0))
    stream.step(("b", 10, 5), ("a", 51, 5))
    metrics = stream.step(("b", 20, 20))
    assert (metrics.active, metrics.behind, metrics.clock) == (1, 1, 51)
    assert (metrics.held_by, metrics.led_by, metrics.newest) == (None, "b", 20)


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
def test_a_row_without_a_usable_time_or_arrival_is_rejected(
    time: int | None, arrival: int | None
) -> None:
    stream = Stream()
    stream.step(("a", 1, 1), ("b", 2, 2))
    before = stream.stored
    metrics = stream.step(("b", time, arrival), ("new", time, arrival))
    assert (metrics.rows, metrics.rejected, metrics.active, metrics.clock) == (2, 2, 2, 1)
    assert stream.stored == before


def test_times_from_the_year_1_to_the_year_9999_are_usable() -> None:
    metrics = Stream(idle=1).step(("a", MIN_INSTANT, MAX_INSTANT), ("b", MAX_INSTANT, MAX_INSTANT))
    assert (metrics.clock, metrics.newest) == (MIN_INSTANT, MAX_INSTANT)


def test_a_null_is_a_producer() -> None:
    stream = Stream()
    metrics = stream.step((None, 1, 0), ("a", 2, 0), (None, 3, 0))
    assert (metrics.active, metrics.clock, metrics.led_by) == (2, 2, "null")


@pytest.mark.parametrize(
    ("producer_type", "values", "name"),
    [
        (pa.int32(), [7, 10], "10"),  # alphabetically, not numerically
        (pa.float64(), [float("nan"), 1.5], "1.5"),
        (pa.bool_(), [True, False], "false"),
        (pa.binary(), [b"x", b"a"], "a"),
        (pa.binary(), [b"\xff", b"a"], "b'\\xff'"),
        (pa.struct([("rack", pa.int64())]), [{"rack": 2}, {"rack": 1}], "{'rack': 1}"),
        (pa.list_(pa.string()), [["x"], None], "['x']"),
    ],
    ids=str,
)
def test_a_producer_may_have_any_type_and_is_reported_as_text(
    producer_type: pa.DataType, values: list[Any], name: str
) -> None:
    stream = Stream(producer_type=producer_type)
    metrics = stream.step(*((value, 5, 0) for value in values))
    assert metrics.held_by == metrics.led_by == name
    assert stream.step(*((value, 6, 0) for value in values)).joined == 0
    known = ProducersCore.STATE, stream.spec.identity, 1
    again = decode(encode(*known, stream.state.tables), *known)
    assert str(again["producers"].to_pylist()) == str(stream.state.tables["producers"].to_pylist())


def test_there_is_no_clock_until_all_expected_producers_have_sent_a_row() -> None:
    stream = Stream(expected=["a", "b", "a"])
    assert stream.step().active == 0
    assert stream.step(("c", None, 1)).active == 0
    metrics = stream.step(("c", 9, 5))
    assert (metrics.active, metrics.joined, metrics.clock) == (3, 3, None)
    assert (metrics.held_by, metrics.led_by, metrics.newest) == ("a", "c", 9)
    assert stream.step(("a", 3, 6)).held_by == "b"
    metrics = stream.step(("b", 2, 7))
    assert (metrics.clock, metrics.held_by) == (2, "b")


def test_an_expected_producer_without_rows_is_evicted_after_idle() -> None:
    stream = Stream(idle=10, expected=["a"])
    stream.step(("c", 1, 2), ("c", 9, 5))
    assert stream.step(("c", 10, 14)).clock is None
    metrics = stream.step(("c", 11, 15))
    assert (metrics.clock, metrics.forgotten) == (11, 1)


def test_expected_is_ignored_after_the_first_micro_batch_with_rows() -> None:
    stream = Stream(idle=10)
    stream.step(("c", 1, 0))
    stream.spec = replace(stream.spec, expected=("a",))
    assert stream.step(("c", 2, 1)).active == 1


def test_a_shorter_idle_takes_effect_with_the_next_step() -> None:
    stream = Stream(idle=100)
    stream.step(("a", 1, 0), ("b", 2, 20))
    stream.spec = replace(stream.spec, idle=10)
    assert stream.step().active == 1


def test_a_violated_invariant_is_reported_with_the_state() -> None:
    stream = Stream(idle=10)
    stream.step(("a", 1, 0), ("b", 2, 5))
    table = stream.state.tables["producers"]
    broken = State(None, {"producers": pa.concat_tables([table, table])})
    with pytest.raises(AssertionError, match="each producer has one row; there is a clock if"):
        ProducersCore().check(stream.spec, broken)
    with pytest.raises(
        AssertionError, match=r"no producer has been silent for `idle`: clock 1, \[\{"
    ):
        ProducersCore().check(replace(stream.spec, idle=5), stream.state)


@pytest.mark.parametrize(
    ("changed", "parameter"),
    [
        ({"producer": "device"}, "producer"),
        ({"producer_type": pa.int64()}, "producer"),
        ({"time": "other"}, "time"),
        ({"arrival": None}, "arrival"),
    ],
)
def test_the_state_of_other_parameters_is_refused(changed: dict[str, Any], parameter: str) -> None:
    spec = Stream().spec
    frame = encode(
        ProducersCore.STATE, spec.identity, 1, State.empty(ProducersCore().layout(spec)).tables
    )
    with pytest.raises(StateFormatError) as caught:
        decode(frame, ProducersCore.STATE, replace(spec, **changed).identity, 1)
    assert caught.value.code == "STATE_PARAMETERS"
    assert caught.value.what == f"this checkpoint was written with other parameters: {parameter}"


def test_idle_and_expected_may_change_between_runs() -> None:
    spec = Stream().spec
    frame = encode(
        ProducersCore.STATE, spec.identity, 1, State.empty(ProducersCore().layout(spec)).tables
    )
    other = replace(spec, idle=99, expected=("x",))
    assert decode(frame, ProducersCore.STATE, other.identity, 1)["producers"].num_rows == 0


def test_a_spec_can_be_pickled() -> None:
    spec = Stream(expected=["a", None]).spec
    copy = pickle.loads(pickle.dumps(spec))
    assert copy.identity == spec.identity
    assert copy.expected == spec.expected


def test_a_batch_has_the_clock_of_one_micro_batch() -> None:
    stream = Stream()
    table = pa.table({"p": ["a", "b"], "t": [7, 5], "at": [8, 8]})
    packed = ProducersCore().pack(stream.spec, table.cast(stream.spec.input))
    (row,) = ProducersCore().run(stream.spec, [packed]).rows.to_pylist()
    assert (row["rows"], row["active"], row["clock"]) == (2, 2, 5)
