"""Tracked clocks. Times are microseconds; a cell has 10 of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.codec import decode, encode
from streamops.kernel.core import State
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing.laws import to_rows
from streamops.time.core.track_clock import METHOD, OFFSET, TrackClockCore, TrackClockSpec

INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("k", pa.string()), ("received", INSTANT), ("sent", INSTANT)])
CORRECTED, ESTIMATED, STEPPED = "corrected", "estimated", "stepped"

Row = tuple[Any, ...]
"""The time of receipt, the offset, and the device, by default "a"."""


class Stream:
    """Tracked clocks with a horizon of 160 µs."""

    def __init__(self, *, step: int = 50, largest: int | None = None, by: Any = ("k",)) -> None:
        self.spec = TrackClockSpec(
            time="event",
            sent="sent",
            received="received",
            tolerance=0,
            longest_wait=None,
            largest_offset=largest,
            otherwise="received",
            by=by,
            horizon=160,
            step=step,
            input=SCHEMA,
        )
        self.state: State = State.empty(TrackClockCore().layout(self.spec))

    def table(self, rows: Sequence[Row]) -> pa.Table:
        full = [(*row, "a") if len(row) == 2 else row for row in rows]
        sent = [None if r is None or o is None else r - o for r, o, _ in full]
        columns = [pa.array([k for *_, k in full], pa.string())]
        columns += [
            pa.array(times, pa.int64()).cast(INSTANT) for times in ([r for r, *_ in full], sent)
        ]
        return pa.table(columns, schema=SCHEMA)

    def step(self, *rows: Row) -> list[tuple[int | None, str | None]]:
        """Process one micro-batch, and return offset and method of each row."""
        packed = TrackClockCore().pack(self.spec, self.table(rows))
        step = TrackClockCore().step(self.spec, self.state, [packed], None)
        self.state, out = step.state, step.output
        TrackClockCore().check(self.spec, self.state)
        assert out.schema == self.spec.output
        return estimates(out)

    def run(self, *rows: Row) -> list[tuple[int | None, str | None]]:
        """Process all rows as a batch."""
        return estimates(
            TrackClockCore()
            .run(self.spec, [TrackClockCore().pack(self.spec, self.table(rows))])
            .rows
        )

    @property
    def stored(self) -> list[int]:
        """Number of devices and cells in the state."""
        return [table.num_rows for table in self.state.tables.values()]


def estimates(table: pa.Table) -> list[tuple[int | None, str | None]]:
    return [(row[OFFSET], row[METHOD]) for row in to_rows(table)]


def test_an_empty_stream_has_no_output() -> None:
    stream = Stream()
    assert stream.step() == []
    assert (stream.stored, stream.state.watermark) == ([0, 0], None)
    assert stream.run() == []


def test_the_first_message_of_a_device_is_corrected_by_its_own_offset() -> None:
    assert Stream().run((1000, 7), (1001, -3, "b"), (1002, 9, None)) == [
        (7, CORRECTED),
        (-3, CORRECTED),
        (9, CORRECTED),
    ]


def test_the_minimum_offset_within_the_horizon_is_used() -> None:
    rows = [(1000, 7), (1001, 3), (1002, 40), (1003, 2), (1004, 30)]
    wanted = [
        (7, CORRECTED),
        (3, ESTIMATED),
        (3, ESTIMATED),  # a long network delay
        (2, ESTIMATED),
        (2, ESTIMATED),
    ]
    assert Stream().run(*rows) == wanted
    assert Stream().run(*rows[::-1]) == wanted[::-1]
    stream = Stream()
    assert [stream.step(row)[0] for row in rows] == wanted


def test_offsets_older_than_the_horizon_are_ignored() -> None:
    # The horizon has sixteen cells before that of the row.
    assert Stream().run((1000, 1), (1080, 9), (1169, 8))[-1] == (1, ESTIMATED)
    assert Stream().run((1000, 1), (1080, 9), (1170, 8))[-1] == (8, ESTIMATED)
    assert Stream().run((1000, 1), (1080, 9), (1170, 12))[-1] == (9, ESTIMATED)


def test_a_device_that_was_silent_for_longer_than_the_horizon_starts_again() -> None:
    assert Stream().run((1000, 1), (1169, 8))[-1] == (1, ESTIMATED)
    assert Stream().run((1000, 1), (1170, 8))[-1] == (8, CORRECTED)
    # Its clock is not considered to have been set.
    assert Stream().run((1000, 1), (1170, 900))[-1] == (900, CORRECTED)


@pytest.mark.parametrize("jump", [100, -100])
def test_a_clock_that_is_set_discards_earlier_offsets(jump: int) -> None:
    rows = [(1000, 3), (1001, 5), (1002, 4 + jump), (1003, 9 + jump), (1004, 6 + jump)]
    assert Stream().run(*rows)[2:] == [
        (4 + jump, STEPPED),
        (4 + jump, ESTIMATED),
        (4 + jump, ESTIMATED),
    ]


def test_a_change_of_exactly_step_is_not_a_step() -> None:
    assert Stream(step=50).run((1000, 0), (1001, 50))[-1] == (0, ESTIMATED)
    assert Stream(step=50).run((1000, 0), (1001, 51))[-1] == (51, STEPPED)
    assert Stream(step=0).run((1000, 0), (1001, 0), (1002, 1))[1:] == [(0, ESTIMATED), (1, STEPPED)]


def test_messages_of_one_instant_use_earlier_instants_only() -> None:
    rows = [(1000, 9), (1001, 4), (1001, 2), (1001, 70), (1002, 8)]
    wanted = [(9, CORRECTED), (4, ESTIMATED), (2, ESTIMATED), (70, STEPPED), (2, ESTIMATED)]
    assert Stream().run(*rows) == wanted
    stream = Stream()  # also in several micro-batches
    got = stream.step(*rows[:2]) + stream.step(rows[2]) + stream.step(*rows[3:])
    assert got == wanted


def test_a_new_epoch_is_determined_by_the_minimum_of_an_instant() -> None:
    # The offset 60 alone would begin an epoch; with 5 in the same instant, none begins.
    rows = [(1000, 1), (1001, 60), (1001, 5), (1002, 3)]
    wanted = [(1, CORRECTED), (60, STEPPED), (5 - 4, ESTIMATED), (1, ESTIMATED)]
    assert Stream().run(*rows) == wanted
    stream = Stream()
    assert [stream.step(row)[0] for row in rows] == wanted


def test_a_message_out_of_order_belongs_to_the_last_instant() -> None:
    stream = Stream()
    stream.step((1000, 5), (1010, 9))
    assert stream.step((1005, 4)) == [(4, ESTIMATED)]
    assert stream.step((1010, 8)) == [(5, ESTIMATED)]  # 4 belongs to its own instant
    assert stream.step((1011, 8)) == [(4, ESTIMATED)]


def test_unusable_rows_are_emitted_without_an_offset() -> None:
    stream = Stream(largest=100)
    rows: list[Row] = [
        (None, None),
        (1000, None),
        (MAX_INSTANT + 1, 0),
        (MIN_INSTANT, 1),
        (1000, 101),
        (1000, -101),
        (1000, 100),
    ]
    assert stream.step(*rows) == [(None, None)] * 6 + [(100, CORRECTED)]
    assert stream.stored == [1, 0]
    assert Stream().step(*rows[:4]) == [(None, None)] * 4


def test_times_before_1970_are_supported() -> None:
    assert Stream().run((-1000, 1), (-831, 8), (-830, 8)) == [
        (1, CORRECTED),
        (1, ESTIMATED),
        (8, ESTIMATED),
    ]


def test_without_keys_there_is_one_device() -> None:
    assert Stream(by=()).run((1000, 7, "a"), (1001, 9, "b"))[-1] == (7, ESTIMATED)


def test_a_device_has_at_most_seventeen_cells_and_is_evicted_after_two_horizons() -> None:
    stream = Stream()
    for received in range(1000, 2000, 5):
        stream.step((received, received % 7))
    assert stream.stored == [1, 17]
    stream.step((2310, 1, "b"))
    assert stream.stored == [2, 17]
    assert stream.state.watermark == 2310
    stream.step((2320, 1, "b"))
    assert stream.stored == [1, 1]
    (left,) = to_rows(stream.state.tables["devices"])
    assert left["key.0"] == "b"


def truth(offset: Any, count: int = 400) -> tuple[list[int], list[int], list[int]]:
    """Simulate a clock; return the errors of the estimates, the delays, and the estimates."""
    dice = random.Random(7)
    rows, true, delays, now = [], [], [], 10**15
    for number in range(count):
        now += dice.randrange(1, 9)
        delay = 3 + int(dice.expovariate(0.2)) + (400 if dice.random() < 0.02 else 0)
        true.append(int(offset(number, now)))
        delays.append(delay)
        rows.append((now, true[-1] + delay))
    estimated = [value for value, _ in Stream(step=500).run(*rows) if value is not None]
    errors = [value - real for value, real in zip(estimated, true, strict=True)]
    return errors, delays, estimated


def test_the_error_of_a_constant_offset_is_the_minimum_delay() -> None:
    errors, delays, _ = truth(lambda number, now: -12_345)
    assert max(delays) > 300  # some messages have a long delay
    assert all(3 <= error <= 5 for error in errors[20:])
    assert all(error <= delay for error, delay in zip(errors, delays, strict=True))


def test_a_clock_that_drifts_adds_at_most_its_drift_over_the_horizon() -> None:
    slow, _, _ = truth(lambda number, now: (now - 10**15) // 100)
    assert all(3 - 2 <= error <= 5 for error in slow[20:])
    fast, _, _ = truth(lambda number, now: -(now - 10**15) // 100)
    assert all(3 <= error <= 5 + 2 for error in fast[20:])


def test_a_clock_that_jumps_is_corrected_after_a_few_messages() -> None:
    errors, delays, _ = truth(lambda number, now: 0 if number < 200 else 10_000)
    assert all(3 <= error <= 5 for error in (*errors[20:200], *errors[220:]))
    assert all(0 <= e <= delay for e, delay in zip(errors, delays, strict=True))


def test_a_random_clock_never_results_in_an_offset_beyond_the_delay() -> None:
    dice = random.Random(7)
    errors, _, estimated = truth(lambda number, now: dice.randrange(-(10**9), 10**9))
    rows = zip(errors, estimated, strict=True)
    assert all(error <= 3 + 1_000 for error, _ in rows)


def test_a_clock_that_was_set_has_no_earlier_cells() -> None:
    stream = Stream()
    stream.step(*((received, 1) for received in range(1000, 1100, 5)))
    assert stream.stored == [1, 10]
    stream.step((1100, 500))
    assert stream.stored == [1, 10]  # the next instant decides whether the clock was set
    stream.step((1105, 501))
    assert stream.stored == [1, 1]


def test_a_restart_continues_from_the_encoded_state() -> None:
    stream = Stream()
    stream.step((1000, 7), (1001, 3), (1002, 4, "b"))
    known = TrackClockCore.STATE, stream.spec.identity, 3
    tables = decode(encode(*known, stream.state.tables), *known)
    assert {name: table.schema for name, table in tables.items()} == dict(
        TrackClockCore().layout(stream.spec)
    )
    stream.state = State(stream.state.watermark, tables)
    assert stream.step((1003, 9), (1003, 2, "b")) == [(3, ESTIMATED), (2, ESTIMATED)]


def test_every_row_is_emitted() -> None:
    stream = Stream()
    rows = stream.table([(0, 3), (1, 2)])
    packed = TrackClockCore().pack(stream.spec, rows)
    step = TrackClockCore().step(stream.spec, stream.state, [packed], None)
    assert step.output.select(rows.column_names) == rows
    assert (TrackClockCore.METRICS, step.late.num_rows) == ({}, 0)
