"""Sketches keep every law of a summary, also as bytes and merged from bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups, Ids
from streamops.sketches.core.countmin import CountMin
from streamops.sketches.core.frequent import Frequent
from streamops.sketches.core.hyperloglog import HyperLogLog
from streamops.sketches.core.sketch import Framed, Merged, Sketch
from streamops.testing import laws
from tests.sketches.linear import Linear

pytestmark = pytest.mark.laws

# Each sketch whose state depends on its items alone, and values for its column.
SKETCHES: Sequence[tuple[Sketch, list[object]]] = [
    (Linear("v", 3), ["a", "b", "c", "dd"]),
    (HyperLogLog("v", 4), [*range(30)]),
    (HyperLogLog("v", 12), [*range(9)]),
    (CountMin("v", pa.string(), 2, 3), ["a", "b", "c", "dd", ""]),
    (Frequent("v", pa.string(), 5), ["a", "b", "c", "dd", ""]),  # while all items find room
]


def some(draw: st.DrawFn, count: int, groups: int) -> Ids:
    ids = draw(st.lists(st.integers(0, groups - 1), min_size=count, max_size=count))
    return np.array(ids, np.int64)


@st.composite
def members(draw: st.DrawFn) -> laws.SummaryCase:
    """Rows, a sketch of them, or sketches that are stored; some groups are empty."""
    sketch, pool = draw(st.sampled_from(SKETCHES))
    count, seed = draw(st.integers(0, 12)), draw(st.integers(0, 2**16))
    item = st.sampled_from([None, *pool])
    values = pa.array(draw(st.lists(item, min_size=count, max_size=count)), pa.array(pool).type)
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
def test_sketches_keep_every_law(case: laws.SummaryCase) -> None:
    laws.check_laws(case, laws.SUMMARY)
