"""Orders enriched as of event time: each order has the price that was valid when it was placed.

Run it with ``python -m examples.enriched_orders``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import run, write
from streamops import changes, joins, sinks, sketches

ORDERS = "order int, product string, pieces int, ordered_at timestamp"
PRICES = "product string, cents int, valid_from timestamp, version int, published_at timestamp"

# An order that is sent twice is one order.
once = sketches.seen(
    "order", capacity=1_000_000, false_positive_rate=1e-6, time="ordered_at", horizon="7 days"
)


def price(prices: DataFrame | None) -> Any:
    """Orders with the version of the price list that was valid at their time."""
    return joins.asof(
        prices,
        by="product",
        time="ordered_at",
        version="valid_from",
        sequence="version",
        # Days pass without a new price: orders do not wait for one. They wait for two minutes, in which
        # orders and prices arrive. A price that is corrected later corrects the orders of half a day.
        waits_for="facts",
        delay="2 minutes",
        allowed_lateness="12 hours",
        stragglers="answer",
        late_versions="retract",
        too_late="route",
    ).options(name="priced")


def start(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Start the query from orders and prices to priced orders, a change stream."""
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    orders = reader.schema(ORDERS).json(f"{folder}/orders")
    prices = reader.schema(PRICES).json(f"{folder}/prices").drop("published_at")
    priced, late = sinks.parquet(f"{folder}/priced"), sinks.parquet(f"{folder}/late")
    sink = sinks.side_outputs(results=priced, rejected=late, operator="priced", time="ordered_at")
    query = orders.transform(once).drop("seen", "seen_full").transform(price(prices)).writeStream
    query = query.queryName("enriched_orders").foreachBatch(sink)
    query = query.option("checkpointLocation", f"{folder}/checkpoint")
    return query.trigger(availableNow=True).start()  # in production: processingTime="10 seconds"


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated orders, and print what was sold at which price."""
    for name, batches in zip(("orders", "prices"), data.orders_and_prices(), strict=True):
        write(batches, folder / name)
    start(spark, folder).awaitTermination()
    published = sinks.read_parquet(f"{folder}/priced", spark=spark)
    priced = published.transform(changes.fold(rows="multiset"))
    priced.groupBy("product", "valid_from", "cents").agg(
        F.count("*").alias("orders"),
        F.sum("pieces").alias("pieces"),
        (F.sum(F.col("pieces") * F.col("cents")) / 100).alias("revenue"),
    ).orderBy("product", "valid_from").show(truncate=False)
    retracted = published.where("_change_type = 'update_preimage'").count()
    print(
        f"{priced.count()} orders, {retracted} of which got another price after they were published"
    )


if __name__ == "__main__":
    run(main)
