"""Fraud pattern: small payments that test a card, then a large one that the owner does not confirm.

Run it with ``python -m examples.fraud``.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import run, write
from streamops import patterns, sinks, sketches

EVENTS = "event int, card string, type string, amount double, at timestamp"

# A payment that is delivered twice would look like two tests of the card.
once = sketches.seen(
    "event", capacity=10_000_000, false_positive_rate=1e-6, time="at", horizon="2 days"
)
stolen = patterns.match(
    "test{2,} large !confirmed",
    define={name: name for name in ("test", "large", "confirmed")},
    time="at",
    by="card",
    # Without a confirmation, an alert is raised this long after the first test.
    within="15 minutes",
    measures={"tests": patterns.count("test"), "amount": patterns.last("large", "amount")},
    tie_break="event",
    # Terminals report within seconds, and a thief is fast: a longer delay would cost money. Terminals
    # that were offline are late, and somebody has to look at their payments.
    delay="1 minute",
    stragglers="route",
).options(name="stolen")


def classify(events: DataFrame) -> DataFrame:
    """Events with the conditions of the pattern, as columns: tests set them without Spark."""
    paid, confirmed = F.col("type") == "payment", F.col("type") == "confirmation"
    test, large = paid & (F.col("amount") < 5), paid & (F.col("amount") > 300)
    return events.withColumns({"test": test, "large": large, "confirmed": confirmed})


def start(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Start the query from payments and confirmations to alerts and late events."""
    events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
    sink = sinks.side_outputs(
        results=sinks.parquet(f"{folder}/alerts"),
        rejected=sinks.parquet(f"{folder}/late"),
        operator="stolen",
        time="at",
    )
    return (
        events.json(f"{folder}/events")
        .transform(once)
        .transform(classify)
        .transform(stolen)
        .writeStream.queryName("fraud")
        .foreachBatch(sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # in production: processingTime="1 second"
        .start()
    )


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated events, and print the alerts and the late events."""
    write(data.card_events(), folder / "events")
    start(spark, folder).awaitTermination()
    alerts = sinks.read_parquet(f"{folder}/alerts", spark=spark)
    alerts.orderBy("match_start").show(truncate=False)
    late = sinks.read_parquet(f"{folder}/late", spark=spark)
    late.groupBy("output", "reason").count().show(truncate=False)


if __name__ == "__main__":
    run(main)
