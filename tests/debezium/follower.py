"""A process that reads the topics of `tests.debezium.histories` until it is killed, and stores their changes."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streamops import changes
from tests.kafka.broker import jars


def main(bootstrap: str, folder: Path, until: str) -> None:
    """Read on, where the last process ended."""
    from tests.debezium.histories import SCHEMA

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jars("connector"))))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribePattern", r"(pg|my)\..*\.h[0-9]+")
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2_000)
    reader = reader.option("kafka.metadata.max.age.ms", "1000")
    added = ["topic", "partition", "offset"]
    reading = changes.from_debezium(SCHEMA, key="id", message_key="key", keep=added)
    frame = reader.load().transform(reading)
    writer = frame.writeStream.format("parquet").option("path", str(folder / "changes"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = (
        writer.trigger(availableNow=True)
        if until == "to-end"
        else writer.trigger(processingTime="1 second")
    )
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
