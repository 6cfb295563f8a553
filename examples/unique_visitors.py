"""Unique visitors: sketches of every hour, rolled up to days without counting anybody twice.

Run it with ``python -m examples.unique_visitors``.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import bar, run, write
from streamops import aggregates as agg
from streamops import changes, sinks, sketches, windows

VIEWS = "visitor int, at timestamp"

# 4 KB for an hour, and a standard error of 1.6 %, however many visitors there are. A view that is
# delivered twice does not change a sketch.
sketch = sketches.hll_sketch_agg("visitor", p=12)
per_hour = windows.tumbling(
    "1 hour",
    time="at",
    agg={"visitors": sketch},
    # Late views correct their hour until the report of the day before is read.
    delay="10 minutes",
    allowed_lateness="1 day",
    stragglers="update",
    too_late="route",
).options(name="hours")
per_day = windows.calendar(
    "day",
    "Europe/Lisbon",  # where the report is read
    time="window_start",
    agg={
        "visitors": sketches.merge("visitors", like=agg.approx_count_distinct("visitor", p=12)),
        "sum_of_hours": agg.sum("in_hour"),
    },
)


def start(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Start the query from page views to the sketches of hours, and of those that late views change."""
    views = spark.readStream.schema(VIEWS).option("maxFilesPerTrigger", 1).json(f"{folder}/views")
    hours, late = sinks.parquet(f"{folder}/hours"), sinks.parquet(f"{folder}/late")
    sink = sinks.side_outputs(results=hours, rejected=late, operator="hours", time="at")
    query = views.transform(per_hour).writeStream.queryName("unique_visitors").foreachBatch(sink)
    query = query.option("checkpointLocation", f"{folder}/checkpoint")
    return query.trigger(availableNow=True).start()  # in production: processingTime="1 minute"


def roll_up(published: DataFrame) -> DataFrame:
    """The visitors of every day, from the last revision of every hour."""
    hours = published.transform(changes.fold("window_start")).drop("revision")
    in_hour = sketches.estimate("visitors", like=sketch)["estimate"]
    return hours.withColumn("in_hour", in_hour).transform(per_day)


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated views, and draw the visitors of every day."""
    write(data.page_views(), folder / "views")
    start(spark, folder).awaitTermination()
    days = sinks.read_parquet(f"{folder}/hours", spark=spark).transform(roll_up)
    days.orderBy("window_start").select(
        F.to_date("window_start").alias("day"),
        "visitors.estimate",
        "visitors.lower",
        "visitors.upper",
        "sum_of_hours",
        bar(F.lit(0), F.col("visitors.estimate") / 50).alias("visitors, 50 each"),
    ).show(truncate=False)


if __name__ == "__main__":
    run(main)
