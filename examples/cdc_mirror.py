"""Change data capture: a table of PostgreSQL that mirrors the table of another database.

Run it with ``python -m examples.cdc_mirror``. It starts a server, Debian's package ``postgresql``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import run, write
from streamops import changes, sinks
from tests.servers.installed import postgres

RECORDS = "key string, value string"

read = changes.from_debezium("id bigint, name string, city string", key="id", message_key="key")
# Kafka may deliver a record twice, and after a rebalance older ones once more: the position in the log
# decides. A deleted key is remembered for as long as an older change of it may still arrive.
mirror = changes.apply(
    "id", sequence="_sequence", time="_changed_at", horizon="7 days", max_keys=10_000_000
).options(name="mirror")
# For new readers of the log: the last change of each customer, and recent deletes.
shorten = changes.compact("id", sequence="_sequence", time="_changed_at", retention="7 days")


def start(spark: SparkSession, folder: Path, url: str) -> StreamingQuery:
    """Start the query from Debezium's records to the mirror; rejected records go to another table."""
    records = spark.readStream.schema(RECORDS).option("maxFilesPerTrigger", 1)
    sink = sinks.side_outputs(
        results=sinks.postgres(url, "customers", key="id"),
        rejected=sinks.postgres(url, "customers_rejected"),
        operator="mirror",
    )
    return (
        records.json(f"{folder}/records")
        .transform(read)
        .transform(mirror)
        .writeStream.queryName("cdc_mirror")
        .foreachBatch(sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # in production: processingTime="5 seconds"
        .start()
    )


def query(url: str, sql: str, spark: SparkSession) -> DataFrame:
    """The result of a query in PostgreSQL."""
    driver: Any = import_module("adbc_driver_postgresql.dbapi")
    with driver.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return spark.createDataFrame(cursor.fetch_arrow_table())


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated records, print the mirror, and rebuild it from a compacted log."""
    with postgres() as server:
        if server is None:
            sys.exit("PostgreSQL or its drivers are not installed: apt-get install postgresql")
        write(data.customer_records()[0], folder / "records")
        start(spark, folder, server.url).awaitTermination()
        customers = query(server.url, "SELECT id, name, city FROM customers ORDER BY id", spark)
        customers.show(5)
        query(server.url, "SELECT output, reason FROM customers_rejected", spark).show()
    log = spark.read.schema(RECORDS).json(f"{folder}/records").transform(read)
    short = log.transform(shorten)
    rebuilt = short.transform(mirror).where("rejected IS NULL").select(*customers.columns)
    changes.differences(rebuilt, customers, key="id").raise_if_any()
    print(f"{short.count()} of {log.count()} changes make the same {rebuilt.count()} customers.")


if __name__ == "__main__":
    run(main)
