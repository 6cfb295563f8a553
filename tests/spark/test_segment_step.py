"""The step of a shard with segments."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import sketches
from streamops.kernel.codec import fingerprint, ipc_read, ipc_write, read_stored
from streamops.kernel.errors import StateFormatError
from streamops.spark import retained
from streamops.spark.packing import NOTHING, pack_rows
from streamops.spark.retained import forget_all
from streamops.spark.step import ShardStep, Stored, to_frame, to_text
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


def test_a_state_with_segments_has_another_fingerprint() -> None:
    store = MemoryStore()
    step, stored = written(store)
    frames = [Stored(*stored).frame, *map(to_frame, store.values())]
    assert len(frames) == 3
    assert {read_stored(frame).version for frame in frames} == {1}
    assert Stored(*stored).fingerprint == ~fingerprint(*step.header)


def test_a_state_api_without_a_place_for_segments_refuses_them() -> None:
    step, stored = written(MemoryStore())
    with pytest.raises(StateFormatError) as refused:
        step(stored, [packed(step, 106)], 0)
    assert refused.value.code == "STATE_VERSION"
    assert refused.value.got == f"{refused.value.expected} with segments"


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
        ("", "STATE_CORRUPT"),
        (foreign[1], "STATE_CORRUPT"),  # its checksum is not that of the index
        (store[2], "STATE_CORRUPT"),
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
    assert Stored(*after).fingerprint == fingerprint(*step.header)


@pytest.mark.parametrize(
    "changes",
    [
        {"stragglers": "update", "allowed_lateness": "1 hour"},
        {"early": "every batch"},
        {"empty_for": "1 minute"},
    ],
    ids=["corrections", "early results", "empty windows"],
)
def test_windows_that_need_other_values_have_no_segments(changes: dict[str, Any]) -> None:
    step = step_with(0, **changes)
    assert not step.core.has_segments(step.spec)


def filters(limit: int) -> tuple[ShardStep, Callable[..., tuple[Any, list[int]]]]:
    """The step of ``sketches.seen``, and a function that runs a micro-batch of it."""
    schema = pa.schema([("k", pa.int64())])
    operator = sketches.seen("k", capacity=1_000)
    spec = operator.parameters.resolve((schema,), carried=(None,), shards=1)
    step = ShardStep(operator.name, operator.core, spec, 1, segment_rows=limit)

    def run(stored: Any, store: MemoryStore, *keys: int) -> tuple[Any, list[int]]:
        rows = pa.table({"k": list(keys)}, schema=schema)
        packs = [ipc_write(pack_rows(step.core, spec, "left", rows))]
        after, frame = step(stored, packs, store=store)
        cells = [cell for cell in frame["emitted"] if cell is not None]
        return after or stored, [k for c in cells for k in ipc_read(c).column("k").to_pylist()]

    return step, run


class CountingStore(MemoryStore):
    """Counts the segments that are read."""

    reads = 0

    def read(self, number: int) -> str:
        self.reads += 1
        return super().read(number)


def test_a_worker_reads_a_filter_once() -> None:
    (_, run), store = filters(limit=2), CountingStore()
    stored, found = run(None, store, 1)
    assert (found, [*store]) == ([1], [1])
    for number in range(2, 8):
        stored, found = run(stored, store, 1, number)
        assert found == [number]
    assert (store.reads, len(store)) == (0, 1)
    forget_all()
    for keys in ((1, 7), (2, 6)):
        assert run(stored, store, *keys)[1] == []
    assert store.reads == 1


def test_a_step_without_rows_reads_and_writes_no_filter() -> None:
    (step, run), store = filters(limit=2), CountingStore()
    stored, _ = run(None, store, 1)
    stored, _ = run(stored, store, 2)
    forget_all()
    after, frame = step(stored, [NOTHING], store=store)
    assert (after, store.reads) == (None, 0)
    assert metrics(step, frame)["state_rows"] == 2  # a filter, and an identity beside it


def test_a_segment_that_another_attempt_wrote_is_read() -> None:
    """A failed attempt of a micro-batch has written another one of the same number."""
    (_, run), store = filters(limit=2), CountingStore()
    run(None, CountingStore(), 1)
    of_the_failed_attempt = dict(retained._entries)
    forget_all()
    stored, _ = run(None, store, 2)
    forget_all()
    retained._entries.update(of_the_failed_attempt)
    assert run(stored, store, 1)[1] == [1]
    assert store.reads == 1


def test_a_worker_releases_a_filter_that_was_written_again() -> None:
    (step, run), store = filters(limit=1), CountingStore()
    stored = None
    for number in range(6):
        stored, _ = run(stored, store, number)
    there = {key[2] for key in retained._entries if key[:2] == (step.plan, 0)}
    assert there == {0, *store}
