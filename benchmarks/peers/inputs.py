"""The workloads of the comparison, and their rows in the formats that the systems read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.joins import HOUR_MS, JOINS
from benchmarks.stream import DELAY_MS, Phase
from benchmarks.workloads import COUNTED_MS, GAP_MS, LATENESS_MS, REACH_MS, Workload, prepare

WORKLOADS = {
    "tumbling": "W1 tumbling",
    "hopping": "W2 hopping 5/1",
    "session": "W3 session",
    "interval": "W4 left outer interval join",
    "distinct": "W5 approximate distinct",
    "sliding": "W6 sliding",
    "running": "W7 running state per key",
    "temporal": "W8 as-of join",
    "tables": "W9 table-table join",
    "corrections": "W10 corrections with retraction",
}
KEYS = (1_000, 100_000)
SMALL = 50
"""A run over a fiftieth of the keys, the rate and the rows: for the check, and for the cost of a start."""
SETTINGS = {
    "delay_ms": DELAY_MS,
    "gap_ms": GAP_MS,
    "reach_ms": REACH_MS,
    "counted_ms": COUNTED_MS,
    "lateness_ms": LATENESS_MS,
    "within_ms": HOUR_MS,
}
_TIMES = ("ts", "since")


def standard(windows: str, keys: int, divisor: int = 1) -> Workload:
    """Return a stream of a million rows in large micro-batches: 35 minutes of event time, without joins."""
    batches = 1 if windows in JOINS else 2  # after the first ones, which are half a million rows
    return Workload(keys, (Phase(500_000, 0, batches),), divisor, windows=windows)


def write(workload: Workload, form: str, cache: Path) -> dict[str, str]:
    """Write the rows in a format, once; return the file or folder of each input."""
    first = prepare(workload, cache)[0][0][0]
    folder = first.parent.parent
    if form == "parquet":
        return {name: str(folder / name) for name in workload.schemas}
    target = folder.with_name(f"{folder.name}-{form}")
    if not target.exists():
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        for name in workload.schemas:
            (partial / name).mkdir(parents=True)
            tables = [_in_millis(pq.read_table(file)) for file in sorted((folder / name).iterdir())]
            if form == "millis":
                pq.write_table(pa.concat_tables(tables), partial / name / "all.parquet")
                continue
            for number, table in enumerate(tables):
                csv.write_csv(table, partial / name / f"{number:05d}.csv")
        partial.rename(target)
    return {name: str(target / name) for name in workload.schemas}


def _in_millis(table: pa.Table) -> pa.Table:
    for name in set(_TIMES) & set(table.column_names):
        micros = table[name].cast(pa.int64())
        index = table.column_names.index(name)
        table = table.set_column(index, name, pc.divide(micros, 1_000))
    return table


def read_results(folder: Path) -> pd.DataFrame:
    """Read what a system wrote, as Spark would have written it."""
    parts = sorted(folder.rglob("*.parquet"))
    if parts:
        tables = [pq.read_table(part) for part in parts]
        found = pa.concat_tables([t for t in tables if t.num_rows] or tables[:1]).to_pandas()
    else:
        found = pd.concat(map(pd.read_csv, sorted(folder.rglob("*.csv"))), ignore_index=True)
    if "diff" in found:  # of Pathway: 1 adds a row, -1 takes one back
        found["_change_type"] = found["diff"].map({1: "insert", -1: "delete"})
        found = found.drop(columns=["time", "diff"])
    for name in ("ts", "since", "clicked", "window_start", "window_end"):
        if name in found and pd.api.types.is_numeric_dtype(found[name]):
            found[name] = pd.to_datetime(found[name], unit="ms")
        elif name in found and isinstance(found[name].dtype, pd.DatetimeTZDtype):
            found[name] = found[name].dt.tz_convert("UTC").dt.tz_localize(None)
    return found


def drop_open(found: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Drop what the watermark has not reached: a finite input that ends, ends all windows, but not in Spark."""
    inputs = workload.inputs()
    name = "since" if workload.windows == "temporal" else "ts"
    if workload.windows in ("running", "tables"):
        return found
    ends = [columns[name if name in columns else "ts"].max() for columns, _ in inputs.values()]
    watermark = pd.Timestamp(int(min(ends)) - DELAY_MS, unit="ms")
    match workload.windows:
        case "interval":
            undecided = found["clicked"].isna() & (
                found["ts"] + pd.Timedelta(HOUR_MS, "ms") > watermark
            )
            return found[~undecided]
        case "temporal":
            return found[found["ts"] <= watermark]
        case "sliding":  # of events of one key and time, some engines emit a row each: the same
            return found[found["ts"] <= watermark].drop_duplicates()
    return found[found["window_end"] <= watermark]
