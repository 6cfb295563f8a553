"""Stored queries as of event time on Spark: streams on both state APIs, batches, windows around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import search, split_side_output, windows
from streamops.spark.columns import spark_schema
from streamops.testing import Replay, assert_rows, at, micro_batches, stream
from streamops.testing.results import records
from streamops.testing.streaming import run_query

pytestmark = pytest.mark.spark

APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
TS = pa.timestamp("us", tz="UTC")
DOCUMENTS = pa.schema(
    [("ti`t.le", pa.string()), ("ts", TS), ("tags", pa.map_(pa.string(), pa.int64()))]
)
QUERIES = pa.schema(
    [
        ("id", pa.int64()),
        ("query", pa.string()),
        ("since", TS),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
        ("note", pa.list_(pa.string())),
    ]
)
BOTH = (DOCUMENTS, QUERIES)
ARGUMENTS: dict[str, Any] = {
    "text": "ti`t.le",
    "as_of": "ts",
    "time": "since",
    "sequence": "lsn",
    "delay": "2 seconds",
    "rejected": "route",
}


def document(title: str | None, second: float | None) -> dict[str, Any]:
    return {"ti`t.le": title, "ts": None if second is None else at(second), "tags": {"n": 1}}


def saved(id: int, query: str | None, second: float, lsn: int = 1, change: str = "insert") -> Any:
    row = {"id": id, "query": query, "since": at(second), "lsn": lsn}
    return row | {"_change_type": change, "note": ["n"]}


SCRIPT: list[Any] = [
    ([document("Été in Oslo", 5), document("oslo", 1)], [saved(1, "oslo", 2), saved(2, "été", 9)]),
    ([document("oslo", 12), document("x", None)], [saved(2, "été", 4), saved(3, "os*", 0)]),
    ([document("oslo", 20), document("oslo", 3)], [saved(3, None, 12, 2, "delete"), saved(4, "(", 1)]),
]  # fmt: skip
MORE: list[Any] = [
    ([document("oslo", 40)], [saved(1, "bergen", 19, 2), saved(5, "oslo", 45)]),
    ([document("oslo", 60)], [saved(9, "oslo", 61)]),
]


def seconds(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Seconds of the document's time, and query, of the matches."""
    matched = [row for row in found if row.get("late") is None]
    return sorted((int((row["ts"] - at(0)).total_seconds()), row["query_id"]) for row in matched)


def reasons(late: list[dict[str, Any]]) -> list[str]:
    return sorted(row["reason"] for row in late)


@pytest.mark.parametrize("api", APIS)
def test_a_stream_equals_its_replay_also_after_a_restart(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    operator = search.match(None, **ARGUMENTS).options(shards=3, state_api=api)
    query = Replay(operator, BOTH)
    found: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    for part in (SCRIPT, MORE):
        got = stream(spark, operator, part, schema=BOTH, directory=tmp_path)
        for one, other in zip(got, query.run(part), strict=True):
            assert_rows(one.table, other.table)
            assert_rows(one.late, other.late)
            assert (one.counts, one.state_rows) == (other.counts, other.state_rows)
            assert one.watermark == other.watermark
            found += records(one.table)
            late += one.late_rows
    assert seconds(found) == [(1, 3), (5, 1), (5, 2), (5, 3), (12, 1)]
    # Late by the watermark of 3 seconds; and what waits is not matched without the next rows.
    assert reasons(late) == ["invalid_query", "null_time", "too_late"]


def frames_of(spark: SparkSession) -> list[DataFrame]:
    frames = []
    for side, schema in enumerate(BOTH):
        rows = [row for batch in (*SCRIPT, *MORE) for row in batch[side]]
        table = pa.Table.from_pylist(rows, schema=schema)
        frames.append(spark.createDataFrame(table, spark_schema(schema)))
    return frames


def test_a_batch_has_the_queries_of_the_time_of_each_document(spark: SparkSession) -> None:
    documents, queries = frames_of(spark)
    result = documents.transform(search.match(queries, **ARGUMENTS).options(shards=3)).persist()
    parts = [part.toArrow().to_pylist() for part in split_side_output(result)]
    # Nothing is late in a batch, and nothing waits.
    assert seconds(parts[0]) == [(1, 3), (3, 1), (3, 3), (5, 1), (5, 2), (5, 3), (12, 1), (60, 5)]
    (without_time,), (invalid,) = parts[1:]
    assert (without_time["reason"], without_time["row"]["ti`t.le"]) == ("null_time", "x")
    assert without_time["lateness"] is None
    assert (invalid["reason"], invalid["row"]["id"]) == ("invalid_query", 4)
    result.unpersist()


def test_other_micro_batches_give_the_same_matches(spark: SparkSession, tmp_path: Path) -> None:
    patient = search.match(None, **ARGUMENTS | {"delay": "30 seconds"}).options(shards=2)
    batches = [*SCRIPT, *MORE]
    everything = tuple([row for batch in batches for row in batch[side]] for side in (0, 1))
    closing = ([document("x", 200)], [saved(7, "x", 201)])
    found = []
    for number, script in enumerate(([*batches, closing], [everything, closing])):
        directory = tmp_path / str(number)
        results = stream(spark, patient, script, schema=BOTH, directory=directory)
        found.append(seconds([row for one in results for row in records(one.table)]))
    assert found[0] == found[1]
    assert found[0] == [(1, 3), (3, 1), (3, 3), (5, 1), (5, 2), (5, 3), (12, 1), (60, 5)]


TIMED: dict[str, Any] = {"time": "ts", "by": "k", "agg": {"n": agg.count()}}
EVENTS = [
    [{"k": "a", "ts": at(1)}, {"k": "a", "ts": at(2)}, {"k": "b", "ts": at(3)}],
    [{"k": "a", "ts": at(12)}, {"k": "b", "ts": at(25)}],
    [{"k": "a", "ts": at(120)}],
]
QUERIES_OF_WINDOWS: list[Any] = [
    [saved(7, "k:a AND n:>1", 0), saved(8, "n:1", 15)],
    [saved(7, "k:b", 20, 2)],
    [saved(9, "k:a", 119)],
]


def test_windows_before_and_behind_use_one_watermark(spark: SparkSession, tmp_path: Path) -> None:
    events = micro_batches(spark, EVENTS, directory=tmp_path / "events")
    queries = micro_batches(
        spark, QUERIES_OF_WINDOWS, schema=QUERIES, directory=tmp_path / "queries"
    )
    counted = windows.tumbling("10 seconds", delay="0 seconds", **TIMED)
    alerts = search.match(
        queries,
        fields=["k", "n"],
        as_of="window_end",
        time="since",
        sequence="lsn",
        delay=(None, "0 seconds"),
    )
    per_query = windows.tumbling(
        "1 minute", time="window_end", by="query_id", agg={"alerts": agg.count()}
    )
    result = events.transform(counted).transform(alerts.options(shards=2)).transform(per_query)
    tables = [rows for _, rows, _ in run_query(result, tmp_path / "query", 240)]
    found = [(r["query_id"], r["window_start"], r["alerts"]) for t in tables for r in records(t)]
    # At 10, two of a: query 7. At 20, one of a: query 8, as query 7 is that of b now. At 30, one of b.
    assert sorted(found) == [(7, at(0), 2), (8, at(0), 2)]


def test_a_frame_brings_its_watermark(spark: SparkSession, tmp_path: Path) -> None:
    batches = [*SCRIPT, *MORE]
    frames = [
        micro_batches(
            spark,
            [batch[side] for batch in batches],
            schema=schema,
            directory=tmp_path / str(side),
        ).withWatermark(("ts", "since")[side], "2 seconds")
        for side, schema in enumerate(BOTH)
    ]
    operator = search.match(frames[1], **ARGUMENTS | {"delay": None}).options(shards=2)
    tables = [rows for _, rows, _ in run_query(frames[0].transform(operator), tmp_path / "q", 240)]
    found = [row for table in tables for row in records(table)]
    own = search.match(None, **ARGUMENTS).options(shards=2)
    expected = [row for result in Replay(own, BOTH).run(batches) for row in records(result.table)]
    assert seconds(found) == seconds(expected) != []
