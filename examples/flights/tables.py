"""The files of a run: published changes, late rows, and the final tables."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.flights.contents import OUTPUTS, query_of
from examples.flights.sketching import years
from streamops.testing import fold

__all__ = ["OtherVersionError", "Run", "changes", "late", "read_table", "write_tables"]


_LATE = pa.schema(
    [
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("reason", pa.string()),
        ("watermark", pa.timestamp("us", tz="UTC")),
        ("flight_id", pa.int64()),
        ("origin", pa.string()),
        ("scheduled", pa.timestamp("us", tz="UTC")),
        ("delay", pa.int64()),
    ]
)


class OtherVersionError(Exception):
    """The folder holds a run that another version of this made."""


_FORMAT = 7
"""Of a run's folder: goes up with every change in what a check reads there."""


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments of a run, and the metrics of the operators.

    Parameters
    ----------
    days : int, optional
        Days from the storm on; None: the year.
    every : int
        Minutes of arrivals in a file on the day of the storm.
    files : int
        Files of the log of departures.
    watermarks : dict of str to str
        The operators' own watermark at the end of each query, in ISO 8601.
    counts : dict
        Totals of each operator, under its name.
    """

    days: int | None
    every: int
    files: int
    watermarks: dict[str, str]
    counts: dict[str, dict[str, int]]

    def end(self, query: str) -> pd.Timestamp:
        """The watermark of a query as an instant."""
        return pd.Timestamp(dt.datetime.fromisoformat(self.watermarks[query]))

    def write(self, out: Path) -> None:
        """Write it beside the tables."""
        content = {"format": _FORMAT, **asdict(self)}
        (out / "run.json").write_text(json.dumps(content, indent=1))

    @staticmethod
    def read(out: Path) -> Run:
        """The last run into this folder.

        Raises
        ------
        OtherVersionError
            Another version of this made it.
        """
        content = json.loads((out / "run.json").read_text())
        if content.pop("format", None) != _FORMAT:
            message = f"The run in {out} was made by another version: run it again without --check."
            raise OtherVersionError(message)
        return Run(**content)


def changes(out: Path, windows: str) -> pa.Table:
    """Everything that was published of these windows, in the order of publication."""
    table = _batches(out, "changes", windows)
    assert table is not None, "every query publishes something"
    return table.select([*OUTPUTS[windows].columns, "_change_type"])


def late(out: Path, windows: str) -> pd.DataFrame:
    """The rows that were too late, once per window that they missed."""
    table = _batches(out, "late", windows)
    rows = _LATE.empty_table()
    if table is not None:
        row = table.column("row").combine_chunks()
        of_row = [pc.struct_field(row, name) for name in _LATE.names[3:]]
        rows = pa.table([*(table.column(name) for name in _LATE.names[:3]), *of_row], _LATE)
    frame: pd.DataFrame = rows.to_pandas()
    return frame


def write_tables(out: Path) -> None:
    """Fold what was published into the final tables.

    Raises
    ------
    ChangeStreamError
        A change stream contradicts itself: it retracts a row that was not published, say.
    """
    for windows, about in OUTPUTS.items():
        order = [(name, "ascending") for name in (*about.key[1:], *about.key[:1])]
        table = _folded(changes(out, windows), about.key)
        _keep(out, windows, table.sort_by(order) if order else table)
        if windows == "airline_days":
            _keep(out, "airline_years", years(table))


def _keep(out: Path, windows: str, table: pa.Table) -> None:
    path = _path(out, windows)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    pq.write_table(table, draft)
    os.replace(draft, path)


def read_table(out: Path, windows: str) -> pd.DataFrame:
    """The final table of these windows, as it is on disk."""
    # The reader would make a column of the folder's name.
    frame: pd.DataFrame = pq.read_table(_path(out, windows), partitioning=None).to_pandas()
    return frame


def _folded(published: pa.Table, key: tuple[str, ...]) -> pa.Table:
    # `fold` takes one row at a time. A row that was published once is final.
    # Without a key there is one row.
    every = np.ones(len(published), bool)
    again = published.select(key).to_pandas().duplicated(keep=False) if key else every
    alone = pc.and_(
        pc.equal(published.column("_change_type"), "insert"), pc.invert(pa.array(again))
    )
    untouched = published.filter(alone).drop_columns("_change_type")
    rest = fold(published.filter(pc.invert(alone)), key=key)
    return pa.concat_tables([untouched, pa.Table.from_pylist(rest, untouched.schema)])


def _path(out: Path, windows: str) -> Path:
    return out / "table" / f"windows={windows}" / "part.parquet"


def _batches(out: Path, output: str, windows: str) -> pa.Table | None:
    # One after the other, because the order of the micro-batches matters.
    folder = out / "published" / query_of(windows)
    files = sorted(folder.glob(f"batch=*/output={output}/*.parquet"))
    if not files:
        return None
    table = pa.concat_tables(
        [pq.read_table(path, partitioning=None) for path in files], promote_options="default"
    )
    return table.filter(pc.field("windows") == windows).drop_columns("windows")
