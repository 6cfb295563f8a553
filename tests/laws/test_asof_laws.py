"""As-of joins obey every law of a core with two inputs."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.joins.core.asof import AsofCore
from streamops.testing import laws
from tests.joins.core.asof_play import bound, packed
from tests.laws.asof_strategies import histories

pytestmark = pytest.mark.laws


@given(case=histories())
def test_asof_joins_obey_every_law(case: laws.Case) -> None:
    laws.check_laws(case)


@given(case=histories(waits_for="facts"))
def test_joins_with_a_watermark_of_facts_obey_every_law_except_stream_equals_batch(
    case: laws.Case,
) -> None:
    # A version that arrives before all facts can be late: its time does not advance the watermark.
    laws.check_laws(case, [law for law in laws.CORE if law.__name__ != "stream_equals_batch"])


@given(data=st.data())
def test_a_batch_equals_merge_asof_of_pandas(data: st.DataObject) -> None:
    instants = st.integers(0, 12)
    facts = data.draw(st.lists(st.tuples(st.sampled_from("ab"), instants), min_size=1, max_size=12))
    versions = data.draw(
        st.lists(st.tuples(st.sampled_from("abc"), instants), max_size=12, unique=True)
    )
    direction = data.draw(st.sampled_from(["backward", "forward", "nearest"]))
    tolerance = data.draw(st.sampled_from([None, 3, 1]))
    allow_exact = data.draw(st.booleans())
    spec = bound(
        direction=direction,
        tolerance=None if tolerance is None else f"{tolerance} seconds",
        allow_exact=allow_exact,
    )
    left = [(key, time, number) for number, (key, time) in enumerate(facts)]
    right = [(key, time, 1, f"{key}{time}") for key, time in versions]
    rows = AsofCore().run(spec, packed(spec, left, right)).rows.to_pylist()
    theirs = pd.merge_asof(
        pd.DataFrame(left, columns=["k", "ts", "n"]).sort_values("ts", kind="stable"),
        pd.DataFrame(right, columns=["k", "since", "seq", "v"])
        .astype({"since": "int64", "k": "object"})
        .sort_values("since"),
        left_on="ts",
        right_on="since",
        by="k",
        direction=direction,
        tolerance=tolerance,
        allow_exact_matches=allow_exact,
    )
    expected = {row.n: row.v if isinstance(row.v, str) else None for row in theirs.itertuples()}
    assert {row["n"]: row["v"] for row in rows} == expected
