"""Bloom filters keep every law of a summary to the bit, also as bytes and merged from bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups, Ids
from streamops.sketches.core.bloom import Bloom
from streamops.sketches.core.items import items
from streamops.sketches.core.sketch import Framed, Merged
from streamops.testing import laws

pytestmark = pytest.mark.laws

# 64, 192 and 640 bits: dense from the first item, from the third, from the tenth.
SIZES = [(2, 0.1), (20, 0.01), (64, 0.01)]


def some(draw: st.DrawFn, count: int, groups: int) -> Ids:
    ids = draw(st.lists(st.integers(0, groups - 1), min_size=count, max_size=count))
    return np.array(ids, np.int64)


@st.composite
def members(draw: st.DrawFn) -> laws.SummaryCase:
    """Rows, a filter of them, or filters that are stored; some groups are empty."""
    capacity, rate = draw(st.sampled_from(SIZES))
    count, seed = draw(st.integers(0, 40)), draw(st.integers(0, 2**16))
    sketch = Bloom.of("v", "bigint", capacity, rate)
    item = st.one_of(st.none(), st.integers(0, 30))
    values = pa.array(draw(st.lists(item, min_size=count, max_size=count)), pa.int64())
    rows, groups = pa.table({"v": values}), Groups(some(draw, count, 4), 4)
    if draw(st.booleans()):
        summary = draw(st.sampled_from([sketch, Framed(sketch)]))
        return laws.SummaryCase(summary, rows, groups, seed=seed)
    blobs = Framed(sketch).estimate(sketch.update(groups, rows))
    removed = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    stored = pa.array([None if g else b for g, b in zip(removed, blobs, strict=True)], pa.binary())
    answer = draw(st.sampled_from([sketch, Framed(sketch)]))
    summary = Merged("s", sketch, answer, "laws")
    return laws.SummaryCase(
        summary, pa.table({"s": stored}), Groups(some(draw, 4, 3), 3), seed=seed
    )


@given(case=members())
def test_bloom_filters_keep_every_law(case: laws.SummaryCase) -> None:
    laws.check_laws(case, laws.SUMMARY)


@given(case=members())
def test_no_value_that_is_in_a_filter_is_ever_denied(case: laws.SummaryCase) -> None:
    if "v" not in case.rows.column_names:
        return
    found, valid = items(case.rows.column("v"))
    summary = case.summary
    sketch = summary.sketch if isinstance(summary, Framed) else summary
    assert isinstance(sketch, Bloom)
    states = sketch.update(case.groups, case.rows)
    for group in range(case.groups.count):
        mine = found[valid & (case.groups.ids == group)]
        state = [item[group : group + 1] for item in states]
        assert sketch.contains(state, mine).all()
        one = np.unique(mine)
        assert sketch.filter(state).any() == bool(len(one))
        if len(one) < sketch.shape.length:
            assert state[0][0].as_py() == one.astype("<i8").tobytes()
        (lower, upper) = sketch.bounds(state)
        assert lower[0].as_py() <= sketch.estimate(state)[0].as_py()["estimate"] <= upper[0].as_py()
