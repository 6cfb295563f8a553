"""Rolling aggregates keep the laws of a core, and their values have the same bits in each way."""

from __future__ import annotations

import bisect
import random
import struct
from collections import defaultdict
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops.kernel.columns import concat, take
from streamops.testing import laws
from streamops.testing.laws import to_rows
from streamops.windows.core import sliding
from tests.laws.lateness import (
    every_late_row_in_the_side_output_is_counted,
    every_row_is_counted_once,
    nothing_happens_before_the_deadline,
)
from tests.laws.rolling_strategies import case_of, histories
from tests.laws.strategies import table_of
from tests.oracles.rolling import RollingOracle
from tests.oracles.windows import key_of, same

pytestmark = pytest.mark.laws


CORE = [law for law in laws.CORE if law.__name__ != "the_deadline_is_exact"]
LAWS = (
    *CORE,
    nothing_happens_before_the_deadline,
    every_row_is_counted_once,
    every_late_row_in_the_side_output_is_counted,
)


@given(case=histories())
def test_rolling_aggregates_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, LAWS)


@given(case=histories())
def test_horizons_of_many_panes_keep_the_laws(case: laws.Case) -> None:
    with mock.patch.object(sliding, "_FEW", 0):  # horizons of two panes are merged in blocks
        laws.check_laws(case, CORE)


@given(case=histories(), data=st.data())
def test_the_newest_row_of_a_key_has_its_values_at_any_time(
    case: laws.Case, data: st.DataObject
) -> None:
    """What was served at a labelled instant is what its rows before the last border say."""
    assert case.oracle is not None
    oracle: Any = case.oracle()
    for (batch,), watermark in zip(case.batches, case.watermarks(case.batches), strict=True):
        oracle.step(to_rows(batch), watermark)
    served = defaultdict(list)
    final = case.core.finish(case.spec, case.steps[-1].state)
    for row in to_rows(concat([*(step.output for step in case.steps), final])):
        served[key_of(row, case.spec.by)].append((row["window_end"], row))
    dice = random.Random(case.seed)
    for row in dice.sample(oracle.arrived, min(len(oracle.arrived), 5)):
        key, every = key_of(row, oracle.by), oracle.every
        rows = sorted(served[key], key=lambda pair: pair[0])
        instant = row[oracle.time] + dice.choice([0, 1, every, every - 1, 2 * every, 37 * every])
        values = oracle.values(key, instant // every * every)
        newest = bisect.bisect_right([border for border, _ in rows], instant)
        if newest:
            last = rows[newest - 1][1]
            assert same({name: last[name] for name in values}, values)
        else:
            assert same(values, oracle.values(object(), instant))


INEXACT = {
    "total": agg.sum("x"),
    "spread": agg.stddev("x"),
    "mean": agg.mean("x"),
    "rows": agg.count(),
}
ROUGH = [0.1, 0.2, 0.3, 1e16, -1e16, 3.7, 1e-9, None]


@st.composite
def inexact(draw: st.DrawFn) -> laws.Case:
    """Floats whose sum depends on the order of addition, over some time."""
    settings = RollingOracle(
        every=10_000,
        horizons={"h1": 10_000, "h9": 90_000, "h64": 640_000},
        by=("word",),
        time="ts",
        agg=INEXACT,  # type: ignore[arg-type]
    )
    dice, batches = random.Random(draw(st.integers(0, 2**32))), []
    for number in range(draw(st.integers(1, 12))):
        times = [number * 30_000 + dice.randrange(-20_000, 60_000) // 7 * 7 for _ in range(20)]
        rows = [(t, dice.choice("ab"), None, None, dice.choice(ROUGH), None, 0) for t in times]
        batches.append(table_of([(1_700_000_000_000_000 + row[0], *row[1:]) for row in rows]))
    case = case_of(settings, batches, delay=40_000, seed=dice.randrange(2**16))
    return replace(case, oracle=None)


def bits(row: dict[str, Any]) -> dict[str, Any]:
    return {n: struct.pack("d", v) if isinstance(v, float) else v for n, v in row.items()}


@given(case=inexact(), few=st.sampled_from([0, 2, 16]))
def test_floats_have_the_same_bits_in_a_stream_a_batch_and_in_any_order(
    case: laws.Case, few: int
) -> None:
    with mock.patch.object(sliding, "_FEW", few):
        (rows,) = case.all_rows()
        order = np.random.default_rng(case.seed).permutation(len(rows))
        end = case.core.finish(case.spec, case.steps[-1].state)
        streamed = to_rows(concat([*(step.output for step in case.steps), end]))
        accepted = case.run_accepted(
            [*zip(case.batches, case.watermarks(case.batches), strict=True)]
        )
        shuffled = take(rows, order)
        batches = [
            to_rows(case.core.run(case.spec, case.pack((of,))).output) for of in (rows, shuffled)
        ]
    found = [
        sorted(map(bits, of), key=lambda row: (row["word"], row["window_end"]))
        for of in (streamed, accepted, *batches)
    ]
    assert found[0] == found[1]
    assert found[2] == found[3]


def test_an_unchanged_horizon_keeps_its_bits_while_others_change() -> None:
    """Rows that leave the short horizon do not change how the long one is added up."""
    settings = RollingOracle(
        every=10_000,
        horizons={"short": 10_000, "long": 100 * 10_000},
        by=("word",),
        time="ts",
        agg={"total": agg.sum("x")},
    )
    start = 1_700_000_000_000_000
    rows = [
        (start + n * 10_000, "a", None, None, x, None, 0)
        for n, x in enumerate([0.1, 0.2, 0.3, 0.7, 1e16, -1e16] * 4)
    ]
    case = case_of(settings, [table_of(rows)], delay=0, seed=1)
    with mock.patch.object(sliding, "_FEW", 0):
        output = to_rows(case.core.run(case.spec, case.pack(case.batches[0])).output)
    after = [row["total_long"] for row in output if row["window_end"] >= start + 24 * 10_000]
    assert after[0] == after[1]
    assert output[24]["total_short"] is None


def test_a_sketch_is_merged_in_one_order() -> None:
    """The state of a quantile sketch depends on the order of rows, and its values do not."""
    settings = RollingOracle(
        every=10_000,
        horizons={"all": 100 * 10_000},
        by=(),
        time="ts",
        agg={"median": agg.approx_percentile("x", [0.5])},
    )
    dice = random.Random(5)
    rows = [(n * 500, None, None, None, dice.random(), None, 0) for n in range(3_000)]
    case = replace(case_of(settings, [table_of(rows)], delay=0, seed=1), oracle=None)
    one = case.core.run(case.spec, case.pack(case.batches[0])).output
    dice.shuffle(rows)
    other = case.core.run(
        case.spec, case.pack((table_of(rows).select(case.spec.input.names),))
    ).output
    assert one.equals(other)
