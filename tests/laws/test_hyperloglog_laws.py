"""HyperLogLog keeps every law of a summary to the last bit: its state depends on the items alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups
from streamops.sketches.core.hyperloglog import HyperLogLog, most_coupons
from streamops.testing import laws

pytestmark = pytest.mark.laws

# So many that a sketch becomes dense on the way; each after the one before, so that they differ.
MANY = pa.array(np.arange(most_coupons(8) + 40), pa.int64())


@st.composite
def members(draw: st.DrawFn) -> laws.SummaryCase:
    """Items and nulls in groups, of which some are empty, on both sides of the switch."""
    p = draw(st.sampled_from([4, 5, 8]))
    if p < 8:
        items = draw(st.lists(st.none() | st.integers(0, 15), max_size=24))
        column = pa.array(items, pa.int64())
    else:
        column = MANY[: draw(st.integers(most_coupons(8) - 3, len(MANY)))]
    spread = draw(st.sampled_from([1, 3]))
    ids = draw(st.randoms(use_true_random=False))
    groups = np.array([ids.randrange(spread) for _ in column], np.int64)
    rows = pa.table({"v": column})
    return laws.SummaryCase(
        HyperLogLog("v", p), rows, Groups(groups, 4), 0.0, draw(st.integers(0, 99))
    )


@given(case=members())
def test_hyperloglog_keeps_every_law(case: laws.SummaryCase) -> None:
    laws.check_laws(case, laws.SUMMARY)
