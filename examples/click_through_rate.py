"""Click-through rate: which share of an ad's impressions was clicked on within half an hour.

Run it with ``python -m examples.click_through_rate``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import bar, run, write
from streamops import aggregates as agg
from streamops import joins, sinks, windows

IMPRESSIONS = "impression string, ad string, shown_at timestamp"
CLICKS = "click int, impression string, clicked_at timestamp"


def attribute(clicks: DataFrame | None) -> Any:
    """Impressions with their first click, if it follows within half an hour; else they expire."""
    return joins.interval(
        clicks,
        "0 seconds",
        "30 minutes",
        by="impression",
        time=("shown_at", "clicked_at"),
        how="left",
        matches="first",
        tie_break="click",
        # Ad servers and browsers report within seconds; what is later does not change a bill.
        delay="5 minutes",
        stragglers="route",
    ).options(name="attribution")


def rates(attributed: DataFrame) -> DataFrame:
    """The rate per ad and hour. An impression that was delivered twice counts once."""
    clicked = F.when(F.col("status") == "matched", F.col("impression"))
    counts = {
        "impressions": agg.count_distinct("impression", at_most=1_000_000),
        "clicked": agg.count_distinct("clicked", at_most=1_000_000),
    }
    per_hour = windows.tumbling("1 hour", time="shown_at", by="ad", agg=counts)
    counted = attributed.withColumn("clicked", clicked).transform(per_hour)
    return counted.withColumn("rate", F.col("clicked") / F.col("impressions"))


def start(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Start the query from impressions and clicks to attributed impressions, a table of facts."""
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    impressions = reader.schema(IMPRESSIONS).json(f"{folder}/impressions")
    clicks = reader.schema(CLICKS).json(f"{folder}/clicks")
    facts, late = sinks.parquet(f"{folder}/attributed"), sinks.parquet(f"{folder}/late")
    sink = sinks.side_outputs(results=facts, rejected=late, operator="attribution")
    query = impressions.transform(attribute(clicks)).writeStream.queryName("click_through_rate")
    query = query.foreachBatch(sink).option("checkpointLocation", f"{folder}/checkpoint")
    return query.trigger(availableNow=True).start()  # in production: processingTime="1 minute"


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated events, and draw the rate of every hour."""
    for name, batches in zip(("impressions", "clicks"), data.impressions_and_clicks(), strict=True):
        write(batches, folder / name)
    start(spark, folder).awaitTermination()
    hours = sinks.read_parquet(f"{folder}/attributed", spark=spark).transform(rates)
    percent = 100 * F.col("rate")
    drawn = {"percent": F.round(percent, 1), "one percent each": bar(F.lit(0), percent)}
    hours = hours.orderBy("ad", "window_start").withColumns(drawn).drop("window_end", "rate")
    hours.show(30, truncate=False)


if __name__ == "__main__":
    run(main)
