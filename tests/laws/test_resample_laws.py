"""Rows on a grid keep the laws of a core, and an interpolated value lies between two rows."""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import windows
from streamops.testing import laws
from streamops.testing.laws import to_rows
from streamops.windows.core.resample import ResampleCore
from tests.laws.lateness import (
    every_row_is_counted_once,
    every_row_that_is_not_accepted_is_routed,
    nothing_happens_before_the_deadline,
)
from tests.laws.resample_strategies import histories

pytestmark = pytest.mark.laws

LAWS = (
    *(law for law in laws.CORE if law.__name__ != "the_deadline_is_exact"),
    *(every_row_is_counted_once, every_row_that_is_not_accepted_is_routed),
    nothing_happens_before_the_deadline,
)


@given(case=histories())
def test_rows_on_a_grid_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, LAWS)


@given(case=histories())
def test_an_instant_of_a_key_is_emitted_once_on_the_grid(case: laws.Case) -> None:
    spec, seen = case.spec, set()
    rows = [row for step in case.steps for row in to_rows(step.output)]
    rows += to_rows(case.core.finish(spec, case.steps[-1].state))
    for row in rows:
        key = repr([row[name] for name in spec.by]), row["ts"]  # type: ignore[attr-defined]
        assert key not in seen
        seen.add(key)
        assert row["ts"] % spec.every == 0  # type: ignore[attr-defined]
        assert 0 <= row["ts"] - row["observed_at"] <= spec.max_gap  # type: ignore[attr-defined]


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([1.7e308, -1.7e308])


@given(before=NUMBERS, after=NUMBERS, distance=st.integers(2, 40))
def test_an_interpolated_value_lies_between_the_two_rows(
    before: float, after: float, distance: int
) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    made = windows.resample(
        "1 microsecond", time="ts", values={"x": "linear"}, max_gap="40 microseconds"
    )
    spec = made.parameters.resolve((schema,), carried=(None,), shards=1)
    rows = pa.table([pa.array([0, distance]), pa.array([before, after])], names=["ts", "x"])
    core = ResampleCore()
    found = core.run(spec, [core.pack(spec, rows.cast(schema))]).output.slice(0, distance + 1)
    values = found.column("x").to_pylist()
    assert [struct.pack("d", values[at]) for at in (0, -1)] == [
        struct.pack("d", value) for value in (before, after)
    ]
    for value in values[1:-1]:
        if math.isnan(before + after):  # one is NaN, or they are opposite infinities
            assert math.isnan(value)
        else:
            assert min(before, after) <= value <= max(before, after)
