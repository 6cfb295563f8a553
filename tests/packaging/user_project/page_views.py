"""What a user of streamops writes, for type checkers: every family once, and the types of results."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession

import streamops
from streamops import aggregates as agg
from streamops import (
    changes,
    errors,
    joins,
    observe,
    patterns,
    process,
    sinks,
    sketches,
    sources,
    time,
    windows,
)
from streamops.testing import at, replay


def count_views(views: DataFrame) -> DataFrame:
    """Views and visitors of each page."""
    operator = windows.tumbling(
        "10 minutes",
        time="ts",
        by=["page"],
        agg={"views": agg.count(), "visitors": agg.approx_count_distinct("user")},
        delay=timedelta(seconds=30),
        allowed_lateness="1 hour",
        stragglers="update",
    ).options(name="views", shards=16, state_api="auto", expected_keys=500)
    return views.transform(time.guard("ts")).transform(operator)


def join_orders(orders: DataFrame, payments: DataFrame, customers: DataFrame) -> DataFrame:
    """Orders with their payment and the customer as of the order."""
    paid = joins.interval(
        payments,
        lower="0 seconds",
        upper="1 hour",
        by="order",
        time="ts",
        how="left",
        delay="1 minute",
    )
    as_of = joins.asof(customers, by="customer", time="ts", version="since", sequence="lsn")
    return orders.transform(paid).transform(as_of)


def find_fraud(payments: DataFrame) -> DataFrame:
    """Three failures within ten minutes."""
    failures = patterns.match(
        "fail{3}",
        time="ts",
        by="card",
        define={"fail": "status = 'failed'"},
        within="10 minutes",
        measures={"first": patterns.first("fail", "ts"), "n": patterns.count("fail")},
        delay="1 minute",
    )
    return payments.transform(failures)


def read_and_write(spark: SparkSession, records: DataFrame) -> None:
    """From Kafka to PostgreSQL, with a current table."""
    parsed = records.transform(sources.kafka_events("id bigint, ts timestamp"))
    current = parsed.transform(changes.normalize("id", sequence="ts", horizon="1 day", time="ts"))
    sink = sinks.parquet("/data/current")
    current.writeStream.foreachBatch(sink).start()
    spark.streams.addListener(observe.AlarmListener(observe.LateRows(1_000), notify=print))


def read_error() -> str:
    """The code and the remedy of an error."""
    try:
        windows.tumbling("10m", time="ts", agg={"n": agg.count()})
    except errors.SpecError as error:
        return f"{error.code}: {error.fix}"
    return ""


def test_one_window() -> None:
    """Without Spark."""
    operator = windows.tumbling("10 seconds", time="ts", agg={"n": agg.count()}, delay="1 second")
    results = replay(operator, [[{"ts": at(1)}], [{"ts": at(20)}]])
    assert results[-1].rows[0]["n"] == 1


def main() -> None:
    """A session, and the results and late rows of a batch."""
    spark = streamops.local_session(cores=2)
    results, late = streamops.split_side_output(spark.table("batch"))
    results.show()
    late.show()
    audience = agg.approx_count_distinct_theta("user")
    results.select(sketches.union("a", "b", like=audience))
    assert process.per_key is not None
