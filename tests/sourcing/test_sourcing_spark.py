"""What only Spark can show of event sourcing: snapshots in files, errors of workers, and a state that grows."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import process, sourcing
from streamops.environment.settings import PARTITIONS
from streamops.errors import SpecError
from streamops.spark.columns import spark_schema
from streamops.testing import at, micro_batches
from streamops.testing.streaming import run_query
from tests.sourcing import wallets
from tests.sourcing.seats import COMMAND, change, reserve

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def one_partition(spark: SparkSession) -> Iterator[None]:
    """For a few rows, more tasks only take time."""
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, "1")
    yield
    spark.conf.set(PARTITIONS, str(before))


def wallet(spark: SparkSession, rows: list[tuple[Any, ...]], schema: Any) -> DataFrame:
    return spark.createDataFrame(rows, spark_schema(schema))


def test_a_snapshot_in_parquet_and_later_events_of_another_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    old = wallet(spark, [("a", 1, 150), ("b", 1, 99), ("a", 2, 50), ("c", 1, 1)], wallets.OLD)
    new = [("a", 3, 2.5, "USD"), ("c", 3, 1.0, "EUR"), ("c", 2, 1.0, "USD")]
    log = old.unionByName(wallet(spark, new, wallets.NEW), allowMissingColumns=True)
    folding: dict[str, Any] = {"by": "k", "upcast": wallets.upcast, **wallets.STATE}
    first = log.where("cents IS NOT NULL").transform(sourcing.fold(wallets.add, **folding))
    first.write.parquet(str(tmp_path / "snapshot"))

    snapshot = spark.read.parquet(str(tmp_path / "snapshot"))
    rest = log.where("version > 1")  # one of these events is part of the snapshot
    later = rest.transform(sourcing.fold(wallets.add, snapshot=snapshot, **folding))
    expected = [
        {"k": "a", "version": 3, "totals": {"EUR": 2.0, "USD": 2.5}},
        {"k": "b", "version": 1, "totals": {"EUR": 0.99}},
        {"k": "c", "version": 3, "totals": {"EUR": 1.01, "USD": 1.0}},
    ]
    whole = log.transform(sourcing.fold(wallets.add, **folding))
    for table in (whole, later):
        assert sorted((row.asDict() for row in table.collect()), key=lambda r: r["k"]) == expected


def test_errors_of_a_worker_have_their_code_and_no_value(spark: SparkSession) -> None:
    fold = sourcing.fold(wallets.add, by="k", **wallets.STATE)
    gap = wallet(spark, [("secret", 1, 1.0, "EUR"), ("secret", 3, 1.0, "EUR")], wallets.NEW)
    with pytest.raises(Exception, match="MALFORMED_LOG") as caught:
        gap.transform(fold).collect()
    assert "secret" not in str(caught.value)
    with pytest.raises(Exception, match=r"(?s)FUNCTION_RAISED.*TypeError at .*in add") as caught:
        wallet(spark, [("secret", 1, None, "EUR")], wallets.NEW).transform(fold).collect()
    assert "secret" not in str(caught.value)


def test_a_stream_is_refused_as_log_and_as_snapshot(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    log = wallet(spark, [], wallets.NEW)
    with pytest.raises(SpecError, match="STREAMING_FRAME"):
        stream.transform(sourcing.fold(wallets.add, by="k", **wallets.STATE))
    with pytest.raises(SpecError, match="STREAMING_FRAME"):
        log.transform(sourcing.fold(wallets.add, by="k", snapshot=stream, **wallets.STATE))


def test_keys_of_any_name_and_equal_values_are_one_entity_in_many_groups(
    spark: SparkSession,
) -> None:
    def count(state: Any, event: Any) -> Any:
        return state._replace(name=f"{state.name}{event.version}")

    fold: dict[str, Any] = {"by": ["a.b`", "x"], "state": "name string", "initial": {"name": ""}}
    names = "`a.b```: string COMMENT 'who', x: double, version: int"
    rows = [(key, x, n) for key in ("a", "b", None) for n, x in ((1, 0.0), (2, -0.0))]
    log = spark.createDataFrame([*rows, ("c", float("nan"), 1)], names)
    spark.conf.set(PARTITIONS, "7")
    for large in ("false", "true"):
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
        try:
            whole = log.transform(sourcing.fold(count, **fold).options(name="whole"))
            first = log.where("version = 1 AND NOT `a.b``` <=> 'b'")
            snapshot = first.transform(sourcing.fold(count, **fold))
            rest = log.where("version = 2 OR `a.b``` <=> 'b'")
            later = rest.transform(sourcing.fold(count, snapshot=snapshot, **fold))
            expected = {("a", 2, "12"), ("b", 2, "12"), (None, 2, "12"), ("c", 1, "1")}
            assert {(row[0], row[2], row[3]) for row in whole.collect()} == expected
            assert {(row[0], row[2], row[3]) for row in later.collect()} == expected
        finally:
            spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert whole.schema[0].metadata == {"comment": "who"}
    assert whole.schema.simpleString().endswith("x:double,version:bigint,name:string>")


# -- a state with one more field


def count_rows(key: Any, rows: Iterator[Any], state: Any) -> Iterator[tuple[Any, ...]]:
    """The number of rows so far."""
    for _ in rows:
        state.n += 1
        yield state.n, None


def count_more(key: Any, rows: Iterator[Any], state: Any) -> Iterator[tuple[Any, ...]]:
    """The number of rows so far, and of those since the field was added."""
    for _ in rows:
        state.n += 1
        state.since = (state.since or 0) + 1
        yield state.n, state.since


def reserve_more(state: Any, command: Any) -> Any:
    """A rejection shows the field that was added."""
    decided = reserve(state, command)
    if isinstance(decided, sourcing.Rejected):
        return sourcing.Rejected(f"{decided.reason}, {state.events} events")
    return decided


def change_more(state: Any, event: Any) -> Any:
    """The holder of the seat, and the number of events since the field was added."""
    return change(state, event)._replace(events=(state.events or 0) + 1)


def decide_and_count(commands: DataFrame, *, is_wider: bool) -> DataFrame:
    """Decisions, and the number of commands on both state APIs, in one query."""
    counting: dict[str, Any] = {"by": "k", "initial": {"n": 0}, "output": "n bigint, since bigint"}
    parameters: dict[str, Any] = {"by": "k", "command_id": "id", "time": "ts", "delay": "0 seconds"}
    parameters |= {"event": "type string, user string", "expected_version": "seen"}
    if is_wider:
        count = process.per_key(count_more, state="since bigint, n bigint", **counting)
        decide = sourcing.decide(
            reserve_more, change_more, state="events bigint, holder string", **parameters
        )
    else:
        count = process.per_key(count_rows, state="n bigint", **counting)
        decide = sourcing.decide(reserve, change, state="holder string", **parameters)
    operators = {
        "decide": decide,
        "transform": count.options(state_api="transformWithStateInPandas"),
        "apply": count.options(state_api="applyInPandasWithState"),
    }
    parts = [
        commands.transform(operator.options(name=name, shards=1)).select(
            F.lit(name).alias("name"), F.to_json(F.struct("*")).alias("row")
        )
        for name, operator in operators.items()
    ]
    return functools.reduce(DataFrame.unionByName, parts)


@pytest.mark.slow
def test_a_nullable_field_can_be_added_to_the_state_of_a_running_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(is_wider: bool, *rows: tuple[Any, ...]) -> dict[str, list[Any]]:
        batch = [dict(zip(COMMAND.names, row, strict=True)) for row in rows]
        commands = micro_batches(spark, [batch], schema=COMMAND, directory=tmp_path, source="files")
        found: dict[str, list[Any]] = {"decide": [], "transform": [], "apply": []}
        query = decide_and_count(commands, is_wider=is_wider)
        for _, table, _ in run_query(query, tmp_path, 300):
            for row in table.to_pylist():
                values = json.loads(row["row"])
                is_event = "version" in values
                names = ("version", "type", "user", "rejection") if is_event else ("n", "since")
                if values["k"] == "s":
                    found[row["name"]].append(tuple(values.get(name) for name in names))
        return {name: sorted(rows, key=str) for name, rows in found.items()}

    before = run(False, ("s", at(1), 1, "ann", None), ("z", at(100), 1, "z", None))
    assert before["decide"] == [(1, "reserved", "ann", None)]
    assert before["transform"] == before["apply"] == [(1, None)]
    after = run(
        True,
        ("s", at(101), 1, "ann", None),  # its id is stored
        ("s", at(102), 2, "bob", None),
        ("s", at(103), 3, "ann", 1),
        ("s", at(104), 4, "bob", None),
        ("s", at(105), 5, "eve", None),
        ("z", at(200), 2, "z", None),
    )
    assert after["decide"] == [
        (1, None, None, "taken by ann, None events"),
        (2, "released", "ann", None),
        (3, "cleaned", None, None),
        (4, "reserved", "bob", None),
        (4, None, None, "taken by bob, 3 events"),
    ]
    assert after["transform"] == after["apply"] == [(n + 1, n) for n in range(1, 6)]
