"""Theta sketches and overlaps keep every law of a summary, exactly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.aggregation import Summary
from streamops.kernel.groups import Groups
from streamops.sketches.core.theta import Overlap, Theta
from streamops.testing import laws

pytestmark = pytest.mark.laws

PAGES = ["a", "b", "c"]


@st.composite
def members(draw: st.DrawFn) -> laws.SummaryCase:
    """Users in groups of which some are empty, some beyond k, and some far apart."""
    k = draw(st.sampled_from([16, 32]))
    count = draw(st.integers(0, 60)) * draw(st.sampled_from([1, 5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    users = rng.integers(0, draw(st.sampled_from([5, 40, 10_000])), count)
    known = rng.random(count) < 0.9
    pages = rng.choice(np.array([*PAGES, "other"], object), count)
    rows = pa.table({"user": pa.array(users, mask=~known), "page": pa.array(pages, pa.string())})
    groups = Groups(rng.choice([0, 0, 0, 1, 3], count).astype(np.int64), 4)
    summary: Summary = draw(
        st.sampled_from([Theta("user", k), Overlap("user", "page", pa.array(PAGES), k)])
    )
    return laws.SummaryCase(summary, rows, groups, seed=draw(st.integers(0, 2**16)))


@given(case=members())
def test_theta_keeps_every_law(case: laws.SummaryCase) -> None:
    laws.check_laws(case, laws.SUMMARY)
