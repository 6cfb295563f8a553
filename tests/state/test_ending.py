"""What is pending in stored shards is what a replay flushes. No Spark."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.errors import CheckpointError
from streamops.kernel import segments
from streamops.spark.step import Stored
from streamops.state.ending import _finish
from streamops.state.shards import StoredShard, read_header, read_tables
from streamops.testing.batches import infer_schema
from streamops.testing.replaying import Replay
from tests.laws.test_changed_aggregates_laws import restart, segments_of
from tests.state.test_ending_spark import OPERATORS, script

LAST = windows.tumbling("1 hour", time="ts", agg={"n": agg.count()}, delay="5 seconds")


def finished(query: Replay) -> list[dict[str, Any]]:
    """The rows that are pending in the shards of the only operator, as they are stored."""
    (stage,) = query._stages
    rows: list[dict[str, Any]] = []
    for shard, row in stage.stored.items():
        stored = Stored(*row)
        parts = [{"number": n, "blob": blob} for n, blob in stage.stores[shard].items()]
        fields = {"watermark": stored.watermark, "blob": stored.blob, "segments": parts}
        rows += stage._build_rows(_finish(stage.run_step, {"shard": shard, **fields})).to_pylist()
    return rows


@pytest.mark.parametrize("operator", [*OPERATORS.values(), LAST], ids=[*OPERATORS, "last"])
@given(size=st.integers(1, 160))
def test_what_is_pending_is_what_a_replay_flushes(operator: Any, size: int) -> None:
    rows = [row for batch in script() for row in batch]
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    query = Replay(operator, infer_schema(batches, None))
    query.run(batches)
    found, expected = finished(query), query.flush().rows
    assert expected
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("few", [True, False])
def test_what_is_pending_of_other_aggregates_is_what_a_replay_flushes(few: bool) -> None:
    common: dict[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}
    before = windows.tumbling("1 hour", **common, agg={"n": agg.count(), "v": agg.sum("v")})
    after = windows.tumbling("1 hour", **common, agg={"v": agg.sum("v"), "most": agg.max("v")})
    batches = script()
    with segments_of(1 if few else segments.LIMIT):
        query = Replay(before, infer_schema(batches, None))
        query.run(batches[:2])
        restart(query, after)
        for rest in ([], batches[2:]):
            query.run(rest)
            found, expected = finished(query), query.flush().rows
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            assert {row["most"] for row in expected} == {None}
            assert sum(row["v"] for row in expected) == sum(
                row["v"] for batch in (batches[:2] + rest) for row in batch
            )


def test_segments_of_other_aggregates_are_not_mixed_with_the_new_ones() -> None:
    common: dict[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}
    before = windows.tumbling("1 hour", **common, agg={"n": agg.count(), "v": agg.sum("v")})
    after = windows.tumbling("1 hour", **common, agg={"v": agg.sum("v"), "n": agg.count()})
    batches = script()
    with segments_of(1):
        query = Replay(before, infer_schema(batches, None))
        query.run(batches)
        restart(query, after)
        query.run([[]])
    (stage,) = query._stages
    mixed = 0
    for shard, row in stage.stored.items():
        frame = read_header(StoredShard(shard, Stored(*row), None, 0))
        if len(stage.stores[shard]):
            mixed += 1
            with pytest.raises(CheckpointError, match="CHECKPOINT_INCONSISTENT"):
                read_tables(frame, dict(stage.stores[shard]))
    assert mixed
