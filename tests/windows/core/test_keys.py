"""Keys of every type, through panes, corrections and the bytes of the state."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamops.aggregates.core.functions import ByTime, Count
from streamops.kernel.codec import decode, encode
from streamops.kernel.core import State
from streamops.kernel.grids import FixedGrid
from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from tests.windows.core.play import GridOf, batch

INSTANT = pa.timestamp("us", tz="UTC")
NAN = float("nan")
NOT_NULL = pa.list_(pa.field("element", pa.int32(), nullable=False))
NESTED = pa.struct([pa.field("a", NOT_NULL), pa.field("b", pa.string(), nullable=False)])

KEYS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, None],
    pa.int8(): [1, -1, None],
    pa.int64(): [2**62, -(2**63), None],
    pa.float32(): [0.5, NAN, None, 0.0],
    pa.float64(): [1e308, NAN, None, float("inf"), 0.0],
    pa.decimal128(38, 2): [Decimal("1.10"), Decimal("-1.10"), None],
    pa.string(): ["", "a", None, "ä"],
    pa.binary(): [b"", b"\x00", None, b"\xff"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1970, 1, 1), None],
    INSTANT: [dt.datetime(1969, 12, 31, tzinfo=dt.UTC), None],
    pa.timestamp("us"): [dt.datetime(1970, 1, 1), None],  # noqa: DTZ001
    pa.time64("us"): [dt.time(1, 2, 3, 4), None],
    pa.duration("us"): [dt.timedelta(microseconds=-1), None],
    pa.list_(pa.float64()): [[], [1.0], [None], None, [NAN, 0.0]],
    NOT_NULL: [[1], [], None],
    NESTED: [{"a": [1], "b": "x"}, {"a": None, "b": "x"}, None],
}


def spec_of(dtype: pa.DataType, **arguments: Any) -> GridOf:
    schema = pa.schema([("t", INSTANT), ("k", dtype), ("seq", pa.int64())])
    latest = ByTime("k", "t", "seq", dtype, INSTANT, pa.int64(), latest=True)
    policy: dict[str, Any] = {
        "stragglers": "retract",
        "too_late": "route",
        "early": "never",
    } | arguments
    return GridOf(
        on=FixedGrid(10, 10, 0),
        by=("k",),
        time="t",
        aggregates=(("n", "count()", Count(None)), ("same", "last()", latest)),
        input=schema,
        delay=0,
        allowed_lateness=100,
        **policy,
    )


def rows(spec: GridOf, values: list[Any], instant: int) -> pa.Table:
    times = pa.array([instant] * len(values), pa.int64()).cast(INSTANT)
    keys = pa.array(values, spec.input.field("k").type)
    return pa.table([times, keys, pa.array(range(len(values)))], schema=spec.input)


def restarted(spec: GridOf, state: State) -> State:
    known = GridCore.STATE, spec.identity, 1
    return State(state.watermark, decode(encode(*known, state.tables), *known))


@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_keys_of_every_type_meet_again_after_a_restart(dtype: pa.DataType) -> None:
    spec, values = spec_of(dtype), KEYS[dtype]
    first = GridCore().step(
        spec,
        State.empty(GridCore().layout(spec)),
        [GridCore().pack(spec, rows(spec, values, 5))],
        10,
    )
    assert len(first.output) == len(values)
    again = GridCore().pack(spec, rows(spec, values[::-1] * 2, 6))
    step = GridCore().step(spec, restarted(spec, first.state), [again], 11)
    corrected = [row for row in to_rows(step.output) if row["_change_type"] == "update_postimage"]
    assert [row["n"] for row in corrected] == [3] * len(values)
    keys = [comparable(row["k"]) for row in to_rows(rows(spec, values, 0))]
    assert sorted(keys) == sorted(comparable(row["k"]) for row in corrected)
    assert all(comparable(row["k"]) == comparable(row["same"]) for row in corrected)
    GridCore().check(spec, restarted(spec, step.state))


@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_keys_of_every_type_meet_again_before_their_window_closes(dtype: pa.DataType) -> None:
    spec = spec_of(dtype, stragglers="drop", too_late="drop")
    values = KEYS[dtype]
    state = State.empty(GridCore().layout(spec))
    for instant, rows_ in ((5, values), (15, values[:1]), (6, values[::-1] * 2), (7, values[:1])):
        packed = GridCore().pack(spec, rows(spec, rows_, instant))
        step = GridCore().step(spec, restarted(spec, state), [packed], 1)
        assert not len(step.output)
        state = step.state
        GridCore().check(spec, state)
    assert len(state.tables["panes"]) == len(values) + 1  # one pane is of the next window
    found = GridCore().step(spec, state, [GridCore().pack(spec, rows(spec, [], 0))], 10)
    assert sorted(row["n"] for row in to_rows(found.output)) == [3] * (len(values) - 1) + [4]
    wanted = sorted(comparable(row["k"]) for row in to_rows(rows(spec, values, 0)))
    assert sorted(comparable(row["k"]) for row in to_rows(found.output)) == wanted


@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_late_rows_carry_keys_of_every_type(dtype: pa.DataType) -> None:
    spec, values = spec_of(dtype), KEYS[dtype]
    before = GridCore().step(
        spec,
        State.empty(GridCore().layout(spec)),
        [GridCore().pack(spec, rows(spec, [], 0))],
        1_000,
    )
    late = (
        GridCore()
        .step(spec, before.state, [GridCore().pack(spec, rows(spec, values, 5))], 1_000)
        .late
    )
    wanted = to_rows(rows(spec, values, 5))
    assert [comparable(row["late"]["row"]) for row in to_rows(late)] == list(
        map(comparable, wanted)
    )
    assert [comparable(row["k"]) for row in to_rows(late)] == [comparable(r["k"]) for r in wanted]


def test_minus_zero_and_zero_are_one_key_as_in_spark() -> None:
    spec = spec_of(pa.float64(), stragglers="drop", too_late="drop")
    found = to_rows(batch(spec, rows(spec, [-0.0, 0.0, -0.0], 5)))
    assert [row["n"] for row in found] == [3]


def test_every_nan_is_one_key_as_in_spark() -> None:
    spec = spec_of(pa.float64(), stragglers="drop", too_late="drop")
    assert [row["n"] for row in to_rows(batch(spec, rows(spec, [NAN, -NAN], 5)))] == [2]
