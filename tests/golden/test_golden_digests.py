"""States with digests of nested values that earlier versions wrote go on without a duplicate or another identifier."""

from __future__ import annotations

from typing import Any

import pytest

from streamops.kernel.codec import read_stored
from streamops.kernel.columns import combine_chunks
from streamops.sketches.core.seen_state import PREVIOUS, redistribute
from streamops.spark.step import Stored
from streamops.testing.replaying import MemoryStore
from tests.golden.former_states import (
    ALIKE,
    FIRST,
    go,
    history_step,
    read,
    seen_step,
    segments,
    table,
)

FORMER_ID = "e685e801269fa070e8ded17c42badcb3"
"""The identifier that earlier versions gave to the first row of `FIRST`."""


def decisions(rows: list[dict[str, Any]]) -> list[str]:
    return [row["seen"] for row in rows]


@pytest.mark.parametrize(
    ("name", "limit", "store"),
    [("sketches.seen", 1_000, None), ("sketches.seen-apart", 3, segments())],
)
def test_what_an_earlier_version_has_seen_is_seen(
    name: str, limit: int, store: MemoryStore | None
) -> None:
    step, stored = seen_step(limit), read(name)
    assert "digests" not in read_stored(Stored(*stored).frame).identity
    stored, rows = go(step, stored, table(FIRST), store)
    assert decisions(rows) == ["again"] * 3
    assert read_stored(Stored(*stored).frame).identity["digests"] == 2
    new = [([1], [3, 2], 7, 0), ([], [1], 8, 0), ([1, 3], [2], 9, 0)]
    stored, rows = go(step, stored, table(new), store)
    # The first and the last one have the same xxhash64, and the state has neither.
    assert decisions(rows) == ["first"] * 3
    # After another restart, too.
    stored, rows = go(seen_step(limit), stored, table([*FIRST, *new]), store)
    assert decisions(rows) == ["again"] * 6


def test_what_an_earlier_version_has_seen_is_seen_with_another_number_of_shards() -> None:
    step, stored = seen_step(), read("sketches.seen")
    stored, _ = go(step, stored, table([([9], [9], 9, 0)]))
    frame = read_stored(Stored(*stored).frame)
    identity, parts = redistribute(frame.identity, {0: frame.tables()}, 1, 2)
    assert identity["digests"] == 2
    for part in parts:
        # One filter of an earlier version, and one of this, of one shard.
        assert sorted(combine_chunks(part[PREVIOUS].column("shards")).to_pylist()) == [-1, 1]


def test_new_states_tell_the_identities_apart_that_were_one() -> None:
    _, rows = go(seen_step(), None, table(FIRST + ALIKE))
    assert decisions(rows) == ["first"] * 6


def test_intervals_retain_the_identifiers_that_an_earlier_version_gave() -> None:
    step, former = history_step(), read("changes.intervals")
    # With n = 50 the first intervals end, and others begin.
    stored, rows = go(step, former, table([(*row[:2], 50, 1) for row in FIRST]))
    first = [row for row in rows if row["id"] == [1]]
    assert [row["valid_from"] for row in first] == [1, 1, 50]
    assert [row["vid"] for row in first[:2]] == [FORMER_ID] * 2
    # After another restart, too: this key has a digest of its own, and had the same hash.
    stored, rows = go(history_step(), stored, table([([1, 2], [3], 1, 0)]))
    assert [row["vid"] for row in rows] == [FORMER_ID]


def test_new_intervals_have_identifiers_of_their_own() -> None:
    rows = [(*row[:2], 4, 0) for row in FIRST + ALIKE]
    _, found = go(history_step(), None, table(rows))
    assert len({row["vid"] for row in found}) == 6
