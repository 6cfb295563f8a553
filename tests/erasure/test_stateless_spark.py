"""Operators, readers, columns and sinks that run in Spark alone, over readable and over shredded values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import changes, erasure, joins, observe, sinks, sketches, sources, time, windows
from streamops.spark.columns import spark_schema
from tests.erasure.operators import as_multiset
from tests.erasure.test_erasure_spark import EVENT, SCRIPT, SHRED, USERS, all_keys, rows_of

pytestmark = pytest.mark.spark

PAIR = ["user", "email"]
INSERTED = "'insert' _change_type"

Case = Callable[[DataFrame], DataFrame]


def encoded(rows: DataFrame) -> Column:
    """The address as bytes, in JSON: Debezium and the Kafka sink encode binary columns in base64."""
    return F.base64(F.col("email").cast("binary")).alias("email")


def decoded(rows: DataFrame, read: DataFrame) -> DataFrame:
    """The rows that were read, with the address in the type that it had."""
    return read.withColumn("email", F.col("email").cast(rows.schema["email"].dataType))


def debezium(rows: DataFrame, schema: str, *row: Any, keep: Any = ()) -> DataFrame:
    source = F.struct(F.lit("postgresql").alias("connector"), F.col("age").alias("lsn"))
    record = F.struct(
        F.lit("c").alias("op"), F.struct("user", *row).alias("after"), source.alias("source")
    )
    reading = changes.from_debezium(schema, key="user", keep=keep)
    read = rows.select(F.to_json(record).alias("value"), "email").transform(reading)
    return read.where("rejected IS NULL").drop("rejected")


def kafka(rows: DataFrame, schema: str, *row: Any, keep: Any = ()) -> DataFrame:
    value = F.to_json(F.struct("user", *row)).alias("value")
    position = ("'t' topic", "0 partition", "cast(age AS bigint) offset", "ts timestamp")
    records = rows.select(
        value, F.col("user").alias("key"), "email", *(F.expr(column) for column in position)
    )
    read = records.transform(sources.kafka_events(schema, keep=keep))
    return read.where("rejected IS NULL").drop("rejected")


def late(rows: DataFrame, **parameters: Any) -> DataFrame:
    """The account of late rows."""
    side_output = rows.selectExpr(
        *("user", "email", "'too_late' reason", "INTERVAL '5' SECOND lateness"),
        *("ts watermark", "struct(user, email) row"),
    )
    return side_output.transform(observe.account_late(**parameters))


# Each with a column `email` that can be unshredded.
CASES: dict[str, Case] = {
    "guard": lambda rows: rows.transform(time.guard("ts", arrival="received")),
    "correct_clock": lambda rows: rows.transform(
        time.correct_clock("ts", sent="sent", received="received")
    ),
    "processing_time": lambda rows: rows.transform(time.processing_time()).drop("processed_at"),
    "lookup, by subject and value": lambda rows: rows.transform(
        joins.lookup(rows.groupBy(PAIR).agg(F.min("age").alias("least")), by=PAIR)
    ),
    "lookup of a value": lambda rows: rows.drop("email").transform(
        joins.lookup(rows.where("age < 33").select(PAIR), by="user")
    ),
    "fold": lambda rows: (
        rows.where("age < 33")
        .selectExpr(*PAIR, "age", INSERTED)
        .transform(changes.fold("user", sequence="age"))
    ),
    "fold, by subject and value": lambda rows: (
        rows.where("age < 36")
        .selectExpr(*PAIR, "age", INSERTED)
        .transform(changes.fold(PAIR, sequence="age"))
    ),
    "compact": lambda rows: rows.selectExpr(*PAIR, "age", INSERTED).transform(
        changes.compact("user", sequence="age", retention=1)
    ),
    "from_debezium, beside the record": lambda rows: debezium(rows, "user string", keep=["email"]),
    "from_debezium, in the record": lambda rows: decoded(
        rows, debezium(rows, "user string, email binary", encoded(rows))
    ),
    "from_delta": lambda rows: (
        rows.selectExpr(
            *PAIR,
            INSERTED,
            "cast(age AS bigint) _commit_version",
            "ts _commit_timestamp",
        )
        .transform(changes.from_delta("user"))
        .drop("rejected")
    ),
    "kafka_events, beside the record": lambda rows: kafka(rows, "user string", keep=["email"]),
    "kafka_events, in the record": lambda rows: decoded(
        rows, kafka(rows, "user string, email binary", encoded(rows))
    ),
    "furthest_ahead": lambda rows: (
        rows.withColumn("ts", F.col("ts") + F.expr("INTERVAL 1000 YEARS"))
        .transform(observe.furthest_ahead("ts", by=PAIR))
        .drop("ahead")
    ),
    "account_late": lambda rows: late(rows, by="user", producer="email").withColumnRenamed(
        "producer", "email"
    ),
    "merge_accounts": lambda rows: late(rows, by=PAIR).transform(observe.merge_accounts(by=PAIR)),
    "lateness_needed": lambda rows: late(rows, by=PAIR).transform(observe.lateness_needed(by=PAIR)),
    "group": lambda rows: rows.groupBy(PAIR).count(),
}


def test_operators_without_a_state_give_the_same_result(spark: SparkSession) -> None:
    keys = all_keys(spark)
    frame = spark.createDataFrame(SCRIPT[1], spark_schema(EVENT)).selectExpr(
        "*", "ts + INTERVAL 1 SECOND sent", "ts + INTERVAL 2 SECONDS received"
    )
    unshred = erasure.unshred({"email": "string"}, subject="user", keys=keys)
    shredded = frame.transform(erasure.shred("email", subject="user", keys=keys)).drop("rejected")
    for name, case in CASES.items():
        found = rows_of(case(shredded).transform(unshred))
        assert [row.pop("rejected") for row in found] == [None] * len(found), name
        wanted = rows_of(case(frame))
        assert wanted, name
        assert as_multiset(found) == as_multiset(wanted), name
    is_ann = "email = 'ann0@example.com'"
    assert frame.where(is_ann).count() > shredded.where(is_ann).count() == 0


def test_columns_of_sketches_have_the_same_estimates(spark: SparkSession) -> None:
    """The sketches of two columns, whose values are bound to one name."""
    keys = all_keys(spark)
    frame = spark.createDataFrame(SCRIPT[1], spark_schema(EVENT)).withColumn(
        "other", F.expr("if(age < 35, email, concat('new ', email))")
    )
    names = {"other": "email"}
    shred = erasure.shred(["email", "other"], subject="user", keys=keys, names=names)
    results, similarities = [], []
    for rows in (frame, frame.transform(shred).drop("rejected")):
        dtype = rows.schema["email"].dataType.simpleString()
        hll, theta = sketches.hll_sketch_agg("email"), sketches.theta_sketch_agg("email")
        minhash = sketches.minhash_sketch_agg("email")
        counts = sketches.count_min_sketch("email", item_type=dtype)
        of_users = windows.tumbling(
            "1 hour",
            time="ts",
            by="user",
            delay="0 seconds",
            agg={
                "hll": hll,
                "theta": theta,
                "theta_other": sketches.theta_sketch_agg("other"),
                "minhash": minhash,
                "minhash_other": sketches.minhash_sketch_agg("other"),
                "counts": counts,
                "filter": sketches.bloom_filter_agg("email", capacity=100),
                "one": agg.last("email", tie_break="age"),
            },
        )
        pair = ("theta", "theta_other")
        estimates = (
            rows.transform(of_users)
            .withColumns(
                {
                    "union": sketches.union(*pair, like=theta),
                    "intersection": sketches.intersection(*pair, like=theta),
                    "difference": sketches.difference(*pair, like=theta),
                    "image": sketches.to_datasketches("theta", like=theta),
                }
            )
            .withColumn("again", sketches.from_datasketches("image", like=theta))
            .select(
                "user",
                *(
                    sketches.estimate(name, like=theta)["estimate"].alias(name)
                    for name in (*pair, "union", "intersection", "difference", "again")
                ),
                sketches.estimate("hll", like=hll)["estimate"].alias("hll"),
                sketches.overlap(*pair, like=theta).alias("overlap"),
                sketches.similarity("minhash", "minhash_other", like=minhash).alias("similarity"),
                sketches.estimate_count("counts", "one", like=counts).alias("count"),
                "filter",
            )
        )
        found = rows_of(estimates.orderBy("user"))
        # The filter of one user has the values of this one only, for values that are shredded.
        filters = [row.pop("filter") for row in found]
        # An estimate from few hashes, which differ with the values; the true one is the same.
        similarities.append([row.pop("similarity") for row in found])
        conditions = [
            sketches.may_contain(blob, "email").alias(f"in {user}")
            for user, blob in zip(USERS, filters, strict=True)
        ]
        contained = rows_of(rows.select("user", "age", *conditions).orderBy("age"))
        assert all(
            row[f"in {user}"] == (row["user"] == user) for row in contained for user in USERS
        )
        compared = changes.differences(
            rows.select("user", "age", "email"),
            rows.where("age > 30").selectExpr("user", "age", "other email"),
            key=["user", "age"],
        )
        assert compared.missing == 0 < compared.different
        results.append((found, contained, compared.extra, compared.different))
    assert results[0] == results[1]
    assert similarities[0] == pytest.approx(similarities[1], abs=0.2)
    assert {row["difference"] for row in results[0][0]} != {0}
    assert {row["intersection"] for row in results[0][0]} != {0}
    assert {row["count"]["upper"] for row in results[0][0]} == {2}


def test_a_micro_batch_is_written_to_several_targets_without_a_readable_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys = all_keys(spark)
    frame = spark.createDataFrame(SCRIPT[0], spark_schema(EVENT))
    shredded = frame.transform(erasure.shred(**SHRED, keys=keys))
    logs = {name: str(tmp_path / name) for name in ("log", "copy")}
    sink = sinks.side_outputs(
        results=sinks.fan_out({name: sinks.parquet(path) for name, path in logs.items()}),
        rejected=sinks.parquet(str(tmp_path / "rejected")),
        operator="shred",
    )
    for _ in range(2):  # the second time it is skipped
        sink.write(shredded, query="log")
    wanted = as_multiset(rows_of(frame.where(F.col("user").isin(*USERS))))
    unshred = erasure.unshred(
        {"email": "string", "age": "int"}, subject="user", keys=keys, rejected="fail"
    )
    for path in logs.values():
        log = sinks.read_parquet(path, spark=spark)
        assert as_multiset(rows_of(log.transform(unshred).drop("rejected"))) == wanted
    rejected = sinks.read_parquet(str(tmp_path / "rejected"), spark=spark)
    assert sorted(row.reason for row in rejected.collect()) == ["no_key", "no_subject"]
    assert erasure.search_frame(rejected, {"values": "example.com"}).matches == ()
    found = erasure.search_files(tmp_path, {"values": "example.com"})
    assert (found.matches, found.files > 3) == ((), True)
