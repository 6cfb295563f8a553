"""Keeping systems in sync: a search index, a cache, a warehouse and a mirror follow the database of a shop.

Run it with ``python -m examples.systems_in_sync``. It starts the servers of all five, and stops them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.feed import run
from examples.shop import TABLES, Shop, changes_of, die, race, running
from streamops import sinks, sources


def follow(shop: Shop) -> dict[str, Any]:
    """A sink per system, which keeps the tables of the shop."""

    def tables(make: Callable[..., Any]) -> Any:
        # Of each row, the change with the highest version counts. Stores need a number to compare.
        keep = {table: make(table, key="id", sequence="version") for table in TABLES}
        return sinks.fan_out({t: sink.after(partial(changes_of, t)) for t, sink in keep.items()})

    return {
        "index": tables(partial(sinks.opensearch, shop.index.url)),
        "cache": tables(partial(sinks.redis, shop.cache.url)),
        "warehouse": tables(lambda t, **of: sinks.iceberg(shop.warehouse, f"shop.{t}", **of)),
        "mirror": tables(partial(sinks.sqlalchemy, shop.mirror)),
    }


def start(spark: SparkSession, folder: Path, shop: Shop, systems: Any) -> StreamingQuery:
    """Start the one query, from the outbox to all systems; it ends when it has read all events."""
    events = sources.outbox(shop.database, slot="systems", create="create").read_stream(spark)
    results, rejected = sinks.fan_out(systems), sinks.parquet(f"{folder}/rejected")
    sink = sinks.side_outputs(results=results, rejected=rejected, operator="outbox")
    return (
        events.writeStream.queryName("systems_in_sync")
        .foreachBatch(sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # in production: processingTime="1 second"
        .start()
    )


def main(spark: SparkSession, folder: Path) -> None:
    """Let the query die at two places, and two clients race: print how many rows differ from the database."""
    with running(folder) as shop:
        systems = follow(shop)
        between = systems | {"warehouse": systems["warehouse"].after(die)}
        print(f"{'rows that differ':31}", *map("{:>9}".format, systems))
        start(spark, folder, shop, systems).awaitTermination()  # from here on, it misses no event
        for step, targets in (
            ("the query has run", systems),
            ("it has died between two systems", between),
            ("it was started again", systems),
            ("it has died after the last one", systems | {"end": systems["index"].after(die)}),
            ("it was started again", systems),
        ):
            shop.trade(100)
            print(f"{'100 transactions':31}", *map("{:9}".format, shop.differences().values()))
            with suppress(StreamingQueryException):
                start(spark, folder, shop, targets).awaitTermination()
            print(f"{step:31}", *map("{:9}".format, shop.differences().values()))
        by_hand = race(shop)
        start(spark, folder, shop, systems).awaitTermination()
        by_log = sum(shop.differences().values())
        print(f"{by_hand:,} of 10,000 products differ by dual writes, {by_log} by the log")


if __name__ == "__main__":
    run(main)
