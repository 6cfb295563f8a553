from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import ColumnNotFound, RequirementError, SpecError
from streamops.testing import Replay, assert_rows, at, micro_batches, replay, stream, streaming
from streamops.testing.batches import canonical
from streamops.testing.streaming import Source

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def counting(delay: str | None = "5 seconds", **arguments: Any) -> Any:
    defaults = {"stragglers": "retract", "allowed_lateness": "20 seconds", "too_late": "route"}
    arguments = defaults | arguments
    return windows.tumbling(
        "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=delay, **arguments
    ).options(shards=3)


def row(key: str | None, seconds: float | None) -> dict[str, Any]:
    return {"k": key, "ts": None if seconds is None else at(seconds)}


SCRIPT = [
    [row("a", 1), row(None, 2), row("a", None)],
    [row("a", 12), row("b", 31)],
    [],
    [row("a", 5), row("c", 60)],
    [row("a", 6), row("b", 32)],
]


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert_rows(one.table, other.table)
        assert_rows(one.late, other.late)
        for fact in ("batch", "watermark", "counts", "state_rows", "state_bytes"):
            assert getattr(one, fact) == getattr(other, fact), fact


def test_a_stream_equals_its_replay(spark: SparkSession) -> None:
    assert_same(stream(spark, counting(), SCRIPT), replay(counting(), SCRIPT))


def test_a_query_in_the_same_directory_continues(spark: SparkSession, tmp_path: Path) -> None:
    transform = counting().options(state_api="applyInPandasWithState")
    replayed = Replay(transform, SCHEMA)
    for part in (SCRIPT[:2], SCRIPT[2:4], [], SCRIPT[4:]):
        assert_same(stream(spark, transform, part, directory=tmp_path), replayed.run(part))
    with pytest.raises(ColumnNotFound):
        stream(spark, transform, [[{"key": "a"}]], directory=tmp_path)


def test_a_watermark_of_the_frame(spark: SparkSession) -> None:
    found = stream(spark, counting(None), SCRIPT, watermark="25 seconds", source="files")
    assert_same(found, replay(counting(None), SCRIPT, watermark="25 seconds"))


def test_the_native_engine_has_the_same_output_and_no_metrics(spark: SparkSession) -> None:
    plain = {"stragglers": "drop", "allowed_lateness": "0 seconds", "too_late": "drop"}
    found = stream(spark, counting(**plain).options(engine="native"), SCRIPT)
    wanted = replay(counting(**plain), SCRIPT)
    for one, other in zip(found, wanted, strict=True):
        assert_rows(one.table, other.table)
        assert one.watermark == other.watermark
        assert (one.counts, one.state_rows, one.state_bytes) == (None, None, None)


def test_a_query_that_does_not_end_is_stopped(spark: SparkSession) -> None:
    with pytest.raises(TimeoutError, match="did not end within 1 seconds"):
        stream(spark, counting(), [[row("a", second)] for second in range(50)], timeout=1)
    assert spark.streams.active == []


NESTED = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.timestamp("us", tz="UTC")))])
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "tinyint": (pa.int8(), -128),
    "smallint": (pa.int16(), -32768),
    "int": (pa.int32(), 2**31 - 1),
    "bigint": (pa.int64(), -(2**63)),
    "float": (pa.float32(), 0.1),
    "double": (pa.float64(), 1e300),
    "decimal": (pa.decimal128(38, 18), Decimal("-12345678901234567890.123456789012345678")),
    "string": (pa.string(), "Zoë \N{WAVING HAND SIGN}\0"),
    "binary": (pa.binary(), b"\x00\xff"),
    "date": (pa.date32(), dt.date(9999, 12, 31)),
    "timestamp": (pa.timestamp("us", tz="UTC"), at(0, 1)),
    "before 1970": (pa.timestamp("us", tz="UTC"), dt.datetime(1, 1, 1, 0, 0, 0, 1, dt.UTC)),
    "timestamp_ntz": (pa.timestamp("us"), at(0, 1).replace(tzinfo=None)),
    "interval": (pa.duration("us"), dt.timedelta(days=-3, microseconds=1)),
    "array": (pa.list_(pa.float64()), [1.5, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)]),
    "struct": (NESTED, {"x": 1, "y": [at(0), None]}),
    "a `name` of.its own": (pa.string(), "x"),
}
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
ONLY_PYTHON: dict[str, tuple[pa.DataType, Any]] = {
    "variant": (VARIANT, {"value": b"\x0c\x05", "metadata": b"\x01\x00\x00"}),
    "void": (pa.null(), None),
}


@pytest.mark.parametrize("source", ["python", "files"])
def test_every_type_is_preserved(
    spark: SparkSession, source: Source, drained: Callable[[DataFrame], list[pa.Table]]
) -> None:
    types = TYPES | (ONLY_PYTHON if source == "python" else {})
    schema = canonical(pa.schema([(name, type_) for name, (type_, _) in types.items()]))
    # toArrow of Spark, which this test uses, cannot read a null variant.
    seconds = {"variant": ONLY_PYTHON["variant"][1]}
    columns = [pa.array([v, seconds.get(name)], type_) for name, (type_, v) in types.items()]
    table = pa.table(columns, names=schema.names).cast(schema)
    (arrived,) = drained(micro_batches(spark, [table], source=source))
    assert arrived.cast(schema).equals(table)


@pytest.mark.parametrize("source", ["python", "files"])
def test_each_item_is_one_micro_batch(
    spark: SparkSession, source: Source, drained: Callable[[DataFrame], list[pa.Table]]
) -> None:
    script: list[list[dict[str, Any]]] = [[{"n": 1}, {"n": 2}], [], [{"n": 3}], [], [{"n": 4}]]
    arrived = drained(micro_batches(spark, script, source=source))
    assert [table.to_pylist() for table in arrived] == script


@pytest.fixture
def drained(tmp_path: Path) -> Callable[[DataFrame], list[pa.Table]]:
    """Run a query and return its micro-batches."""

    def drain(frame: DataFrame) -> list[pa.Table]:
        arrived: list[pa.Table] = []
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: arrived.append(batch.toArrow()))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return arrived

    return drain


def test_more_micro_batches_than_spark_keeps_progress_of_are_refused() -> None:
    session: Any = SimpleNamespace(conf={"spark.sql.streaming.numRecentProgressUpdates": "3"})
    with pytest.raises(SpecError) as caught:
        stream(session, counting(), [[]] * 3)
    assert caught.value.code == "PARAMETER_OUT_OF_RANGE"


def test_a_python_source_is_refused_before_spark_4_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "has_scripted_sources", lambda: False)
    session: Any = SimpleNamespace(version="4.1.1")
    with pytest.raises(RequirementError) as caught:
        micro_batches(session, [[{"n": 1}]], directory=tmp_path, source="python")
    assert caught.value.code == "VERSION_NOT_SUPPORTED"
    assert list(tmp_path.rglob("*.*")) == []


def test_an_unknown_source_is_refused() -> None:
    session: Any = None
    with pytest.raises(SpecError, match="source='kafka'"):
        micro_batches(session, [[]], source="kafka")  # type: ignore[arg-type]
