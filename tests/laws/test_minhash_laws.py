"""MinHash keeps every law of a summary to the last bit: its state depends on the items alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups
from streamops.sketches.core.minhash import SCHEMES, MinHash
from streamops.testing import laws

pytestmark = pytest.mark.laws


@st.composite
def members(draw: st.DrawFn) -> laws.SummaryCase:
    """Items and nulls in groups, of which some are empty."""
    sketch = MinHash("v", draw(st.sampled_from([2, 3])), 1, draw(st.sampled_from([*SCHEMES])))
    items = draw(st.lists(st.tuples(st.none() | st.integers(0, 9), st.integers(0, 2))))
    rows = pa.table({"v": pa.array([item for item, _ in items], pa.int64())})
    groups = Groups(np.array([group for _, group in items], np.int64), 4)
    return laws.SummaryCase(sketch, rows, groups, 0.0, draw(st.integers(0, 99)))


@given(case=members())
def test_minhash_keeps_every_law(case: laws.SummaryCase) -> None:
    laws.check_laws(case, laws.SUMMARY)
