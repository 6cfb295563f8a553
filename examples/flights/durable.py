"""The hourly windows through a sink, in a process of their own: ``python -m examples.flights.durable``.

The process may be killed at any time. Started again, it goes on where its checkpoint and the target are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from examples.flights.contents import OUTPUTS
from examples.flights.feeds import FEEDS
from examples.flights.log import columns_of
from streamops import sinks
from streamops.testing import fold

__all__ = ["LATE", "WINDOWS", "checkpoint", "main", "read_late", "read_windows", "results"]

WINDOWS = "hourly"
LATE = "hourly_late"


def results(out: Path, url: str | None) -> Any:
    """The sink of the windows: a table of PostgreSQL, or a folder of Parquet files."""
    if url is None:
        return sinks.parquet(str(out / "sink" / WINDOWS))
    return sinks.postgres(url, WINDOWS, key=OUTPUTS[WINDOWS].key)


def _late(out: Path, url: str | None) -> Any:
    return sinks.parquet(str(out / "sink" / LATE)) if url is None else sinks.postgres(url, LATE)


def checkpoint(out: Path) -> Path:
    """The checkpoint of the query."""
    return out / "checkpoint" / "sink"


def read_windows(out: Path, url: str | None) -> pa.Table:
    """The final table of the windows, as it is in the target."""
    columns = OUTPUTS[WINDOWS].columns
    if url is not None:
        return _query(url, WINDOWS, columns)
    # A folder has the change stream.
    published = sinks.read_parquet(str(out / "sink" / WINDOWS)).to_table()
    rows = fold(published.select([*columns, "_change_type"]), key=OUTPUTS[WINDOWS].key)
    return pa.Table.from_pylist(rows, published.select(columns).schema)


def read_late(out: Path, url: str | None) -> pa.Table:
    """The departures that were too late, as the target has them: the reason, and the row as JSON."""
    columns = ["reason", "row"]
    if url is not None:
        return _query(url, LATE, columns)
    return sinks.read_parquet(str(out / "sink" / LATE)).to_table().select(columns)


def _query(url: str, table: str, columns: Sequence[str]) -> pa.Table:
    driver: Any = import_module("adbc_driver_postgresql.dbapi")
    names = ", ".join(f'"{name}"' for name in columns)
    with driver.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f'SELECT {names} FROM "{table}"')
        found: pa.Table = cursor.fetch_arrow_table()
    # The server names the zone of its session.
    utc = pa.timestamp("us", "UTC")
    fields = [f.with_type(utc) if pa.types.is_timestamp(f.type) else f for f in found.schema]
    return found.cast(pa.schema(fields))


def main(arguments: Sequence[str]) -> None:
    """Run the query to the end of the log.

    Parameters
    ----------
    arguments : sequence of str
        The folder of the run, a file for what Spark logs, and the URL of PostgreSQL if there is one.
    """
    from examples.flights import session
    from examples.flights.job import OPERATORS

    out, log, url = Path(arguments[0]), Path(arguments[1]), next(iter(arguments[2:]), None)
    spark = session.start(log)
    rows = spark.readStream.schema(columns_of(FEEDS["departures"].schema))
    departures = rows.option("maxFilesPerTrigger", 1).parquet(str(out / "log" / "departures"))
    sink = sinks.side_outputs(
        results=results(out, url), rejected=_late(out, url), operator=WINDOWS, time="scheduled"
    )
    query = (
        departures.transform(OPERATORS[WINDOWS])
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint(out)))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
