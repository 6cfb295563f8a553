"""Operators with two inputs on Spark, with both state APIs: the results equal those of a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamops.testing import assert_rows, at, stream
from streamops.testing.replaying import Replay
from tests.spark.pair_cores import earlier, tally

pytestmark = pytest.mark.spark

APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
INSTANT = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("k", pa.string()), ("ts", INSTANT), ("m", pa.map_(pa.string(), pa.int64()))])
RIGHT = pa.schema([("key", pa.string()), ("at", INSTANT)])
BOTH = (LEFT, RIGHT)


def left(key: str | None, seconds: float | None, **m: int) -> dict[str, Any]:
    return {"k": key, "ts": None if seconds is None else at(seconds), "m": m or None}


def right(key: str | None, seconds: float | None) -> dict[str, Any]:
    return {"key": key, "at": None if seconds is None else at(seconds)}


# The watermark does not advance before batch 2. Null times, null keys; late rows in batch 4.
SCRIPT: list[Any] = [
    ([left("a", 10, one=1), left("b", 11), left(None, 12)], None),
    ([left("a", 70), left("a", None)], None),
    (None, [right("a", 10), right("b", 12), right("a", 40), right(None, 3)]),
    ([left("b", 35)], [right("a", 65), right("a", 30), right("b", None)]),
    ([left("c", 20, two=2), left("b", 90)], [right("a", 21), right("c", 95)]),
]
MORE: list[Any] = [
    ([left("a", 200)], None),
    ([left("a", 20)], [right("a", 150)]),
]


def same(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert (one.batch, one.watermark, one.counts) == (
            other.batch,
            other.watermark,
            other.counts,
        )
        assert one.state_rows == other.state_rows


@pytest.mark.parametrize("api", APIS)
def test_a_stream_with_event_time_equals_its_replay_also_after_a_restart(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    pair = earlier(delay=("5 seconds", "20 seconds"), shards=3, state_api=api)
    replayed = Replay(pair, BOTH)
    first = stream(spark, pair, SCRIPT, schema=BOTH, directory=tmp_path)
    same(first, replayed.run(SCRIPT))
    assert [result.watermark for result in first] == [None, None, None, at(20), at(45), at(75)]
    assert sum(result.counts.too_late for result in first if result.counts) > 0
    assert {row["reason"] for result in first for row in result.late_rows} == {
        "null_time",
        "too_late",
    }
    # The checkpoint stores the minimum of both watermarks only.
    again = stream(spark, pair, MORE, schema=BOTH, directory=tmp_path)
    same(again, replayed.run(MORE))
    assert [result.watermark for result in again] == [at(75), at(75), at(130)]
    other = earlier(delay=("5 seconds", "20 seconds"), shards=3, state_api=api, word="other")
    with pytest.raises(StreamingQueryException, match="STATE_PARAMETERS"):
        stream(spark, other, MORE[:1], schema=BOTH, directory=tmp_path)


@pytest.mark.parametrize("api", APIS)
def test_a_stream_without_event_time_equals_its_replay_also_after_a_restart(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    pair = tally(shards=3, state_api=api)
    replayed = Replay(pair, BOTH)
    first = stream(spark, pair, SCRIPT, schema=BOTH, directory=tmp_path)
    same(first, replayed.run(SCRIPT))
    again = stream(spark, pair, MORE, schema=BOTH, directory=tmp_path)
    same(again, replayed.run(MORE))
    assert len(again) == len(MORE)
    with pytest.raises(StreamingQueryException, match="STATE_SHARDS"):
        stream(spark, tally(shards=4, state_api=api), MORE[1:], schema=BOTH, directory=tmp_path)
