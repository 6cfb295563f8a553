"""Sessions in the core: behaviour that transcripts cannot express."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops.kernel.core import State
from streamops.testing.laws import to_rows
from streamops.windows.core.session import SessionCore
from tests.laws.session_strategies import spec_of, table_of
from tests.oracles.sessions import SessionOracle


def sessions(**arguments: Any) -> Any:
    settings: dict[str, Any] = {"gap": 10, "by": ("word",), "agg": {"n": agg.count()}}
    return spec_of(SessionOracle(time="ts", **(settings | arguments)), delay=0)


def packed(spec: Any, *rows: tuple[int, str]) -> pa.Table:
    return lasting(spec, *((at, key, 10, False) for at, key in rows))


def lasting(spec: Any, *rows: tuple[int, str, int, bool]) -> pa.Table:
    raw = [(at, key, *[None] * 4, i, gap, over) for i, (at, key, gap, over) in enumerate(rows)]
    return SessionCore().pack(spec, table_of(raw).select(spec.input.names))


def windows_of(table: pa.Table) -> list[tuple[int, int, int]]:
    return [(row["window_start"], row["window_end"], row["n"]) for row in to_rows(table)]


def spans(state: State, key: str) -> list[dict[str, Any]]:
    return [row for row in to_rows(state.tables["spans"]) if row["key.0"] == key]


@pytest.mark.parametrize("others", [(), ((60, "b"),)], ids=["alone", "beside another key"])
def test_the_state_of_a_key_does_not_depend_on_the_other_keys_of_its_shard(
    others: tuple[tuple[int, str], ...],
) -> None:
    spec = sessions(max_length=10, stragglers="retract", allowed_lateness=1_000)
    first = SessionCore().step(
        spec,
        State.empty(SessionCore().layout(spec)),
        [packed(spec, (0, "a"), (8, "a"), (16, "a"))],
        None,
    )
    # By this watermark the chain of "a" has a fixed beginning; it stores that with its next row.
    later = SessionCore().step(spec, first.state, [packed(spec, *others)], 1_020)
    assert spans(later.state, "a") == spans(first.state, "a")
    assert [row["anchor"] for row in spans(later.state, "a")] == [0, 8, 16]


def test_a_session_stays_whole_when_the_long_event_that_links_it_is_evicted() -> None:
    spec = sessions(gap=40, gap_column="lasts", max_length=120)
    # The event of 110 lasts until 150 and is of the session before: only it links 121 and 130.
    events = [(0, 40), (40, 40), (80, 40), (110, 40), (121, 1), (130, 40), (170, 40), (210, 40)]
    rows = lasting(spec, *((at, "a", gap, False) for at, gap in events))
    arrived = SessionCore().step(spec, State.empty(SessionCore().layout(spec)), [rows], None)
    first = SessionCore().step(spec, arrived.state, [packed(spec)], 200)
    SessionCore().check(spec, first.state)
    assert windows_of(first.output) == [(0, 120, 4)]
    quiet = SessionCore().step(spec, first.state, [packed(spec)], 220)
    assert windows_of(quiet.output) == []
    last = SessionCore().step(spec, quiet.state, [packed(spec)], 300)
    assert windows_of(last.output) == [(120, 240, 4)]
    assert spans(SessionCore().step(spec, last.state, [packed(spec)], 320).state, "a") == []


def test_a_closing_row_is_stored_while_an_earlier_event_lasts_longer() -> None:
    spec = sessions(gap=40, gap_column="lasts", until="over", max_length=40)
    closed = [(0, "a", 20, False), (20, "a", 40, False), (40, "a", 10, True)]
    following = [(60, "a", 40, False), (80, "a", 40, False)]
    first = SessionCore().step(
        spec, State.empty(SessionCore().layout(spec)), [lasting(spec, *closed, *following)], 99
    )
    assert windows_of(first.output) == [(0, 40, 2), (40, 41, 1)]
    last = SessionCore().step(spec, first.state, [packed(spec)], 200)
    assert windows_of(last.output) == [(60, 100, 2)]


def test_a_batch_has_its_results_and_the_rejected_rows() -> None:
    spec = sessions(stragglers="route", early="every batch")
    rows = to_rows(SessionCore().run(spec, [packed(spec, (0, "a"), (10, "a"), (21, "b"))]).rows)
    assert [(r["word"], r["window_start"], r["window_end"], r["n"]) for r in rows] == [
        ("a", 0, 20, 2),
        ("b", 21, 31, 1),
    ]
    assert {(r["revision"], r["timing"], r["_change_type"]) for r in rows} == {
        (0, "on_time", "insert")
    }
