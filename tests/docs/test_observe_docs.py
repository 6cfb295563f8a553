"""The alarms on data of docs/observe.md, on Spark: over a restart, and after a crash while they are sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops import sinks
from streamops.kernel.versions import has_transform
from streamops.testing import at, micro_batches, replay
from tests.docs.test_readme import ROOT, examples

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_transform(), reason="the alarms follow windows: a chain"),
]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the examples of the page define."""
    namespace: dict[str, Any] = {}
    for example in examples(ROOT / "docs" / "observe.md"):
        if not example.spark:
            example.run(namespace)
    return namespace


def test_an_alarm_is_raised_once_and_ended_once_over_a_restart_and_a_crash(
    spark: SparkSession, tmp_path: Path, page: dict[str, Any]
) -> None:
    chain = [page["per_minute"], page["band"], page["page_alarms"]]
    minutes = [(0, 6), (6, 12), (12, 18)]
    script = [
        [row for row in page["views"] if at(60 * begin) <= row["ts"] < at(60 * end)]
        for begin, end in minutes
    ]
    expected = [row for result in replay(chain, script) for row in result.rows]
    assert [row["alarm"] for row in expected] == ["raised", "ended"]

    sent: list[str] = []
    crashes = iter([True])
    page["notify"] = lambda text, id: sent.append(f"{text}, {id}")
    table = sinks.parquet(f"{tmp_path}/alarms")

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        table(batch, batch_id)
        page["send"](batch, batch_id)
        if sent and next(crashes, False):
            msg = "crash"
            raise RuntimeError(msg)

    def run(batches: list[Any]) -> None:
        frame = micro_batches(spark, batches, directory=tmp_path)
        for operator in chain:
            frame = frame.transform(operator.options(shards=1))
        query = (
            frame.writeStream.queryName("alarms")
            .foreachBatch(write)
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(200)

    run(script[:1])
    assert not sent
    with pytest.raises(StreamingQueryException, match="crash"):
        run(script[1:])
    run([])
    written = sinks.read_parquet(f"{tmp_path}/alarms", spark=spark).orderBy("window_end")
    assert written.toArrow().to_pylist() == [
        {name: row[name] for name in written.columns} for row in expected
    ]
    # The micro-batch of the crash was sent twice, equal in every column. pandas has instants in the zone of the session.
    assert len(sent) > len(expected)
    assert list(dict.fromkeys(sent)) == [
        f"home {row['alarm']}, home {row['window_end']:%Y-%m-%d %H:%M:%S}" for row in expected
    ]
