"""Stored shards, decoded and encoded again, without a state store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from streamops.changes.core.aggregate import AggregateCore
from streamops.errors import CheckpointError, StateFormatError
from streamops.kernel.codec import read_stored
from streamops.kernel.core import State, StateFormat
from streamops.spark.step import Stored
from streamops.state.shards import (
    OperatorState,
    StoredShard,
    convert,
    decode_shards,
    encode_shards,
    redistribute,
    same_state,
)
from streamops.windows.core.grid import GridCore
from tests.golden import aggregate_states
from tests.golden.states import FOLDER

FORMAT, IDENTITY = GridCore.STATE, {"size": 10, "by": [["k", "string"]]}
PANES = pa.schema([("key.0", pa.string()), ("pane", pa.int64())])


def shard(
    number: int, *, shards: int = 2, watermark: int | None = 5, **changes: object
) -> StoredShard:
    keys = pa.array([["b", "c"], ["a"], []][number % 3], pa.string())
    panes = pa.table([keys, pa.array(range(len(keys)), pa.int64())], schema=PANES)
    format_ = changes.pop("format", FORMAT)
    state = State(watermark, {"panes": panes})
    stored = Stored.of(state, (format_, IDENTITY, shards), deadline=7 + number)  # type: ignore[arg-type]
    return dataclasses.replace(StoredShard(number, stored, 9, 0), **changes)  # type: ignore[arg-type]


def test_shards_are_encoded_as_they_were() -> None:
    rows = [shard(0), shard(1)]
    state = decode_shards(rows, where="test")
    assert (state.name, state.shards, state.deadline, state.timer) == ("windows.fixed", 2, 7, 9)
    assert state.is_current
    found = encode_shards(state, {0: 0, 1: 0})
    assert [row.stored.fingerprint for row in found] == [row.stored.fingerprint for row in rows]
    assert [row.stored.blob for row in found] == [row.stored.blob for row in rows]


def test_the_header_has_the_new_number_of_shards() -> None:
    before = decode_shards([shard(0), shard(1)], where="test")
    after = redistribute(before, 5)
    assert same_state(after, before)
    rows = encode_shards(after, dict.fromkeys(range(5), 0))
    assert [row.shard for row in rows] == [0, 1, 2, 3, 4]
    assert {read_stored(row.stored.frame, where="test").shards for row in rows} == {5}
    assert {(row.stored.watermark, row.stored.deadline, row.timer) for row in rows} == {(5, 7, 9)}
    assert sum(row.stored.entries for row in rows) == 3
    assert not same_state(after, decode_shards([shard(1), shard(2, shards=3)][:1], where="test"))


def test_a_shard_without_a_state_is_missing() -> None:
    state = decode_shards([shard(1, shards=4)], where="test")
    assert [*state.states] == [1]
    assert sum(of.rows for of in redistribute(state, 2).states.values()) == 1


@pytest.mark.parametrize(
    "other",
    [
        shard(1, shards=3),
        shard(1, watermark=6),
        shard(1, watermark=None),
        shard(1, timer=10),
        shard(5),
        shard(1, format=StateFormat("windows.fixed", 3)),
    ],
    ids=["shards", "watermark", "no watermark", "timer", "number", "version"],
)
def test_shards_that_do_not_belong_together_are_refused(other: StoredShard) -> None:
    with pytest.raises(CheckpointError) as caught:
        decode_shards([shard(0), other], where="test")
    assert caught.value.code == "CHECKPOINT_INCONSISTENT"


def test_unknown_layouts_are_refused() -> None:
    with pytest.raises(StateFormatError) as caught:
        decode_shards([shard(0, format=StateFormat("windows.other", 1))], where="test")
    assert caught.value.code == "STATE_VERSION"
    assert "windows.fixed" in str(caught.value.expected)


def test_versions_without_a_conversion_are_refused() -> None:
    for version in (0, 3):
        state = decode_shards(
            [shard(0, format=StateFormat("windows.fixed", version))], where="test"
        )
        assert not state.is_current
        with pytest.raises(StateFormatError) as caught:
            convert(state, where="test")
        assert caught.value.code == "STATE_VERSION"


@pytest.mark.parametrize("history", aggregate_states.HISTORIES)
def test_version_1_of_changes_aggregate_is_converted(history: str) -> None:
    old, new = (
        stored_state(FOLDER / f"changes.aggregate-v{version}-{history}.bin") for version in (1, 2)
    )
    assert not old.is_current
    converted = convert(old, where="test")
    assert converted.format == AggregateCore.STATE
    assert converted.identity == old.identity
    if history == "totals":  # the other history has another aggregate since
        assert same_state(converted, new)
        AggregateCore().check(aggregate_states.spec_of(history), converted.states[0])


def test_version_1_of_changes_aggregate_with_columns_in_unknown_order_is_refused() -> None:
    new = stored_state(FOLDER / "changes.aggregate-v2-rows.bin")
    old = dataclasses.replace(new, format=StateFormat("changes.aggregate", 1))
    with pytest.raises(StateFormatError) as caught:
        convert(old, where="test")
    assert caught.value.code == "STATE_VERSION"


def stored_state(file: Path) -> OperatorState:
    found = read_stored(file.read_bytes(), where=file.name)
    states = {0: State(None, found.tables())}
    return OperatorState(
        found.frame, found.format, found.identity, found.shards, states, None, None
    )
