"""The logs that the job reads: the same instants cut each of them into files."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from examples.flights.flights import NEW_YORK, STORM

__all__ = ["borders", "columns_of", "files_of", "write_log"]

_SPARK = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}


def borders(every: dt.timedelta) -> pd.DatetimeIndex:
    """Instants at which the log is cut into micro-batches.

    One batch a quarter, and on the day of the storm, from six to midnight, one batch for each
    `every` of arrivals.
    """
    quarters = pd.date_range("2013-01-01", "2013-10-01", freq="QS", tz=NEW_YORK)
    morning = pd.Timestamp(STORM, tz=NEW_YORK) + pd.Timedelta(hours=6)
    midnight = pd.Timestamp(STORM + dt.timedelta(days=1), tz=NEW_YORK)
    live = pd.date_range(morning, midnight, freq=every)
    cuts: pd.DatetimeIndex = quarters.union(live).union(pd.DatetimeIndex([midnight]))
    return cuts.tz_convert("UTC").as_unit("us")


def files_of(times: pd.Series, cuts: pd.DatetimeIndex, first: pd.Series | None = None) -> pd.Series:
    """The number of the file of a log that each row is in.

    Parameters
    ----------
    times : Series
        When each of them arrived.
    cuts : DatetimeIndex
        Where a file ends and the next one begins.
    first : Series, optional
        When rows of another log arrived that was cut before: no file of that one is empty, and
        this one has no more files.
    """
    piece = cuts.searchsorted(times, side="right")
    used = np.unique(piece if first is None else cuts.searchsorted(first, side="right"))
    number = np.minimum(used.searchsorted(piece), len(used) - 1)
    return pd.Series(number, index=times.index)


def columns_of(schema: pa.Schema) -> str:
    """The columns as Spark reads them."""
    return ", ".join(f"{field.name} {_SPARK.get(field.type, 'timestamp')}" for field in schema)


def write_log(
    rows: pd.DataFrame, numbers: pd.Series, count: int, folder: Path, schema: pa.Schema
) -> None:
    """Write rows as a log of micro-batches, one Parquet file each, unless it is already written.

    Modification times increase with the number of the file, so Spark reads them in order.

    Parameters
    ----------
    rows : DataFrame
        In the order of their arrival.
    numbers : Series
        The file of each row.
    count : int
        How many files there are. One that no row is in is empty.
    folder : Path
        Becomes the log. It appears whole, or not at all.
    schema : Schema
        The columns; the first identifies a row.
    """
    totals = (
        rows[schema.names[0]]
        .groupby(numbers)
        .agg(["size", "sum"])
        .reindex(range(count), fill_value=0)
    )
    contents = {"format": 3, "columns": columns_of(schema), "rows": totals.to_numpy().tolist()}
    # Spark does not look at names that begin with an underscore.
    contents_path = folder / "_contents.json"
    if contents_path.exists() and json.loads(contents_path.read_text()) == contents:
        return
    draft = folder.with_name(f"{folder.name}.draft")
    for old in (draft, folder):
        shutil.rmtree(old, ignore_errors=True)
    draft.mkdir(parents=True)
    table = pa.Table.from_pandas(rows, schema=schema, preserve_index=False)
    ends = totals["size"].cumsum()
    for number, (size, end) in enumerate(zip(totals["size"], ends, strict=True)):
        path = draft / f"{number:04d}.parquet"
        pq.write_table(table.slice(end - size, size), path)
        os.utime(path, (number + 1, number + 1))
    (draft / contents_path.name).write_text(json.dumps(contents))
    draft.rename(folder)
