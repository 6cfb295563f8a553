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

__all__ = ["HOURS", "Run", "changes", "late", "read_table", "write_tables"]

HOURS = {"hourly": 1, "three_hours": 3}
"""The windows by name, and the hours that each is long; a window begins every hour."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run was asked to do, and what the operators counted.

    Parameters
    ----------
    days : int, optional
        Days from the storm on; None: the year.
    every : int
        Minutes of arrivals in a micro-batch on the day of the storm.
    batches : int
        Micro-batches in the log.
    watermark : str
        The operators' own watermark at the end, in ISO 8601.
    counts : dict
        Totals of each of the windows, under their name.
    """

    days: int | None
    every: int
    batches: int
    watermark: str
    counts: dict[str, dict[str, int]]

    @property
    def end(self) -> pd.Timestamp:
        """The watermark as an instant."""
        return pd.Timestamp(dt.datetime.fromisoformat(self.watermark))

    def write(self, out: Path) -> None:
        """Keep it beside the tables."""
        (out / "run.json").write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def read(out: Path) -> Run:
        """The last run into this folder."""
        return Run(**json.loads((out / "run.json").read_text()))


def changes(out: Path, windows: str) -> pa.Table:
    """Everything that was published of these windows, in the order of publication."""
    return _batches(out / "changes", windows)


def late(out: Path, windows: str) -> pd.DataFrame:
    """The rows that came too late, once per window that they missed."""
    table = _batches(out / "late", windows)
    row = table.column("row").combine_chunks()
    told = table.select(["origin", "window_start", "reason"])
    for name in ("flight_id", "delay"):
        told = told.append_column(name, pc.struct_field(row, name))
    frame: pd.DataFrame = told.to_pandas()
    return frame


def write_tables(out: Path) -> None:
    """Fold what was published into the final tables.

    Raises
    ------
    ChangeStreamError
        A change stream contradicts itself: a row is taken back that was not published, say.
    """
    for windows in HOURS:
        published = changes(out, windows)
        schema = published.schema.remove(published.schema.get_field_index("_change_type"))
        rows = pa.Table.from_pylist(fold(published), schema)
        path = _path(out, windows)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        pq.write_table(
            rows.sort_by([("window_start", "ascending"), ("origin", "ascending")]), draft
        )
        os.replace(draft, path)


def read_table(out: Path, windows: str) -> pd.DataFrame:
    """The final table of these windows, as it is on disk."""
    # The reader would make a column of the folder's name.
    frame: pd.DataFrame = pq.read_table(_path(out, windows), partitioning=None).to_pandas()
    return frame


def _path(out: Path, windows: str) -> Path:
    return out / "table" / f"windows={windows}" / "part.parquet"


def _batches(folder: Path, windows: str) -> pa.Table:
    # One after the other, because the order of the micro-batches matters.
    files = sorted(folder.glob("batch=*/*.parquet"))
    table = pa.concat_tables(pq.read_table(path, partitioning=None) for path in files)
    return table.filter(pc.field("windows") == windows).drop_columns("windows")
