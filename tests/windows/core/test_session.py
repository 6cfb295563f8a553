"""Sessions as the core computes them: what no transcript can say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops.kernel.contract import State
from streamops.testing.laws import rows_of
from streamops.windows.core import session
from tests.laws.session_strategies import spec_of, table_of
from tests.oracles.sessions import SessionOracle


def sessions(**said: Any) -> Any:
    settings: dict[str, Any] = {"gap": 10, "by": ("word",), "agg": {"n": agg.count()}}
    return spec_of(SessionOracle(time="ts", **(settings | said)), delay=0)


def packed(spec: Any, *rows: tuple[int, str]) -> pa.Table:
    raw = [(at, key, None, None, None, None, i, 10, False) for i, (at, key) in enumerate(rows)]
    return session.pack(spec, table_of(raw).select(spec.input.names))


def stretches(state: State, key: str) -> list[dict[str, Any]]:
    return [row for row in rows_of(state.tables["stretches"]) if row["key.0"] == key]


@pytest.mark.parametrize("others", [(), ((60, "b"),)], ids=["alone", "beside another key"])
def test_a_key_is_kept_alike_whoever_shares_its_shard(others: tuple[tuple[int, str], ...]) -> None:
    spec = sessions(max_length=10, stragglers="retract", allowed_lateness=1_000)
    first = session.step(
        spec, session.empty(spec), packed(spec, (0, "a"), (8, "a"), (16, "a")), None
    )
    # By this watermark the chain of "a" has a fixed beginning; it stores that with its next row.
    later = session.step(spec, first.state, packed(spec, *others), 1_020)
    assert stretches(later.state, "a") == stretches(first.state, "a")
    assert [row["anchor"] for row in stretches(later.state, "a")] == [0, 8, 16]


def test_a_batch_is_its_results_and_the_rows_that_cannot_be_placed() -> None:
    spec = sessions(stragglers="route", early="every batch")
    rows = rows_of(session.run(spec, packed(spec, (0, "a"), (10, "a"), (21, "b"))))
    assert [(r["word"], r["window_start"], r["window_end"], r["n"]) for r in rows] == [
        ("a", 0, 20, 2),
        ("b", 21, 31, 1),
    ]
    assert {(r["revision"], r["timing"], r["_change_type"]) for r in rows} == {
        (0, "on_time", "insert")
    }
