"""A query on Spark until it has nothing more to say, and what it put out in each micro-batch."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from streamops.kernel.codec import ipc_read, ipc_write
from streamops.testing.batches import canonical

__all__ = ["read_table", "run_query", "scratch"]


def run_query(frame: DataFrame, folder: Path, timeout: int) -> list[tuple[int, pa.Table, Any]]:
    """Number, rows and progress of each micro-batch, under the trigger ``availableNow``.

    Parameters
    ----------
    frame : DataFrame
        A streaming frame.
    folder : Path
        Where the checkpoint and the output are kept; a query goes on where one stopped.
    timeout : int
        Seconds after which the query is stopped.

    Raises
    ------
    TimeoutError
        The query did not end in time.
    """
    output = folder / "output"
    output.mkdir(parents=True, exist_ok=True)
    before = set(output.iterdir())
    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(functools.partial(_keep, str(output)))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(timeout):
            message = f"the query did not end within {timeout} seconds"
            raise TimeoutError(message)
        progress = {p.batchId: p for p in query.recentProgress if "addBatch" in p.durationMs}
    finally:
        query.stop()
    files = [(int(file.stem), file) for file in sorted(set(output.iterdir()) - before)]
    return [(number, read_table(file), progress[number]) for number, file in files]


def _keep(output: str, batch: DataFrame, number: int) -> None:
    # In a file, and whole or not at all: under Connect this runs in a process of the server.
    file = Path(output) / f"{number:09d}.arrow"
    unfinished = file.with_suffix(".tmp")
    unfinished.write_bytes(ipc_write(batch.toArrow()))
    unfinished.replace(file)


def read_table(file: Path) -> pa.Table:
    """The table of a file, with the types that Spark hands to Python."""
    table = pq.read_table(file) if file.suffix == ".parquet" else ipc_read(file.read_bytes())
    return table.cast(canonical(table.schema))


@contextlib.contextmanager
def scratch(directory: str | os.PathLike[str] | None) -> Iterator[Path]:
    """The directory, or a temporary one."""
    if directory is not None:
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory(prefix="streamops-") as folder:
        yield Path(folder)
