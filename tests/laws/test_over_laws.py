"""Values of other rows keep the laws of a core, and averages have the same bits in each way."""

from __future__ import annotations

import math
import random
import struct
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import windows
from streamops.kernel.columns import concat
from streamops.testing import laws
from streamops.testing.laws import to_rows
from streamops.windows.core.over import _accumulate
from tests.laws.lateness import (
    every_row_is_counted_once,
    every_row_that_is_not_accepted_is_routed,
    nothing_happens_before_the_deadline,
)
from tests.laws.over_strategies import case_of, histories
from tests.laws.strategies import table_of
from tests.oracles.over import OverOracle

pytestmark = pytest.mark.laws


COUNTS = (every_row_is_counted_once, every_row_that_is_not_accepted_is_routed)
EXACT = (*laws.CORE, *COUNTS)
WITH_LEAD = (
    *(law for law in laws.CORE if law.__name__ != "the_deadline_is_exact"),
    *(nothing_happens_before_the_deadline, *COUNTS),
)


def check(case: laws.Case) -> None:
    laws.check_laws(case, WITH_LEAD if case.spec.ahead else EXACT)  # type: ignore[attr-defined]


@given(case=histories())
def test_values_of_other_rows_keep_every_law(case: laws.Case) -> None:
    check(case)


@given(case=histories(averaged=True))
def test_averages_keep_every_law(case: laws.Case) -> None:
    check(case)


ROUGH = [0.1, 0.2, 0.3, 1e16, -1e16, 3.7, 1e-9, None]
HALF_LIVES = {"short": 13, "near": 20_000, "long": 9_000_000, "none": 10**15}


@st.composite
def inexact(draw: st.DrawFn) -> laws.Case:
    """Floats whose averages depend on the order of addition, some in long micro-batches."""
    dice, batches = random.Random(draw(st.integers(0, 2**32))), []
    for number in range(draw(st.integers(1, 12))):
        count = dice.choice([1, 2, 20, 200])
        times = [number * 30_000 + dice.randrange(-20_000, 60_000) // 7 * 7 for _ in range(count)]
        rows = [(t, dice.choice("aaab"), None, None, dice.choice(ROUGH), None, 0) for t in times]
        batches.append(table_of([(1_700_000_000_000_000 + row[0], *row[1:]) for row in rows]))
    values = {
        name: windows.ewma("x", half_life=f"{micros} microseconds")
        for name, micros in HALF_LIVES.items()
    }
    within = dice.choice([500, 3_000, 10**9])
    settings = OverOracle(values=values, within=within, by=("word",), time="ts")
    return case_of(settings, batches, delay=40_000, seed=dice.randrange(2**16), has_oracle=False)


def bits(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(struct.pack("d", v) if isinstance(v, float) else v for v in row.values())


def streamed(case: laws.Case) -> list[dict[str, Any]]:
    end = case.core.finish(case.spec, case.steps[-1].state)
    return to_rows(concat([*(step.output for step in case.steps), end]))


@given(case=inexact())
def test_averages_have_the_same_bits_in_a_stream_and_in_a_batch(case: laws.Case) -> None:
    marks = [None, *case.watermarks(case.batches)]
    arrivals = [*zip(case.batches, marks[:-1], strict=True)]
    one, other = (
        sorted(map(bits, rows), key=repr) for rows in (streamed(case), case.run_accepted(arrivals))
    )
    assert one == other


@given(case=inexact())
def test_an_average_is_the_mean_by_weights_that_halve(case: laws.Case) -> None:
    """By the definition, with all values since the last gap."""
    keys = defaultdict(list)
    for row in streamed(case):
        keys[row["word"]].append(row)
    for rows in keys.values():
        rows.sort(key=lambda row: (row["ts"], -math.inf if row["x"] is None else row["x"]))
        begin = 0
        for at, row in enumerate(rows):
            if at and row["ts"] - rows[at - 1]["ts"] > case.spec.within:  # type: ignore[attr-defined]
                begin = at
            for name, half_life in HALF_LIVES.items():
                pairs = [
                    (2.0 ** -((row["ts"] - r["ts"]) / half_life), r["x"])
                    for r in rows[begin : at + 1]
                    if r["x"] is not None
                ]
                weight = math.fsum(w for w, _ in pairs)
                if not weight:
                    continue  # all values are too old for these weights
                mean = math.fsum(w * x for w, x in pairs) / weight
                size = math.fsum(w * abs(x) for w, x in pairs) / weight
                assert math.isclose(row[name], mean, rel_tol=1e-9, abs_tol=1e-11 * size)


@given(
    lengths=st.lists(st.sampled_from([1, 1, 2, 3, 4, 5, 8, 9, 100]), max_size=20),
    seed=st.integers(0, 2**32),
)
def test_runs_are_added_up_one_after_the_other(lengths: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=sum(lengths)) * 1e9
    starts = np.cumsum([0, *lengths[:-1]]) if lengths else np.array([], np.int64)
    (found,) = _accumulate([values], starts)
    expected: list[float] = []
    for start, length in zip(starts, lengths, strict=True):
        total = float(values[start])
        expected.append(total)
        for value in values[start + 1 : start + length].tolist():
            total += value
            expected.append(total)
    assert found.tolist() == expected
