"""A checkpoint is migrated to another operator, and its query continues as if it had been that one, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import state, windows
from streamops.__main__ import main
from streamops.environment.requirements import numbers
from streamops.environment.settings import PROVIDER
from streamops.errors import CheckpointError, SpecError, StateFormatError
from streamops.kernel import segments
from streamops.spark.operator import Operator
from streamops.state.checkpoint import MARKER, PROVIDERS, Checkpoint
from streamops.state.stores import STATE, TESTED
from streamops.testing import Replay, micro_batches
from streamops.testing.batches import to_table
from streamops.testing.streaming import run_query
from tests.laws.test_changed_aggregates_laws import restart
from tests.state.histories import KEYS, events
from tests.state.test_rescale_spark import WINDOWS, uninterrupted
from tests.state.test_rescale_spark import run as run_windows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        numbers(pyspark.__version__)[:2] not in TESTED,
        reason="Spark that is refused: VERSION_NOT_SUPPORTED",
    ),
]

GROUPS: Any = "applyInPandasWithState"
VARIABLES: Any = "transformWithStateInPandas"
RUNS = ((0, 2), (2, 5))
RENAME = {"k": "user", "n": "rows"}
INSTANT = pa.timestamp("us", "UTC")
OLD = pa.schema([("k", pa.int32()), ("ts", INSTANT), ("v", pa.int64())])
NEW = pa.schema([("user", pa.int64()), ("ts", INSTANT), ("v", pa.int64())])


def counting(by: str, **aggregates: Any) -> Operator:
    operator = windows.tumbling("10 seconds", time="ts", by=by, agg=aggregates, delay="5 seconds")
    return operator.options(shards=4)


BEFORE = counting("k", n=agg.count(), least=agg.min("v"))
AFTER = counting("user", total=agg.sum("v"), rows=agg.count())


def tables(run: int, schema: pa.Schema) -> list[pa.Table]:
    """Micro-batches with numbers as keys."""
    found = []
    for batch in range(*RUNS[run]):
        rows = [
            {
                schema.names[0]: KEYS.index(of["k"]) if of["k"] else None,
                "ts": of["ts"],
                "v": of["v"],
            }
            for of in events(batch)
        ]
        found.append(to_table(rows, schema))
    return found


def frame_of(spark: SparkSession, folder: Path, run: int) -> DataFrame:
    schema = (OLD, NEW)[run]
    source = folder / f"source{run}"
    return micro_batches(
        spark, tables(run, schema), schema=schema, directory=source, source="files"
    )


def run(spark: SparkSession, operator: Operator, folder: Path, number: int, at: str) -> list[Any]:
    frame = frame_of(spark, folder, number)
    found = run_query(frame.transform(operator), folder / at, 300)
    return [in_order(rows) for _, rows, _ in found]


def in_order(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=repr)


def expected() -> list[list[Any]]:
    """The results after the change, of a query that had the new names from the beginning."""
    query = Replay(counting("user", rows=agg.count(), least=agg.min("v")), NEW, shards=4)
    query.run(tables(0, NEW))
    restart(query, AFTER)
    return [in_order(result.table) for result in query.run(tables(1, NEW))]


@pytest.mark.parametrize("api", [pytest.param(GROUPS, marks=pytest.mark.smoke), VARIABLES])
def test_a_query_continues_with_another_key_and_other_aggregates(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Any
) -> None:
    monkeypatch.setattr(segments, "LIMIT", 3)
    before, after = BEFORE.options(state_api=api), AFTER.options(state_api=api)
    run(spark, before, tmp_path, 0, "old")
    old, new = tmp_path / "old" / "checkpoint", tmp_path / "new" / "checkpoint"
    stamp = Checkpoint(old).stamp()
    frame = frame_of(spark, tmp_path, 1)
    (done,) = state.migrate(old, new, after, frame, rename=RENAME)
    assert Checkpoint(old).stamp() == stamp, "the original was changed"
    assert not (new / MARKER).exists()
    assert (done.name, done.shards, done.entries > 10) == ("windows.grid version 1", 4, True)
    state.check(frame.transform(after), new)
    found = run(spark, after, tmp_path, 1, "new")
    assert [rows for rows in found if rows] == [rows for rows in expected() if rows]
    values = [row["total"] for rows in found for row in rows]
    assert None in values
    assert any(value is not None for value in values)


def per_user() -> Operator:
    return AFTER.options(state_api=GROUPS, shards=6)


def views(spark: SparkSession) -> DataFrame:
    """A stream with the new columns, of which nothing is read."""
    schema = "user long, ts timestamp, v long"
    return spark.readStream.schema(schema).json(str(Path(__file__).parent))


OPERATOR = AFTER.options(state_api=GROUPS)


def test_the_command_and_what_is_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(spark, BEFORE.options(state_api=GROUPS), tmp_path, 0, "old")
    old, new = tmp_path / "old" / "checkpoint", tmp_path / "new"
    module = "tests.state.test_migrate_spark"
    command = ["state", "migrate", str(old), "--to", str(new), "--job", f"{module}:per_user"]
    command += ["--frame", f"{module}:views", "--rename", "k=user", "--rename", "n=rows"]
    assert main(command) == 0
    assert "4 -> 6 shards" in capsys.readouterr().out
    assert main([*command[:-4], "--number", "3"]) == 1
    assert "CHECKPOINT_PATH" in capsys.readouterr().out
    other, frame = tmp_path / "other", views(spark)

    def refused(error: type[Exception], operator: Any, *more: Any, **options: Any) -> str:
        with pytest.raises(error) as caught:
            state.migrate(old, other, operator, *more, **options)
        assert not other.exists()
        return f"{caught.value}"

    assert "PARAMETER_MISSING" in refused(SpecError, OPERATOR)
    variables = OPERATOR.options(state_api=VARIABLES)
    options = {"rename": RENAME, "state_store": "hdfs"}
    assert "CHECKPOINT_UNSUPPORTED" in refused(CheckpointError, variables, frame, **options)
    text = refused(StateFormatError, OPERATOR, frame)
    assert "STATE_PARAMETERS" in text
    assert "needs history" in text
    assert "by=[['k', 'int']]" in text.replace("int32", "int")
    unknown = refused(SpecError, OPERATOR, frame, rename={**RENAME, "x": "total"})
    assert "PARAMETER_WITHOUT_EFFECT" in unknown
    assert "UNKNOWN_OPERATOR" in refused(CheckpointError, OPERATOR, frame, number=1)
    session = windows.session(
        "10 seconds", time="ts", by="user", agg={"n": agg.count()}, delay="5 seconds"
    )
    assert "UNKNOWN_OPERATOR" in refused(CheckpointError, session, frame)
    for path in (["nowhere"], [f"{module}:nothing"], ["no_module:of"]):
        assert main([*command[:6], *path, *command[7:]]) == 1
        assert "module:name" in capsys.readouterr().out


def test_a_query_continues_on_another_state_store_and_back(
    hdfs: SparkSession, tmp_path: Path
) -> None:
    operator, found = WINDOWS.options(state_api=GROUPS, shards=4), []
    for number, store in enumerate(("hdfs", "rocksdb", "hdfs")):
        here = tmp_path / str(number)
        if number:
            before = tmp_path / str(number - 1) / "checkpoint"
            stamp = Checkpoint(before).stamp()
            command = ["state", "migrate", str(before), "--to", str(here / "checkpoint")]
            assert main([*command, "--state-store", store]) == 0
            assert Checkpoint(before).stamp() == stamp
        found += run_windows(hdfs, operator, tmp_path / "source", here, number)
        assert Checkpoint(here / "checkpoint").provider == PROVIDERS[store]
        suffix = {"hdfs": "snapshot", "rocksdb": "zip"}[store]
        assert any((here / "checkpoint" / "state").glob(f"0/*/*.{suffix}")) or not number
    assert found == uninterrupted()
    with pytest.raises(CheckpointError) as nothing:
        state.migrate(here / "checkpoint", tmp_path / "same", state_store="hdfs", spark=hdfs)
    assert nothing.value.code == "NOTHING_TO_MIGRATE"


def test_an_operator_with_variables_needs_rocksdb(spark: SparkSession, tmp_path: Path) -> None:
    operator = WINDOWS.options(state_api=VARIABLES, shards=4)
    run_windows(spark, operator, tmp_path / "source", tmp_path, 0)
    with pytest.raises(CheckpointError) as refused:
        state.migrate(tmp_path / "checkpoint", tmp_path / "new", state_store="hdfs", spark=spark)
    assert refused.value.code == "CHECKPOINT_UNSUPPORTED"
    assert not (tmp_path / "new").exists()


LAG = {"delay": "5 seconds", "allowed_lateness": "10 seconds", "stragglers": "retract"}
OF_BOTH_APIS = {
    "tumbling": windows.tumbling("10 seconds", time="ts", by="k", agg={"n": agg.count()}, **LAG),
    "session": windows.session("5 seconds", time="ts", by="k", agg={"n": agg.count()}, **LAG),
    "running": windows.running(by="k", agg={"total": agg.sum("v")}),
}


@pytest.mark.parametrize("first", [GROUPS, VARIABLES])
@pytest.mark.parametrize("name", OF_BOTH_APIS)
def test_a_query_continues_behind_the_other_state_api_and_back(
    hdfs: SparkSession, tmp_path: Path, name: str, first: Any
) -> None:
    found, operator = [], OF_BOTH_APIS[name].options(shards=4)
    stores = {GROUPS: "hdfs", VARIABLES: "rocksdb"}
    for number in range(3):
        api = first if number != 1 else ({*stores} - {first}).pop()
        here, of = tmp_path / str(number), operator.options(state_api=api)
        if number:
            before = tmp_path / str(number - 1) / "checkpoint"
            frame = hdfs.readStream.schema("k string, ts timestamp, v long").json(str(tmp_path))
            stamp = Checkpoint(before).stamp()
            state.migrate(before, here / "checkpoint", of, frame)
            assert Checkpoint(before).stamp() == stamp
        hdfs.conf.set(PROVIDER, f"{STATE}.{PROVIDERS[stores[api]]}")
        found += run_windows(hdfs, of, tmp_path / "source", here, number)
        (files,) = Checkpoint(here / "checkpoint").operators
        assert files.api.startswith(api)
    assert found == uninterrupted(operator)


def test_a_state_with_segments_stays_behind_its_state_api(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "LIMIT", 1)
    run(spark, BEFORE.options(state_api=VARIABLES), tmp_path, 0, "old")
    with pytest.raises(CheckpointError, match="CHECKPOINT_UNSUPPORTED") as refused:
        state.migrate(
            tmp_path / "old" / "checkpoint", tmp_path / "new", OPERATOR, views(spark), rename=RENAME
        )
    assert "segments" in str(refused.value)
    assert not (tmp_path / "new").exists()
