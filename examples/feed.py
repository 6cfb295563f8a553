"""What the examples share: rows in the order of their arrival, a session to run in, and a bar for pictures."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

__all__ = ["MIDNIGHT", "OPENING", "Batches", "Row", "at", "bar", "deliver", "run", "write"]

Row: TypeAlias = dict[str, Any]
Batches: TypeAlias = list[list[Row]]

MIDNIGHT = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
"""Midnight of the day of the examples, a Monday."""
OPENING = MIDNIGHT + dt.timedelta(hours=8)
"""When its events begin."""
_NETWORK = 2
"""Mean seconds from an event to its arrival."""


def at(hour: int, minute: float = 0) -> dt.datetime:
    """A time of the day of the examples."""
    return MIDNIGHT + dt.timedelta(hours=hour, minutes=minute)


def deliver(
    rows: Iterable[Row],
    time: str,
    *,
    every: dt.timedelta = dt.timedelta(hours=2),
    since: dt.datetime = OPENING,
    late: float = 0.05,
    lateness: dt.timedelta = dt.timedelta(hours=5),
    twice: float = 0.02,
    seed: int = 1,
) -> Batches:
    """Divide rows into micro-batches, in the order in which an unreliable network delivers them.

    Most rows arrive seconds after they were sent, so that neighbours change their order. Some arrive much
    later, and some are delivered twice.

    Parameters
    ----------
    rows : iterable of dict
        The rows, in any order.
    time : str
        Column with the time at which a row is sent, from `since` on.
    every : timedelta
        Time of the arrivals in a micro-batch.
    since : datetime
        When the first micro-batch begins.
    late, twice : float
        Shares of the rows that arrive up to `lateness` late, and that are delivered twice.
    lateness : timedelta
        Maximum delay of a late row.
    seed : int
        The same seed gives the same micro-batches.
    """
    rng = random.Random(seed)
    arrivals: list[tuple[dt.datetime, Row]] = []
    for row in rows:
        for _ in range(2 if rng.random() < twice else 1):
            wait = dt.timedelta(seconds=rng.expovariate(1 / _NETWORK))
            if rng.random() < late:
                wait += rng.random() * lateness
            arrivals.append((row[time] + wait, row))
    arrivals.sort(key=lambda arrival: arrival[0])
    batches: Batches = [[] for _ in range((arrivals[-1][0] - since) // every + 1)]
    for arrived, row in arrivals:
        batches[(arrived - since) // every].append(row)
    return batches


def write(batches: Sequence[Sequence[Row]], folder: Path) -> None:
    """Write a file of JSON lines per micro-batch, as a collector of events leaves them.

    Modification times increase with the number of the file, so that Spark reads them in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, batch in enumerate(batches):
        file = folder / f"{number:04d}.json"
        file.write_text("".join(json.dumps(row, default=str) + "\n" for row in batch))
        os.utime(file, (number + 1, number + 1))


def bar(start: Column, length: Column) -> Column:
    """A bar of characters for pictures of text, at a position and of a length."""
    return F.concat(
        F.repeat(F.lit(" "), start.cast("int")), F.repeat(F.lit("#"), F.ceil(length).cast("int"))
    )


def run(example: Callable[[SparkSession, Path], None]) -> None:
    """Run an example in a local session, with its files in a temporary folder.

    If the command line names a folder, the files are there and stay, and another run continues.
    """
    from streamops import local_session

    with tempfile.TemporaryDirectory(prefix="streamops-") as temporary:
        # With little data, a second partition costs more time than it saves.
        spark = local_session(app_name="streamops examples", shuffle_partitions=1)
        try:
            example(spark, Path(*(sys.argv[1:2] or [temporary])))
        finally:
            spark.stop()
