"""The engine of a stream: the same rows by either, named in plan and metrics, fixed by the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamops import aggregates as agg
from streamops import windows
from streamops.testing import at, micro_batches, replay
from streamops.testing.rows import assert_rows
from streamops.testing.streaming import run_query

pytestmark = pytest.mark.spark

FEW = "native: engine='auto', and expected_keys=2 is at most 1000"
UNKNOWN = "kernel: engine='auto' without expected_keys"
COUNTS = windows.tumbling(
    "10 seconds",
    time="ts",
    by="k",
    agg={"n": agg.count(), "total": agg.sum("v")},
    delay="5 seconds",
).options(shards=2)


def rows(*events: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [{"k": k, "ts": at(seconds), "v": v} for k, seconds, v in events]


# Out of order, and a row behind the watermark whose window is closed (a at 3 s).
SCRIPT = [
    rows(("a", 1, 1), ("b", 2, 2), ("a", 14, 3)),
    rows(("b", 31, 4), ("a", 12, 5)),
    rows(("a", 3, 6), ("b", 33, 7)),
    rows(("a", 52, 8)),
    rows(("b", 90, 9)),
]
FIRST = 3


@pytest.mark.parametrize(
    ("first", "then", "pinned"), [(2, None, "native"), (None, 2, "kernel")], ids=str
)
def test_the_engine_is_named_and_fixed_by_the_checkpoint_and_rows_do_not_depend_on_it(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    first: int | None,
    then: int | None,
    pinned: Any,
) -> None:
    def run(operator: Any, batches: list[Any]) -> list[Any]:
        source = micro_batches(spark, batches, directory=tmp_path / "input", source="files")
        return run_query(source.transform(operator), tmp_path, 300)

    choices = {2: FEW, None: UNKNOWN}
    chosen, other = (COUNTS.options(expected_keys=keys) for keys in (first, then))
    source = micro_batches(spark, SCRIPT, directory=tmp_path / "plan", source="files")
    source.transform(chosen).explain(extended=True)
    assert f"windows.tumbling by {choices[first]}`" in capsys.readouterr().out

    before = run(chosen, SCRIPT[:FIRST])
    engines = [progress.observedMetrics["tumbling"]["engine"] for *_, progress in before]
    assert set(engines) == {choices[first]}

    with pytest.raises(StreamingQueryException) as refused:
        run(other, SCRIPT[FIRST:])
    message = str(refused.value)
    assert "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA" in message
    # The remedy is the engine of the checkpoint, by name. The micro-batches that failed follow.
    after = run(other.options(engine=pinned), [])
    engines = [progress.observedMetrics["tumbling"]["engine"] for *_, progress in after]
    assert set(engines) == {f"{pinned}: engine={pinned!r}"}

    emitted = [table for _, table, _ in [*before, *after]]
    expected = [row for result in replay(COUNTS, SCRIPT, flush=False) for row in result.rows]
    assert len(expected) == 5
    assert_rows(pa.concat_tables(emitted).to_pylist(), expected)
