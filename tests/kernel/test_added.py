"""Columns that say which states of an added aggregate are unknown."""

from __future__ import annotations

import pyarrow as pa

from streamops.kernel import added


def test_a_column_of_unknown_states_is_behind_those_of_its_aggregate() -> None:
    known = pa.table({"k": ["a"], "agg.0.sum": [1], "agg.1.count": [2]})
    first = known.add_column(2, "agg.0.unknown", [[True]])
    second = known.append_column("agg.1.unknown", [[True]])
    complete = added.with_all_unknown([known, first, second])
    names = ["k", "agg.0.sum", "agg.0.unknown", "agg.1.count", "agg.1.unknown"]
    assert [table.column_names for table in complete] == [names] * 3
    assert complete[0].column("agg.0.unknown").to_pylist() == [False]
    assert complete[1].column("agg.0.unknown").to_pylist() == [True]
