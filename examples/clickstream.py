"""Clickstream sessions: the visits of users to a shop, which end after half an hour without a click.

Run it with ``python -m examples.clickstream``.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import OPENING, bar, run, write
from streamops import aggregates as agg
from streamops import sinks, sketches, windows

CLICKS = "click int, user string, page string, at timestamp"

# An app sends a click again until it is acknowledged, at most for a day.
once = sketches.seen(
    "click", capacity=1_000_000, false_positive_rate=1e-6, time="at", horizon="1 day"
)
visits = windows.session(
    "30 minutes",
    time="at",
    by="user",
    agg={
        "clicks": agg.count(),
        "entry": agg.first("page", tie_break="click"),
        "exit": agg.last("page", tie_break="click"),
    },
    # Most clicks arrive within seconds. Those of a phone without network, up to hours later, are not
    # worth the wait: they are stored separately, with the reason.
    delay="5 minutes",
    stragglers="route",
).options(name="visits")


def start(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Start the query from the clicks in a folder to visits and late clicks."""
    clicks = spark.readStream.schema(CLICKS).option("maxFilesPerTrigger", 1)
    sink = sinks.side_outputs(
        results=sinks.parquet(f"{folder}/visits"),
        rejected=sinks.parquet(f"{folder}/late"),
        operator="visits",
        time="at",
    )
    return (
        clicks.json(f"{folder}/clicks")
        .transform(once)
        .transform(visits)
        .writeStream.queryName("clickstream")
        .foreachBatch(sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # in production: processingTime="10 seconds"
        .start()
    )


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated clicks, and draw the visits along the day."""
    write(data.clicks(), folder / "clicks")
    start(spark, folder).awaitTermination()
    begin, end = (F.unix_timestamp(name) / 600 for name in ("window_start", "window_end"))
    day = bar(begin - OPENING.timestamp() / 600, end - begin).alias("from 8:00, ten minutes each")
    visits = sinks.read_parquet(f"{folder}/visits", spark=spark).orderBy("user", "window_start")
    visits.select("user", "clicks", "entry", "exit", day).show(50, truncate=False)
    late = sinks.read_parquet(f"{folder}/late", spark=spark)
    late.orderBy("time").select("reason", "time", "lateness").show(truncate=False)


if __name__ == "__main__":
    run(main)
