"""A job of two queries over files, in a process of its own: ``python -m tests.observe.supervised FOLDER TRIGGER``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamops
from streamops import aggregates as agg
from streamops import observe, sinks, windows
from streamops.testing import at, micro_batches

NAMES = ("first", "second")
BATCHES = 14
PER_TEN_SECONDS = windows.tumbling(
    "10 seconds", time="ts", by="k", agg={"n": agg.count(), "v": agg.sum("v")}, delay="1 second"
)


def rows(number: int) -> list[dict[str, Any]]:
    """The rows of a micro-batch. The last one closes all windows before its own."""
    start = 4 * number if number < BATCHES - 1 else 10_000
    return [{"k": f"k{i % 5}", "ts": at(start + i % 4), "v": i} for i in range(50)]


def write_inputs(spark: Any, folder: Path) -> None:
    """Write the inputs of both queries."""
    for name in NAMES:
        micro_batches(spark, map(rows, range(BATCHES)), directory=folder / name, source="files")


def starting(spark: Any, folder: Path, trigger: dict[str, Any]) -> Callable[[], Any]:
    """The function that starts a query. Each micro-batch takes longer than a stop."""

    def start() -> Any:
        frame = micro_batches(spark, [], directory=folder, source="files")
        target = sinks.parquet(str(folder / "output"))

        def write(batch: Any, number: int) -> None:
            with (folder / "calls").open("a") as calls:
                calls.write(f"{number}\n")
            time.sleep(0.5)
            target(batch, number)

        query = frame.transform(PER_TEN_SECONDS).writeStream.foreachBatch(write).trigger(**trigger)
        return query.option("checkpointLocation", str(folder / "checkpoint")).start()

    return start


def main(folder: Path, trigger: str) -> int:
    """Run the job, as a user would."""
    spark = streamops.local_session(shuffle_partitions=2)
    how = {"availableNow": True} if trigger == "availableNow" else {"processingTime": trigger}
    queries = {name: starting(spark, folder / name, how) for name in NAMES}
    return observe.supervise(queries, on_event=lambda event: print(event, flush=True))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
