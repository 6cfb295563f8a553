"""Stored queries on Spark: streams on both state APIs, batches, chains, side output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import search, split_side_output, windows
from streamops.kernel.lateness import late_field
from streamops.spark.columns import spark_schema
from streamops.testing import assert_rows, at, micro_batches, replay, stream
from streamops.testing.results import records
from streamops.testing.streaming import run_query

pytestmark = pytest.mark.spark

APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
DOCUMENTS = pa.schema(
    [
        ("ti`t.le", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("price", pa.float64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
QUERIES = pa.schema(
    [
        ("id", pa.int64()),
        ("query", pa.string()),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
        ("note", pa.list_(pa.string())),
    ]
)
BOTH = (DOCUMENTS, QUERIES)
ARGUMENTS: dict[str, Any] = {
    "text": "ti`t.le",
    "fields": "price",
    "sequence": "lsn",
    "horizon": 100,
    "rejected": "route",
}


def document(title: str | None, price: float | None = 1.0, second: float = 0) -> dict[str, Any]:
    return {"ti`t.le": title, "ts": at(second), "price": price, "tags": {"n": 1}}


def saved(id: int | None, query: str | None, lsn: int, change: str = "insert") -> dict[str, Any]:
    return {"id": id, "query": query, "lsn": lsn, "_change_type": change, "note": ["n"]}


SCRIPT: list[Any] = [
    (
        [document("Été in Oslo"), document("b c", 5.0)],
        [saved(1, "été", 1), saved(2, '"b c" AND price:>2', 1), saved(3, "-oslo", 1)],
    ),
    ([document("oslo", None)], [saved(3, "(", 2), saved(1, "os*", 2), saved(None, "x", 9)]),
    ([document("b c", 5.0)], None),
    (None, [saved(2, None, 5, "delete")]),
]
MORE: list[Any] = [([document("b c", 5.0), document(None)], [saved(2, "b", 4)])]


@pytest.mark.parametrize("api", APIS)
def test_a_stream_equals_its_replay_also_after_a_restart(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    operator = search.match(None, **ARGUMENTS).options(shards=3, state_api=api)
    got = [
        result
        for part in (SCRIPT, MORE)
        for result in stream(spark, operator, part, schema=BOTH, directory=tmp_path)
    ]
    expected = replay(operator, [*SCRIPT, *MORE], schema=BOTH, restart=True)
    for one, other in zip(got, expected, strict=True):
        assert_rows(one.table, other.table)
        assert_rows(one.late, other.late)
        assert (one.counts, one.state_rows) == (other.counts, other.state_rows)
    found = [sorted(r["query_id"] for r in records(one.table) if r["query_id"]) for one in got]
    assert found == [[1, 2, 3], [1], [2, 3], [], [3, 3]]
    other = search.match(None, **ARGUMENTS | {"default_operator": "and"})
    with pytest.raises(StreamingQueryException) as caught:
        stream(
            spark,
            other.options(shards=3, state_api=api),
            [SCRIPT[0]],
            schema=BOTH,
            directory=tmp_path,
        )
    assert "default_operator" in str(caught.value)


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema), spark_schema(schema))


def test_a_batch_is_matched_with_the_final_queries_and_split(spark: SparkSession) -> None:
    documents = frame_of(spark, [document("oslo"), document("b")], DOCUMENTS)
    queries = frame_of(
        spark,
        [saved(1, "b", 2), saved(1, "oslo", 1), saved(2, "b*", 1), saved(3, "a~", 1)],
        QUERIES,
    )
    result = documents.transform(search.match(queries, **ARGUMENTS).options(shards=2)).persist()
    matches, _, rejected = split_side_output(result)
    found = sorted((row["ti`t.le"], row["query_id"]) for row in matches.collect())
    assert found == [("b", 1), ("b", 2)]
    (row,) = rejected.collect()
    assert (row["reason"], row["position"], row["row"]["query"]) == ("invalid_query", 0, "a~")
    result.unpersist()


def test_a_column_late_of_the_documents_is_a_column_like_others(spark: SparkSession) -> None:
    schema = pa.schema([("k", pa.string()), late_field(pa.schema([("k", pa.string())]))])
    documents = frame_of(spark, [{"k": "b", "late": None}], schema)
    queries = frame_of(spark, [saved(1, "b", 1)], QUERIES)
    (row,) = documents.transform(
        search.match(queries, text="k", sequence="lsn", horizon=9)
    ).collect()
    assert (row["k"], row["late"], row["query_id"]) == ("b", None, 1)


TIMED: dict[str, Any] = {"time": "ts", "by": "k", "delay": "0 seconds"}
EVENTS = [
    [{"k": "a", "ts": at(1)}, {"k": "a", "ts": at(2)}, {"k": "b", "ts": at(3)}],
    [{"k": "a", "ts": at(60)}],
    [{"k": "a", "ts": at(120)}],
]
QUERIES_OF_WINDOWS = [
    [{"id": 7, "query": "k:a AND n:>1", "lsn": 1}, {"id": 8, "query": "n:1", "lsn": 1}],
    [],
    [],
]


def test_results_of_windows_are_documents(spark: SparkSession, tmp_path: Path) -> None:
    events = micro_batches(spark, EVENTS, directory=tmp_path / "events")
    queries = micro_batches(spark, QUERIES_OF_WINDOWS, directory=tmp_path / "queries")
    counted = windows.tumbling("10 seconds", **TIMED, agg={"n": agg.count()})
    alerts = search.match(queries, text="k", fields="n", sequence="lsn", horizon=9)
    result = events.transform(counted).transform(alerts.options(shards=2))
    tables = [rows for _, rows, _ in run_query(result, tmp_path / "query", 240)]
    found = [(row["query_id"], row["k"], row["n"]) for table in tables for row in records(table)]
    assert sorted(found) == [(7, "a", 2), (8, "a", 1), (8, "b", 1)]


def test_matches_are_counted_in_windows(spark: SparkSession, tmp_path: Path) -> None:
    events = micro_batches(spark, EVENTS, directory=tmp_path / "events")
    saved_queries = [[{"id": 7, "query": "a", "lsn": 1}, {"id": 8, "query": "a OR b", "lsn": 1}]]
    queries = micro_batches(spark, [*saved_queries, [], []], directory=tmp_path / "queries")
    alerts = search.match(queries, text="k", sequence="lsn", horizon=9)
    per_query = windows.tumbling(
        "10 seconds", **TIMED | {"by": "query_id"}, agg={"alerts": agg.count()}
    )
    result = events.transform(alerts.options(shards=2)).transform(per_query)
    tables = [rows for _, rows, _ in run_query(result, tmp_path / "query", 240)]
    found = [(r["query_id"], r["window_start"], r["alerts"]) for t in tables for r in records(t)]
    assert sorted(found) == [(7, at(0), 2), (7, at(60), 1), (8, at(0), 3), (8, at(60), 1)]
