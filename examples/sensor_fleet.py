"""A fleet of sensors with wrong clocks: how warm it was in every half hour, by the right time.

Run it with ``python -m examples.sensor_fleet``.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import run, write
from streamops import aggregates as agg
from streamops import changes, sinks, time, windows

READINGS = """sensor string, celsius double,
    measured_at timestamp, sent_at timestamp, received_at timestamp"""

# A sensor is off by what its clock shows when it sends, compared with the server's clock on receipt. The
# fastest of its messages of the last hour counts, as slow ones look like a clock that is behind.
correct = time.track_clock(
    "measured_at", by="sensor", sent="sent_at", received="received_at", step="5 minutes"
).options(name="clocks")
temperatures = windows.tumbling(
    "30 minutes",
    time="corrected_time",
    by="sensor",
    # A reading that is delivered twice changes neither.
    agg={"celsius": agg.max("celsius"), "by_own_clock": agg.min("measured_at")},
    # Sensors send every quarter of an hour. One that was offline sends what it has stored: its windows
    # are corrected for a day, and whatever is later is stored separately.
    delay="20 minutes",
    allowed_lateness="1 day",
    stragglers="update",
    too_late="route",
).options(name="temperatures")


def start(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Start the query from readings to temperatures, and revisions of those that late readings change."""
    readings = spark.readStream.schema(READINGS).option("maxFilesPerTrigger", 1)
    sink = sinks.side_outputs(
        results=sinks.parquet(f"{folder}/temperatures"),
        rejected=sinks.parquet(f"{folder}/late"),
        operator="temperatures",
        time="corrected_time",
    )
    return (
        readings.json(f"{folder}/readings")
        .transform(correct)
        .transform(temperatures)
        .writeStream.queryName("sensor_fleet")
        .foreachBatch(sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # in production: processingTime="1 minute"
        .start()
    )


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated readings, and print when each sensor was warmest."""
    write(data.readings(), folder / "readings")
    start(spark, folder).awaitTermination()
    published = sinks.read_parquet(f"{folder}/temperatures", spark=spark)
    current = published.transform(changes.fold(["sensor", "window_start"]))
    warmest = current.groupBy("sensor").agg(F.max_by(F.struct("*"), "celsius").alias("at"))
    warmest.orderBy("sensor").select(
        "sensor", F.round("at.celsius", 1).alias("warmest"), "at.window_start", "at.by_own_clock"
    ).show(truncate=False)


if __name__ == "__main__":
    run(main)
