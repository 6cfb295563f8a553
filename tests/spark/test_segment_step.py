"""The step of a shard with segments."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from streamops.kernel.codec import read_stored
from streamops.kernel.errors import StateFormatError
from streamops.spark.step import ShardStep, Stored, to_frame, to_text
from streamops.spark.wire import NOTHING
from streamops.testing.replaying import MemoryStore
from tests.spark.test_step import metrics, packed, shard_step

PLAIN: dict[str, Any] = {"stragglers": "drop", "allowed_lateness": "0 seconds"}


def step_with(limit: int, size: str = "10 seconds", **changes: Any) -> ShardStep:
    return dataclasses.replace(shard_step(size, **(PLAIN | changes)), segment_rows=limit)


def written(store: MemoryStore, **changes: Any) -> tuple[ShardStep, Sequence[Any]]:
    """A step, and the stored state of two windows in two segments."""
    step = step_with(1, **changes)
    stored, _ = step(None, [packed(step, 105, 115)], 0, store=store)
    assert stored is not None
    return step, stored


def test_a_small_state_is_stored_as_without_segments() -> None:
    step, store = step_with(2), MemoryStore()
    rows = packed(step, 105, 115)
    assert step(None, [rows], 0, store=store)[0] == step(None, [rows], 0)[0]
    assert not store


def test_a_state_with_segments_has_a_version_of_its_own() -> None:
    store = MemoryStore()
    _, stored = written(store)
    frames = [Stored(*stored).frame, *map(to_frame, store.values())]
    assert len(frames) == 3
    assert {read_stored(frame, where="test").version for frame in frames} == {2}


def test_a_state_api_without_a_place_for_segments_refuses_them() -> None:
    step, stored = written(MemoryStore())
    with pytest.raises(StateFormatError) as refused:
        step(stored, [packed(step, 106)], 0)
    assert refused.value.code == "STATE_VERSION"


@pytest.mark.parametrize("change", [{"by": "v"}, {"shards": 8}], ids=["by", "shards"])
def test_a_state_with_segments_is_refused_by_others(change: dict[str, Any]) -> None:
    store = MemoryStore()
    _, stored = written(store)
    other = step_with(1, **change)
    for packs in ([NOTHING], [packed(other, 106)]):
        with pytest.raises(StateFormatError) as refused:
            other(stored, packs, 200_000, store=store)
        assert refused.value.code in ("STATE_PARAMETERS", "STATE_SHARDS")


def test_a_segment_that_is_damaged_missing_or_of_others_is_refused() -> None:
    store, foreign = MemoryStore(), MemoryStore()
    step, stored = written(store)
    written(foreign, size="5 seconds")
    damaged = bytearray(base64.b64decode(store[1]))
    damaged[-1] ^= 1
    for blob, code in (
        (to_text(bytes(damaged)), "STATE_CORRUPT"),
        ("", "STATE_FOREIGN"),
        (foreign[1], "STATE_PARAMETERS"),
    ):
        with pytest.raises(StateFormatError) as refused:
            step(stored, [], 110_000, store=MemoryStore(store | {1: blob}))
        assert (refused.value.code, "segment 1" in refused.value.where) == (code, True)


def test_metrics_count_rows_and_bytes_of_segments() -> None:
    step, store = step_with(1), MemoryStore()
    _, frame = step(None, [packed(step, 105, 115)], 0, store=store)
    found = metrics(step, frame)
    assert found["state_rows"] == 2
    assert found["state_bytes"] > sum(map(len, store.values())) > 0


def test_a_step_without_rows_publishes_from_segments() -> None:
    store = MemoryStore()
    step, stored = written(store)
    after, frame = step(stored, [NOTHING], 110_000, store=store)
    assert (metrics(step, frame)["results"], [*store]) == (1, [2])
    after, frame = step(after, [], 120_000, store=store)
    assert (metrics(step, frame)["results"], [*store]) == (1, [])
    assert read_stored(Stored(*after).frame, where="test").version == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"stragglers": "update", "allowed_lateness": "1 hour"},
        {"early": "every batch"},
        {"empty": "publish", "empty_for": "1 minute"},
    ],
    ids=["corrections", "early results", "empty windows"],
)
def test_windows_that_need_other_values_have_no_segments(changes: dict[str, Any]) -> None:
    assert not step_with(0, **changes).has_segments
