"""Run the saga, and print its logs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from examples.feed import run
from examples.saga.job import REQUESTS, play
from streamops import sinks


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated requests, and print the steps of the orders and the logs of the seats."""
    play(spark, folder, REQUESTS)
    steps = sinks.read_parquet(f"{folder}/log_of_messages", spark=spark)
    steps.select("order", "version", "step", "entity", "op").orderBy("order", "version").show()
    outcomes = sinks.read_parquet(f"{folder}/log_of_commands", spark=spark)
    outcomes.select("entity", "key", "version", "type", "owner", "rejection").orderBy(
        "entity", "key", "ts", "command_id"
    ).show()


if __name__ == "__main__":
    run(main)
