"""What is pending in stored shards is what a replay flushes. No Spark."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.spark.step import Stored
from streamops.state.ending import _finish
from streamops.testing.batches import infer_schema
from streamops.testing.replaying import Replay
from tests.state.test_ending_spark import OPERATORS, script

LAST = windows.tumbling("1 hour", time="ts", agg={"n": agg.count()}, delay="5 seconds")


def finished(query: Replay) -> list[dict[str, Any]]:
    """The rows that are pending in the shards of the only operator, as they are stored."""
    (stage,) = query._stages
    rows: list[dict[str, Any]] = []
    for shard, row in stage.stored.items():
        stored = Stored(*row)
        fields = {"watermark": stored.watermark, "blob": stored.blob, "segments": None}
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
