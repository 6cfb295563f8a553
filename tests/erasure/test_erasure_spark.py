"""Shredding on Spark: streams and batches, restarts, chains, key tables, and where keys are not."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import erasure, split_side_output, windows
from streamops.errors import StreamopsError
from streamops.spark.columns import spark_schema
from streamops.testing import at, micro_batches
from streamops.testing.streaming import run_query
from tests.erasure.operators import as_multiset
from tests.erasure.samples import columns_of, entries_of, key_of, shred

pytestmark = pytest.mark.spark

TS = pa.timestamp("us", tz="UTC")
EVENT = pa.schema([("user", pa.string()), ("ts", TS), ("email", pa.string()), ("age", pa.int32())])
KEYS = "subject string, version int, key binary"
USERS = ("ann", "bob", "cid")
WRAPPING_KEY = b"w" * 32

Rows = list[dict[str, Any]]


def key_frame(spark: SparkSession, *rows: tuple[Any, int | None, bytes | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), KEYS)


def all_keys(spark: SparkSession) -> DataFrame:
    return key_frame(spark, *((user, 1, key_of(user)) for user in USERS))


def events(start: int) -> pa.Table:
    rows = [
        {
            "user": USERS[n % 3],
            "ts": at(start + n),
            "email": f"{USERS[n % 3]}{n % 2}@example.com",
            "age": 30 + n,
        }
        for n in range(9)
    ]
    if start == 0:
        rows.append({"user": None, "ts": at(1), "email": "nobody@example.com", "age": None})
        rows.append({"user": "dan", "ts": at(1), "email": "dan@example.com", "age": None})
    return pa.Table.from_pylist(rows, EVENT)


SCRIPT = [events(start) for start in (0, 10, 20, 600)]
SHRED: dict[str, Any] = {"columns": ["email", "age"], "subject": "user"}


def expected(table: pa.Table) -> Rows:
    """The shredded rows, by the core."""
    spec = columns_of(email=pa.string(), age=pa.int32())
    users = table.column("user").to_pylist()
    (email, age), rejected = shred(
        spec,
        users,
        entries_of(*USERS),
        email=table.column("email").to_pylist(),
        age=table.column("age").to_pylist(),
    )
    return [
        {**row, "email": e, "age": a, "rejected": r}
        for row, e, a, r in zip(
            table.to_pylist(), email.to_pylist(), age.to_pylist(), rejected, strict=True
        )
    ]


def rows_of(frame: DataFrame) -> Rows:
    return utc(frame.toArrow())


def utc(table: pa.Table) -> Rows:
    """The rows, with instants in UTC."""
    fields = [
        f.with_type(TS) if pa.types.is_timestamp(f.type) and f.type.tz else f for f in table.schema
    ]
    return table.cast(pa.schema(fields)).to_pylist()


@pytest.mark.smoke
def test_a_stream_after_a_restart_and_a_batch_have_the_rows_of_the_core(
    spark: SparkSession, tmp_path: Path
) -> None:
    operator = erasure.shred(**SHRED, keys=all_keys(spark))
    found: Rows = []
    for run in (SCRIPT[:2], SCRIPT[2:]):
        source = micro_batches(spark, run, schema=EVENT, directory=tmp_path / "in", source="files")
        for _, table, progress in run_query(source.transform(operator), tmp_path, 300):
            found += utc(table)
            counts = progress.observedMetrics["shred"].asDict()
            assert counts["rows"] == len(table)
            assert counts["rejected"] == counts["no_subject"] + counts["no_key"]
    wanted = [row for table in SCRIPT for row in expected(table)]
    assert as_multiset(found) == as_multiset(wanted)
    assert {row["rejected"]["reason"] for row in wanted if row["rejected"]} == {
        "no_subject",
        "no_key",
    }
    batch = spark.createDataFrame(pa.concat_tables(SCRIPT), spark_schema(EVENT))
    assert as_multiset(rows_of(batch.transform(operator))) == as_multiset(wanted)


def test_values_of_every_type_are_restored_in_any_time_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    expressions = {
        "b": "cast(id = 1 as boolean)",
        "i8": "cast(id as tinyint)",
        "i16": "cast(id as smallint)",
        "i32": "cast(id as int)",
        "i64": "id",
        "f": "cast(id / 3 as float)",
        "d": "id / 3d",
        "dec": "cast(id / 3 as decimal(20,5))",
        "s": "concat('text ', id)",
        "bin": "unhex('00ff')",
        "d32": "date'1969-12-31' + cast(id as int)",
        "t": "timestamp'1969-07-20 20:17:40.123456'",
        "ntz": "timestamp_ntz'1969-07-20 20:17:40.123456'",
        "nothing": "cast(null as string)",
    }
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
        frame = spark.range(3).selectExpr(
            "id user", *(f"{e} as {n}" for n, e in expressions.items())
        )
        keys = key_frame(spark, *((str(n), 1, key_of(str(n))) for n in range(3)))
        parameters: dict[str, Any] = {"subject": "user", "keys": keys}
        columns = list(expressions)
        frame.transform(erasure.shred(columns, **parameters)).write.parquet(str(tmp_path / "log"))
        log = spark.read.parquet(str(tmp_path / "log")).drop("rejected")
        assert {f.dataType.simpleString() for f in log.select(columns).schema} == {"binary"}
        # The types are in the metadata of the files.
        restored = log.transform(erasure.unshred(columns, **parameters))
        assert restored.where("rejected is not null").count() == 0
        assert restored.drop("rejected").dtypes == frame.dtypes
        assert frame.exceptAll(restored.drop("rejected")).count() == 0
        stated = {name: dtype for name, dtype in frame.dtypes if name != "user"}
        plain = log.select("user", *(F.col(n).alias(n, metadata={}) for n in columns))
        assert (
            plain.transform(erasure.unshred(stated, **parameters))
            .drop("rejected")
            .exceptAll(frame)
            .count()
            == 0
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_windows_follow_and_precede(spark: SparkSession, tmp_path: Path) -> None:
    window: dict[str, Any] = {"time": "ts", "delay": "5 seconds"}
    keys = all_keys(spark)
    before = windows.tumbling(
        "10 seconds",
        by=["user", "email"],
        agg={"n": agg.count(), "ages": agg.count_distinct("age", at_most=99)},
        **window,
    ).options(shards=2)
    after = windows.tumbling(
        "10 seconds", by="user", agg={"mail": agg.max("email"), "n": agg.count()}, **window
    ).options(shards=2)
    sessions = windows.session(
        "1 minute",
        time="window_start",
        by="user",
        agg={"sum": agg.sum("n"), "mails": agg.count_distinct("mail", at_most=99)},
    ).options(shards=2, name="again")
    known = [
        table.filter(pa.compute.is_in(table.column("user"), pa.array(USERS))) for table in SCRIPT
    ]
    chains = {
        "before": lambda frame: (
            frame.transform(erasure.shred(**SHRED, keys=keys))
            .drop("rejected")
            .transform(before)
            .transform(erasure.unshred({"email": "string"}, subject="user", keys=keys))
        ),
        "after": lambda frame: (
            frame.transform(after)
            .transform(erasure.shred("mail", subject="user", keys=keys))
            .drop("rejected")
            .transform(sessions)
        ),
    }
    readable = {
        "before": lambda frame: frame.transform(before).withColumn(
            "rejected", F.lit(None).cast("struct<reason: string, columns: array<string>>")
        ),
        "after": lambda frame: frame.transform(after).transform(sessions),
    }
    for name, chain in chains.items():
        found: dict[bool, Rows] = {}
        for is_shredded, build in ((True, chain), (False, readable[name])):
            folder = tmp_path / f"{name}{is_shredded}"
            found[is_shredded] = []
            for part in (known[:2], known[2:]) if is_shredded else (known,):  # with a restart
                source = micro_batches(
                    spark, part, schema=EVENT, directory=folder / "in", source="files"
                )
                for _, table, _ in run_query(build(source), folder, 300):
                    found[is_shredded] += utc(table)
        assert found[False]
        assert as_multiset(found[True]) == as_multiset(found[False]), name


@pytest.mark.parametrize("columns", [["email"], ["email", "age"], ["email", "age", "a", "b", "c"]])
def test_python_is_called_once_however_many_columns_there_are(
    spark: SparkSession, columns: list[str]
) -> None:
    keys = all_keys(spark)
    more = {name: F.concat("email", F.lit(name)) for name in "abc"}
    batch = spark.createDataFrame(SCRIPT[1], spark_schema(EVENT)).withColumns(more)
    stream = micro_batches(spark, SCRIPT, schema=EVENT).withColumns(more)
    parameters: dict[str, Any] = {"columns": columns, "subject": "user", "keys": keys}
    for frame in (batch, stream):
        shredded = frame.transform(erasure.shred(**parameters))
        results = [shredded, *split_side_output(shredded)]
        results += [of.select("email") for of in results]
        results += [of.where(f"{columns[-1]} is not null") for of in results]
        for result in results:
            assert python_nodes(result) == ["ArrowEvalPython"]
        again = shredded.drop("rejected").transform(erasure.unshred(**parameters))
        for result in (again, *split_side_output(again)):
            assert python_nodes(result) == ["ArrowEvalPython"] * 2


def test_a_filter_on_the_subject_is_applied_before_values_are_decrypted(
    spark: SparkSession,
) -> None:
    keys = all_keys(spark)
    frame = spark.createDataFrame(SCRIPT[1], spark_schema(EVENT))
    stored = frame.transform(erasure.shred(**SHRED, keys=keys)).drop("rejected")
    restored = stored.transform(erasure.unshred(**SHRED, keys=keys))
    nodes = nodes_of(restored.where("user = 'ann' AND rejected IS NULL"))
    decrypted = nodes.index("ArrowEvalPython")
    assert "Filter" in nodes[:decrypted]
    assert "Filter" in nodes[len(nodes) - nodes[::-1].index("ArrowEvalPython") :]
    assert nodes.count("ArrowEvalPython") == 2


def python_nodes(frame: DataFrame) -> list[str]:
    """The nodes of the physical plan that call Python."""
    return [node for node in nodes_of(frame) if re.search("EvalPython|MapIn|InPandas", node)]


def nodes_of(frame: DataFrame) -> list[str]:
    """The nodes of the physical plan, from the result to its sources."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain()
    return re.findall(r"^[\s:]*(?:[+:]- )?(?:\*\(\d+\) )?(\w+)", printed.getvalue(), re.MULTILINE)


def test_erased_subjects_are_null_and_their_new_values_too(spark: SparkSession) -> None:
    frame = spark.createDataFrame(SCRIPT[1], spark_schema(EVENT))
    stored = frame.transform(erasure.shred(**SHRED, keys=all_keys(spark))).drop("rejected")
    erased = key_frame(
        spark, ("ann", 1, None), ("bob", 1, key_of("bob")), ("cid", 1, key_of("cid"))
    )
    restored = stored.transform(erasure.unshred(**SHRED, keys=erased))
    good, rejected = split_side_output(restored)
    assert {row.user for row in good.collect()} == {"bob", "cid"}
    assert {(row.user, row.email, row.age) for row in rejected.collect()} == {("ann", None, None)}
    assert {row.rejected.reason for row in rejected.collect()} == {"erased"}
    again = frame.transform(erasure.shred(**SHRED, keys=erased))
    assert {row.rejected.reason for row in again.where("user = 'ann'").collect()} == {"erased"}
    strict = stored.transform(erasure.unshred(**SHRED, keys=erased, rejected="fail"))
    with pytest.raises(PySparkException, match="ROW_REJECTED") as caught:
        strict.collect()
    assert "example.com" not in str(caught.value)
    assert not re.search(r"\bann\b", str(caught.value))


def test_routed_values_are_separated(spark: SparkSession) -> None:
    frame = spark.createDataFrame(SCRIPT[0], spark_schema(EVENT))
    routed = frame.transform(erasure.shred(**SHRED, keys=all_keys(spark), rejected="route"))
    good, rejected = split_side_output(routed)
    assert good.count() == 9
    rows = rejected.select("user", "email", "rejected.reason", "rejected.row.email").collect()
    assert sorted(map(tuple, rows), key=str) == [
        ("dan", None, "no_key", "dan@example.com"),
        (None, None, "no_subject", "nobody@example.com"),
    ]


def test_concurrent_micro_batches_create_one_key_per_subject(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = erasure.KeyTable(url=f"sqlite:///{tmp_path}/keys.db", wrapping_key=lambda: WRAPPING_KEY)
    frame = spark.createDataFrame(SCRIPT[0], spark_schema(EVENT))
    first = table.create_keys(frame, subject="user")
    assert {row.subject for row in first.collect()} == {*USERS, "dan"}
    second = table.create_keys(frame.where("user = 'ann'"), subject="user")
    assert second.exceptAll(first).count() == 0
    assert table.keys(spark).exceptAll(first).count() == 0
    shredding: dict[str, Any] = {**SHRED, "keys": first, "wrapping_key": lambda: WRAPPING_KEY}
    stored = frame.transform(erasure.shred(**shredding))
    assert [row.user for row in stored.where("rejected is not null").collect()] == [None]
    assert table.erase(["ann", "dan"]) == 2
    reading: dict[str, Any] = {"subject": "user", "wrapping_key": lambda: WRAPPING_KEY}
    restored = stored.drop("rejected").transform(
        erasure.unshred(["email"], keys=table.keys(spark), **reading)
    )
    readable = {row.user for row in restored.where("email is not null").collect()}
    assert readable == {"bob", "cid"}
    with pytest.raises(StreamopsError, match="STREAMING_FRAME"):
        table.create_keys(micro_batches(spark, SCRIPT, schema=EVENT), subject="user")


def test_keys_are_in_no_plan_and_in_no_repr(spark: SparkSession) -> None:
    frame = spark.createDataFrame(SCRIPT[0], spark_schema(EVENT))
    key = bytes(range(0x41, 0x61))  # readable letters
    keys = key_frame(spark, ("quixotic", 1, key), ("bob", 1, key_of("bob")))
    operator = erasure.shred(**SHRED, keys=keys, wrapping_key=lambda: WRAPPING_KEY)
    assert repr(operator) == "erasure.shred(columns=['email', 'age'], subject='user')"
    shredded = frame.transform(operator)
    shredded.collect()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            shredded.explain(mode=mode)
    text = printed.getvalue() + repr(keys)
    assert "crypt" in text  # the function is there
    for form in (key.decode(), key.hex(), key.hex().upper(), WRAPPING_KEY.decode(), "quixotic"):
        assert form not in text


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"subject": "email"}, "DUPLICATE_COLUMN"),
        ({"subject": "person"}, "COLUMN_NOT_FOUND"),
        ({"columns": "mail"}, "COLUMN_NOT_FOUND"),
        ({"columns": []}, "PARAMETER_MISSING"),
        ({"columns": "tags"}, "COLUMN_TYPE"),
        ({"subject": "score"}, "COLUMN_TYPE"),
        ({"rejected": "drop"}, "UNKNOWN_CHOICE"),
        ({"names": {"ip": "email"}}, "PARAMETER_WITHOUT_EFFECT"),
        ({"names": {"email": ""}}, "PARAMETER_TYPE"),
        ({"wrapping_key": b"bytes"}, "PARAMETER_TYPE"),
    ],
)
def test_wrong_parameters_are_refused(spark: SparkSession, change: Any, code: str) -> None:
    frame = spark.createDataFrame(
        [], "user string, email string, age int, tags array<string>, score double"
    )
    with pytest.raises(StreamopsError) as caught:
        frame.transform(erasure.shred(**{**SHRED, "keys": all_keys(spark), **change}))
    assert caught.value.code == code
    assert "bytes'" not in str(caught.value)


def test_wrong_key_tables_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "user string, email string, age int")
    for keys, code in (
        ("keys", "NOT_A_FRAME"),
        (spark.createDataFrame([], "subject string, key binary"), "COLUMN_NOT_FOUND"),
        (spark.createDataFrame([], "subject string, version int, key string"), "COLUMN_TYPE"),
        (spark.createDataFrame([], "subject string, version string, key binary"), "COLUMN_TYPE"),
        (spark.createDataFrame([], "subject double, version int, key binary"), "COLUMN_TYPE"),
        (micro_batches(spark, SCRIPT, schema=EVENT), "STREAMING_FRAME"),
    ):
        keys_: Any = keys
        with pytest.raises(StreamopsError) as caught:
            frame.transform(erasure.shred(**SHRED, keys=keys_))
        assert caught.value.code == code


def test_columns_that_cannot_be_shredded_or_unshredded_are_refused(spark: SparkSession) -> None:
    keys = all_keys(spark)
    frame = spark.createDataFrame(SCRIPT[0], spark_schema(EVENT))
    stored = frame.transform(erasure.shred(**SHRED, keys=keys)).drop("rejected")
    stream = micro_batches(spark, SCRIPT, schema=EVENT).withWatermark("ts", "5 seconds")
    plain = stored.withColumn("email", F.col("email").alias("email", metadata={}))
    attempts: list[tuple[DataFrame, Any, str]] = [
        (stored, erasure.shred("email", subject="user", keys=keys), "COLUMN_TYPE"),
        (stream, erasure.shred("ts", subject="user", keys=keys), "COLUMN_TYPE"),
        (frame, erasure.unshred("email", subject="user", keys=keys), "COLUMN_TYPE"),
        (
            frame.withColumn("rejected", F.lit(1)),
            erasure.shred("email", subject="user", keys=keys),
            "NAME_TAKEN",
        ),
    ]
    for of, operator, code in attempts:
        with pytest.raises(StreamopsError) as caught:
            of.transform(operator)
        assert caught.value.code == code
    with pytest.raises(StreamopsError, match="VALUE_TYPE"):
        stored.transform(erasure.unshred({"email": "text"}, subject="user", keys=keys))
    assert "streamops.shredded" not in str(plain.schema["email"].metadata)


def test_renamed_columns_and_any_names(spark: SparkSession) -> None:
    keys = key_frame(spark, ("7", 1, key_of("7")))
    frame = spark.createDataFrame([(7, "x", 1)], "`user id` bigint, `a.b ``c` string, n int")
    stored = frame.transform(erasure.shred("a.b `c", subject="user id", keys=keys))
    renamed = stored.drop("rejected").withColumnRenamed("a.b `c", "mail")
    parameters: dict[str, Any] = {"subject": "user id", "keys": keys}
    wrong = renamed.transform(erasure.unshred("mail", **parameters)).first()
    assert wrong is not None
    assert (wrong.mail, wrong.rejected.reason) == (None, "not_authentic")
    named = erasure.unshred("mail", names={"mail": "a.b `c"}, **parameters)
    right = renamed.transform(named).first()
    assert right is not None
    assert (right.mail, right.rejected) == ("x", None)
    assert renamed.transform(named).columns == ["user id", "mail", "n", "rejected"]
