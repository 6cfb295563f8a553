"""What a run leaves on disk: what was published, what came too late, and the final tables."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamops.testing import fold

__all__ = [
    "QUERIES",
    "WINDOWS",
    "OtherVersionError",
    "Query",
    "Run",
    "Windows",
    "changes",
    "late",
    "query_of",
    "read_table",
    "write_tables",
]


@dataclass(frozen=True, slots=True)
class Windows:
    """How the results of one of the windows are told apart.

    Parameters
    ----------
    title : str
        What they are called where there is little room: eight characters at most.
    key : tuple of str
        The columns that no two results have in common.
    due : str
        The column with the instant at which a result is on time.
    of_a_row : int
        How many of them a row belongs to.
    lasting : bool
        Whether a result keeps its key when it is corrected. A session that grows does not.
    """

    title: str
    key: tuple[str, ...]
    due: str = "window_end"
    of_a_row: int = 1
    lasting: bool = True


WINDOWS = {
    "hourly": Windows("hourly", ("origin", "window_start")),
    "three_hours": Windows("3 hours", ("origin", "window_start"), of_a_row=3),
    "days": Windows("days", ("origin", "window_start", "window_end")),
    "working_days": Windows("sessions", ("tailnum", "window_start", "window_end"), lasting=False),
    "last_hour": Windows("sliding", ("origin", "scheduled"), due="scheduled"),
}
"""The windows by their name in the tables."""


@dataclass(frozen=True, slots=True)
class Query:
    """One of the queries over the log.

    Parameters
    ----------
    title : str
        What it is about.
    windows : tuple of str
        What it computes.
    files : int
        How many files of the log it takes as a micro-batch.
    """

    title: str
    windows: tuple[str, ...]
    files: int


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

QUERIES = {
    "hours": Query("Every hour, and the three hours before", ("hourly", "three_hours"), files=1),
    "days": Query(
        "Days in New York, working days of aircraft, the last hour at each departure",
        ("days", "working_days", "last_hour"),
        files=4,
    ),
}
"""The queries by name, in the order in which they run."""


def query_of(windows: str) -> str:
    """The query that computes these windows."""
    (query,) = (name for name, each in QUERIES.items() if windows in each.windows)
    return query


class OtherVersionError(Exception):
    """The folder holds a run that another version of this made."""


_FORMAT = 2
"""Of a run's folder: goes up with every change in what a check reads there."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run was asked to do, and what the operators counted.

    Parameters
    ----------
    days : int, optional
        Days from the storm on; None: the year.
    every : int
        Minutes of arrivals in a file on the day of the storm.
    files : int
        Files of the log.
    watermarks : dict of str to str
        The operators' own watermark at the end of each query, in ISO 8601.
    counts : dict
        Totals of each of the windows, under their name.
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
        """Keep it beside the tables."""
        told = {"format": _FORMAT, **asdict(self)}
        (out / "run.json").write_text(json.dumps(told, indent=1))

    @staticmethod
    def read(out: Path) -> Run:
        """The last run into this folder.

        Raises
        ------
        OtherVersionError
            Another version of this made it.
        """
        told = json.loads((out / "run.json").read_text())
        if told.pop("format", None) != _FORMAT:
            message = f"The run in {out} was made by another version: run it again without --check."
            raise OtherVersionError(message)
        return Run(**told)


def changes(out: Path, windows: str) -> pa.Table:
    """Everything that was published of these windows, in the order of publication."""
    about = WINDOWS[windows]
    ours = (*about.key, about.due, "departures", "mean_delay", "revision", "_change_type")
    table = _batches(out / "changes", windows)
    assert table is not None, "every micro-batch has a file of what it published"
    return table.select([*dict.fromkeys(ours)])


def late(out: Path, windows: str) -> pd.DataFrame:
    """The rows that came too late, once per window that they missed."""
    table = _batches(out / "late", windows)
    told = _LATE.empty_table()
    if table is not None:
        row = table.column("row").combine_chunks()
        of_row = [pc.struct_field(row, name) for name in _LATE.names[3:]]
        told = pa.table([*(table.column(name) for name in _LATE.names[:3]), *of_row], _LATE)
    frame: pd.DataFrame = told.to_pandas()
    return frame


def write_tables(out: Path) -> None:
    """Fold what was published into the final tables.

    Raises
    ------
    ChangeStreamError
        A change stream contradicts itself: a row is taken back that was not published, say.
    """
    for windows, about in WINDOWS.items():
        path = _path(out, windows)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        order = [(name, "ascending") for name in (*about.key[1:], about.key[0])]
        pq.write_table(_folded(changes(out, windows), about.key).sort_by(order), draft)
        os.replace(draft, path)


def read_table(out: Path, windows: str) -> pd.DataFrame:
    """The final table of these windows, as it is on disk."""
    # The reader would make a column of the folder's name.
    frame: pd.DataFrame = pq.read_table(_path(out, windows), partitioning=None).to_pandas()
    return frame


def _folded(published: pa.Table, key: tuple[str, ...]) -> pa.Table:
    # `fold` takes one row at a time. What was published once, and never touched again, stands.
    again = published.select(key).to_pandas().duplicated(keep=False)
    alone = pc.and_(
        pc.equal(published.column("_change_type"), "insert"), pc.invert(pa.array(again))
    )
    untouched = published.filter(alone).drop_columns("_change_type")
    rest = fold(published.filter(pc.invert(alone)), key=key)
    return pa.concat_tables([untouched, pa.Table.from_pylist(rest, untouched.schema)])


def _path(out: Path, windows: str) -> Path:
    return out / "table" / f"windows={windows}" / "part.parquet"


def _batches(folder: Path, windows: str) -> pa.Table | None:
    # One after the other, because the order of the micro-batches matters.
    files = sorted((folder / query_of(windows)).glob("batch=*/*.parquet"))
    if not files:
        return None
    table = pa.concat_tables(
        [pq.read_table(path, partitioning=None) for path in files], promote_options="default"
    )
    return table.filter(pc.field("windows") == windows).drop_columns("windows")
