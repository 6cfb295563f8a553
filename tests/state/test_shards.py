"""Stored shards, decoded and encoded again, without a state store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from streamops.errors import CheckpointError, StateFormatError
from streamops.kernel.codec import read_stored
from streamops.kernel.core import State, StateFormat
from streamops.kernel.operator import Core, Table
from streamops.kernel.placement import Identity, Placement, Tables
from streamops.spark.step import Stored
from streamops.state import operators
from streamops.state.shards import (
    OperatorState,
    StoredShard,
    convert,
    decode_shards,
    encode_shards,
    find_difference,
    redistribute,
)
from streamops.windows.core.grid import GridCore

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


def test_shards_are_encoded_as_they_were_and_decoded_by_the_next_step() -> None:
    rows = [shard(0), shard(1)]
    state = decode_shards(rows)
    assert (state.name, state.shards, state.deadline, state.timer) == ("windows.grid", 2, 7, 9)
    assert state.is_current
    found = encode_shards(state, {0: 0, 1: 0})
    assert [row.stored.fingerprint for row in found] == [~row.stored.fingerprint for row in rows]
    assert [row.stored.blob for row in found] == [row.stored.blob for row in rows]


def test_the_header_has_the_new_number_of_shards() -> None:
    before = decode_shards([shard(0), shard(1)])
    after = redistribute(before, 5)
    assert not find_difference(after, before)
    rows = encode_shards(after, dict.fromkeys(range(5), 0))
    assert [row.shard for row in rows] == [0, 1, 2, 3, 4]
    assert {read_stored(row.stored.frame).shards for row in rows} == {5}
    assert {(row.stored.watermark, row.stored.deadline, row.timer) for row in rows} == {(5, 7, 9)}
    assert sum(row.stored.entries for row in rows) == 3
    assert find_difference(after, decode_shards([shard(1), shard(2, shards=3)][:1]))


def test_a_shard_without_a_state_is_missing() -> None:
    state = decode_shards([shard(1, shards=4)])
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
        shard(1, format=StateFormat("windows.grid", 3)),
    ],
    ids=["shards", "watermark", "no watermark", "timer", "number", "version"],
)
def test_shards_that_do_not_belong_together_are_refused(other: StoredShard) -> None:
    with pytest.raises(CheckpointError) as caught:
        decode_shards([shard(0), other])
    assert caught.value.code == "CHECKPOINT_INCONSISTENT"


def test_unknown_layouts_are_refused() -> None:
    with pytest.raises(StateFormatError) as caught:
        decode_shards([shard(0, format=StateFormat("windows.other", 1))])
    assert caught.value.code == "STATE_VERSION"
    assert "windows.grid" in str(caught.value.expected)


def test_versions_without_a_conversion_are_refused() -> None:
    for version in (0, 3):
        state = decode_shards([shard(0, format=StateFormat("windows.grid", version))])
        assert not state.is_current
        with pytest.raises(StateFormatError) as caught:
            convert(state)
        assert caught.value.code == "STATE_VERSION"


class Counts(Core[Any]):
    """A core whose layout has changed twice: rows were once named by `word`, and had no `count`."""

    STATE = StateFormat("test.counts", 3)
    TABLES: ClassVar = {"rows": Table(lambda spec: None)}

    @staticmethod
    def rename(identity: Identity, tables: Tables) -> tuple[Identity, Tables]:
        return {"by": identity["word"]}, {"rows": tables["rows"].rename_columns(["key.0"])}

    @staticmethod
    def count(identity: Identity, tables: Tables) -> tuple[Identity, Tables]:
        rows = tables["rows"]
        return identity, {"rows": rows.append_column("count", pa.array([1] * len(rows)))}

    PLACEMENT = Placement(upgrades={1: rename, 2: count})


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., OperatorState]:
    """The core among those of the library, and two stored shards of it, by the version."""
    monkeypatch.setitem(operators.FORMATS, "test.counts", Counts.STATE)  # type: ignore[arg-type]
    monkeypatch.setitem(operators.PLACEMENTS, "test.counts", Counts().placement)  # type: ignore[arg-type]

    def stored(version: int, *texts: str) -> OperatorState:
        key, name = ("word", "word") if version < 2 else ("by", "key.0")
        header = StateFormat("test.counts", version), {key: [["w", "string"]]}, 2
        rows = [
            StoredShard(
                number, Stored.of(State(5, {"rows": pa.table({name: [text]})}), header), 9, 0
            )
            for number, text in enumerate(texts)
        ]
        return decode_shards(rows)

    return stored


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_version_is_converted_one_version_at_a_time(
    counts: Callable[..., OperatorState], version: int
) -> None:
    old = counts(version, "a", "b")
    assert not old.is_current
    new = convert(old)
    assert new.is_current
    assert (new.identity, new.shards, new.timer) == ({"by": [["w", "string"]]}, 2, 9)
    for number, text in enumerate(["a", "b"]):
        assert new.states[number].watermark == 5
        assert new.states[number].tables["rows"].to_pylist() == [{"key.0": text, "count": 1}]
    again = decode_shards(encode_shards(new, {0: 0, 1: 0}))
    assert not find_difference(again, new)
    assert read_stored(encode_shards(new, {0: 0, 1: 0})[0].stored.frame).version == 3


@pytest.mark.parametrize("version", [0, 4])
def test_a_version_without_a_conversion_names_those_that_have_one(
    counts: Callable[..., OperatorState], version: int
) -> None:
    with pytest.raises(StateFormatError) as caught:
        convert(counts(version, "a"))
    assert caught.value.code == "STATE_VERSION"
    assert caught.value.got == f"test.counts version {version}"
    assert caught.value.expected == "test.counts version 3, or 1, or 2"


def test_no_operator_has_an_older_version_before_the_first_release() -> None:
    for name, format_ in operators.FORMATS.items():
        assert (format_.version, dict(operators.PLACEMENTS[name].upgrades)) == (1, {}), name
