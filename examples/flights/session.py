"""The demo's Spark session: quick to start, and quiet."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamops

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start"]

_CONF = {
    # The JVM's optimising compiler pays off after minutes, and this is over sooner: without it
    # the job takes half the CPU time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Instants that other readers of Parquet take for instants, too.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def start(log: Path) -> SparkSession:
    """Start a local session whose JVM logs to a file.

    Three airports need one partition. Spark's errors reach Python as exceptions all the same.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with _output_to(log):
        return streamops.local_session(app_name="streamops demo", shuffle_partitions=1, conf=_CONF)


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    # The JVM and Spark's Python workers inherit the files that are open when it starts. They
    # would write over the lines of progress.
    streams = (sys.stdout, sys.stderr)
    originals = [os.dup(number) for number in (1, 2)]
    try:
        with path.open("wb") as file:
            for stream, number in zip(streams, (1, 2), strict=True):
                stream.flush()
                os.dup2(file.fileno(), number)
            yield
    finally:
        for stream, number, old in zip(streams, (1, 2), originals, strict=True):
            stream.flush()
            os.dup2(old, number)
            os.close(old)
