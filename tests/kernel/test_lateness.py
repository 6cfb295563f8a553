"""Rows against a watermark, and the side output, compared with a loop over rows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.lateness import (
    INSTANT,
    Arrivals,
    Lateness,
    build_late,
    has_side_output,
    late_field,
    windows,
)
from streamops.kernel.operator import ShardSpec
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NAMES = ["side", "reason", "lateness", "watermark", "window", "row"]
TIMES = st.one_of(
    st.none(),
    st.integers(-20, 20),
    st.sampled_from([MIN_INSTANT - 1, MIN_INSTANT, MAX_INSTANT, MAX_INSTANT + 1]),
)


@dataclass(frozen=True, kw_only=True)
class Passing(ShardSpec):
    """An operator whose output has its key, its time, and perhaps a side output."""

    routes: bool = True

    @property
    def output(self):
        late = [late_field(self.input)] if self.routes else []
        return pa.schema([("ts", INSTANT), ("k", pa.string()), *late])


def naive(time, watermark, allowed=0):
    """The class of a row."""
    if time is None:
        return "null_time"
    if not MIN_INSTANT <= time <= MAX_INSTANT:
        return "time_out_of_range"
    if watermark is None or time > watermark:
        return "on_time"
    return "too_late" if time <= watermark - allowed else "straggler"


def table(times):
    keys = [f"k{at}" for at in range(len(times))]
    return pa.table(
        [pa.array(keys, pa.string()), pa.array(times, pa.int64()).cast(INSTANT)], names=["k", "ts"]
    )


def passing(**parameters):
    spec = Passing(operator="test", by=("k",), time="ts", **parameters)
    return spec.resolve([table([]).schema], carried=[None], shards=1)


@given(times=st.lists(TIMES), watermark=st.none() | st.integers(-20, 20), allowed=st.integers(0, 9))
def test_every_row_has_the_class_of_the_naive_loop(times, watermark, allowed):
    lateness = Lateness.of(table(times).column("ts"), watermark, allowed)
    expected = [naive(time, watermark, allowed) for time in times]
    assert [lateness.reasons[code] for code in lateness.codes] == expected
    assert lateness.on_time.tolist() == [name == "on_time" for name in expected]
    assert lateness.too_late.tolist() == [name == "too_late" for name in expected]
    assert lateness.rejected.tolist() == [name in lateness.reasons[3:] for name in expected]
    counts, found = Counter(expected), lateness.metrics
    assert (found.rows, found.on_time) == (len(times), counts["on_time"])
    assert (found.stragglers, found.too_late) == (counts["straggler"], counts["too_late"])
    assert found.rejected == counts["null_time"] + counts["time_out_of_range"]


@given(times=st.lists(TIMES), watermark=st.none() | st.integers(-20, 20), routes=st.booleans())
def test_every_row_is_accepted_or_in_the_side_output_once(times, watermark, routes):
    spec, rows = passing(routes=routes), table(times)
    found = Arrivals.of(spec, rows, watermark)
    classes = [naive(time, watermark) for time in times]
    accepted = [f"k{at}" for at, name in enumerate(classes) if name == "on_time"]
    assert found.rows.column("k").to_pylist() == accepted
    assert found.times.tolist() == [int(times[int(key[1:])]) for key in accepted]
    assert found.late.schema == spec.output
    if not routes:
        assert len(found.late) == 0
        return
    reasons = dict(zip(found.late.column("k").to_pylist(), found.late.column("late"), strict=True))
    assert len(reasons) == len(found.late) == len(times) - len(accepted)
    for key, late in reasons.items():
        at = int(key[1:])
        assert late["reason"].as_py() == classes[at]
        assert late["row"] == pa.scalar({"k": key, "ts": rows.column("ts")[at]}, late["row"].type)
        is_late = classes[at] == "too_late"
        behind = dt.timedelta(microseconds=watermark - times[at]) if is_late else None
        mark = EPOCH + dt.timedelta(microseconds=watermark) if is_late else None
        assert (late["lateness"].as_py(), late["watermark"].as_py()) == (behind, mark)
        assert late["side"].as_py() is None is late["window"].as_py()


@pytest.mark.parametrize(("time", "reason"), [(9, "too_late"), (10, "too_late"), (11, None)])
def test_a_row_is_late_up_to_the_watermark(time, reason):
    found = Arrivals.of(passing(), table([time]), 10)
    late = found.late.column("late").to_pylist()
    assert [row["reason"] for row in late] == ([] if reason is None else [reason])
    assert len(found.rows) == (reason is None)


@pytest.mark.parametrize(("time", "reason"), [(5, "too_late"), (6, "straggler"), (10, "straggler")])
def test_a_straggler_is_less_than_the_allowed_lateness_behind(time, reason):
    lateness = Lateness.compare(np.array([time]), 10, allowed=5)
    assert lateness.fields["reason"].to_pylist() == [reason]


def test_the_first_reason_counts():
    invalid = [("bad", np.array([True, True])), ("worse", np.array([False, True]))]
    lateness = Lateness.of(table([None, 5]).column("ts"), 10, invalid=invalid)
    assert lateness.fields["reason"].to_pylist() == ["null_time", "bad"]
    assert lateness.fields["lateness"].null_count == 2


def test_a_rejected_row_is_counted_once_and_not_as_late():
    found = Lateness.of(table([None, 5, 15]).column("ts"), 10).metrics
    assert (found.rows, found.rejected, found.too_late, found.on_time) == (3, 1, 1, 1)


def test_only_routed_rows_are_in_the_side_output():
    spec, rows = passing(), table([5, None, 15])
    arrived = Arrivals.classify(spec.output, rows, Lateness.of(rows.column("ts"), 10))
    found = arrived.accept(arrived.lateness.on_time, routed=np.zeros(2, bool))
    assert [late["reason"] for late in found.late.column("late").to_pylist()] == ["null_time"]
    assert found.metrics.too_late == 1
    assert found.late.column("k").null_count == 1  # not filled


def test_fields_of_one_input_are_those_of_two():
    left, right = pa.schema([("a", pa.int64())]), pa.schema([("b", pa.string())])
    one, two = late_field(left).type, late_field(left, right).type
    assert [f.name for f in one] == [f.name for f in two] == NAMES
    further = late_field(left, further=[("steps", pa.int32())]).type
    assert [f.name for f in further] == [*NAMES, "steps"]


def test_the_row_of_one_side_leaves_the_other_side_null():
    left, right = pa.schema([("a", pa.int64())]), pa.schema([("b", pa.string())])
    output = pa.schema([("a", pa.int64()), late_field(left, right)])
    rows = pa.table({"b": ["x"], "unused": [1]})
    late = build_late(output, rows, {"reason": pa.array(["bad_change"])}, side="right")
    assert late.to_pylist() == [
        {
            "a": None,
            "late": dict.fromkeys(NAMES)
            | {"side": "right", "reason": "bad_change", "row": {"left": None, "right": {"b": "x"}}},
        }
    ]


def test_a_window_is_a_struct_of_instants():
    found = windows(np.array([0]), np.array([1_000_000])).to_pylist()
    assert found == [{"start": EPOCH, "end": EPOCH + dt.timedelta(seconds=1)}]


def test_a_column_of_a_user_named_late_is_no_side_output():
    assert not has_side_output(pa.schema([("late", pa.bool_())]))
    assert not has_side_output(pa.schema([("late", pa.struct([("by", pa.int64())]))]))
    assert has_side_output(pa.schema([late_field(pa.schema([("a", pa.int64())]))]))
