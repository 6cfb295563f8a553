"""The events that every system reads, and the expected results.

Event time advances with the stream (`ROWS_PER_MINUTE`) and each event is up to `DISORDER_MS` older
than its position. The disorder is smaller than the watermark delay, so nothing is late for any size of
micro-batch. Every system must have the same results, which are computed without Spark.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import joins, per_key
from benchmarks.stream import (
    DELAY_MS,
    DISORDER_MS,
    LARGE,
    MINUTE_MS,
    ORIGIN_MS,
    SMALL,
    Phase,
)

# 30,000 events a minute over 100,000 keys: 0.3 events per key and window, so 0.86 results per
# event. The same rate over 1,000 keys: 30 events per key and window, one result for 30 events.
ROWS_PER_MINUTE = 30_000
# After two minutes of events, windows close as fast as they open: state has its final size.
FILL_MINUTES = 2
SCHEMA = "k long, v double, ts timestamp"
ITEM = "u long"
"""An additional column, whose distinct values are counted."""
# Number of keys (or of items to be remembered, or of stored queries), and the windows that are computed over them.
WORKLOADS = {
    "100k-keys": (100_000, "tumbling"),
    "1k-keys": (1_000, "tumbling"),
    "100k-keys-session": (100_000, "session"),
    "100k-keys-hopping": (100_000, "hopping"),
    "1k-keys-hopping": (1_000, "hopping"),
    "100k-keys-sliding": (100_000, "sliding"),
    "100k-keys-patterns": (100_000, "patterns"),
    "100k-keys-patterns-hot": (100_000, "patterns-hot"),
    "1-key-patterns-starts": (1, "patterns-starts"),
    "1-key-patterns-cut": (1, "patterns-cut"),
    "1-key-patterns-absent": (1, "patterns-absent"),
    "100k-keys-per-key": (100_000, "per-key"),
    "100k-keys-running": (100_000, "running"),
    "100k-keys-corrections": (100_000, "corrections"),
    "1k-keys-distinct": (1_000, "distinct"),
    "10k-keys-distinct": (10_000, "distinct"),
    "10m-items-seen": (10_000_000, "seen"),
    "500k-rows-interval": (500_000, "interval"),
    "10k-keys-temporal": (10_000, "temporal"),
    "100k-rows-tables": (100_000, "tables"),
    "1k-queries-search": (1_000, "search"),
    "100k-queries-search": (100_000, "search"),
    "1m-queries-search": (1_000_000, "search"),
}
TUMBLING = [name for name, (_, windows) in WORKLOADS.items() if windows == "tumbling"]
HOPS = 5  # a hopping window is five minutes long and starts every minute
GAP_MS = 5 * MINUTE_MS
TURN_MS, TURNS = 3 * MINUTE_MS, 4
"""In sessions of few keys: a quarter of the keys has all events for so long. Otherwise no session would end."""
REACH_MS = 5 * MINUTE_MS  # a sliding window is the five minutes up to an event
WITHIN_MS = 5 * MINUTE_MS  # a match of a pattern spans less
LOW, HIGH = 20.0, 70.0
"""A value below, and a later one that is not below."""
_ALL_LOW = ("patterns-starts", "patterns-cut")
"""All values are low: every row starts a match, and none completes one, or the bound cuts it off."""
STRAGGLERS = 0.05
"""In corrections: the share of events that are up to `LATE_MS` late, and so mostly behind the watermark."""
LATE_MS, LATENESS_MS = 3 * MINUTE_MS, 5 * MINUTE_MS
COUNTED_MS = 10 * MINUTE_MS  # distinct items are counted in tumbling windows of ten minutes
ITEMS = 200_000
CAPACITY, RATE = 16_000_000, 0.001  # the capacity and false positive rate of the filter
P = 12
"""The precision of HyperLogLog: 2^P registers."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One stream of events over `keys` keys, and its micro-batches.

    `divisor` 10 means a replica at a tenth of the scale: a tenth of the keys, of the rows per
    minute and of the rows per batch. Rows per key and batch, results per row and timers per key
    are the same, so costs per key and per row are the same for each row.
    """

    keys: int
    phases: tuple[Phase, ...]
    divisor: int = 1
    seed: int = 20_240_229
    windows: str = "tumbling"

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Workload:
        """Restore a workload from its record."""
        phases = tuple(Phase(**phase) for phase in record["phases"])
        windows = record.get("windows", "tumbling")  # the only ones that were measured at first
        return cls(record["keys"], phases, record["divisor"], record["seed"], windows)

    @property
    def batches(self) -> list[list[int]]:
        """Rows of each micro-batch: the fill, then each phase's warm ones and its measured ones."""
        fill = joins.FILL[self.windows] if self.is_join else FILL_MINUTES * ROWS_PER_MINUTE
        steps = [[fill // self.divisor]]
        for phase in self.phases:
            steps.append([phase.rows // self.divisor] * phase.warm)
            steps.append([phase.rows // self.divisor] * phase.batches)
        return steps

    @property
    def rows(self) -> int:
        """All rows of the stream."""
        return sum(map(sum, self.batches))

    @property
    def is_join(self) -> bool:
        """Whether the stream is two: a left and a right side."""
        return self.windows in joins.JOINS

    @property
    def schemas(self) -> dict[str, str]:
        """Columns of each input, as Spark has them."""
        if self.is_join:
            return joins.JOINS[self.windows].schemas
        return {"events": f"{SCHEMA}, {ITEM}" if self.windows == "distinct" else SCHEMA}

    @property
    def has_turns(self) -> bool:
        """Whether keys pause. Else, up to some ten thousand keys hardly ever do so for as long as a gap."""
        return self.windows == "session" and self.keys < ROWS_PER_MINUTE

    def inputs(self) -> dict[str, joins.Input]:
        """Return the rows of each input, and their positions in the sequence of arrival."""
        if self.is_join:
            make = joins.JOINS[self.windows].make
            return make(self.rows, self.keys // self.divisor, self.divisor, self.seed)
        return {"events": (self.events(), np.arange(self.rows))}

    def events(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all events in arrival order: key, value, event time in milliseconds, item."""
        rng = np.random.default_rng(self.seed)
        position = np.arange(self.rows, dtype=np.int64)
        arrival = ORIGIN_MS + position * MINUTE_MS * self.divisor // ROWS_PER_MINUTE
        columns = {
            "k": rng.integers(0, self.keys // self.divisor, self.rows, dtype=np.int64),
            # Doubles add up quarters exactly, in any order: results can be compared with `==`.
            "v": rng.integers(0, 400, self.rows).astype(np.float64) / 4,
            "ts": arrival - rng.integers(0, DISORDER_MS, self.rows, dtype=np.int64),
        }
        if self.windows == "patterns-hot":  # one key has half of all events
            columns["k"][rng.random(self.rows) < 0.5] = 0
        if self.has_turns:
            turn = (arrival - ORIGIN_MS) // TURN_MS % TURNS
            columns["k"] = columns["k"] // TURNS * TURNS + turn
        if self.windows in _ALL_LOW:
            columns["v"] %= LOW
        if self.windows == "corrections":
            late = rng.integers(0, LATE_MS, self.rows, dtype=np.int64)
            columns["ts"] -= np.where(rng.random(self.rows) < STRAGGLERS, late, 0)
        if self.windows == "distinct":
            columns["u"] = rng.integers(0, ITEMS, self.rows, dtype=np.int64)
        if self.windows == "seen":
            # So many different items; after them, one half of the rows has more of these.
            again = rng.integers(0, self.keys, self.rows, dtype=np.int64)
            is_new = (position < self.keys) | (rng.random(self.rows) < 0.5)
            columns["k"] = np.where(is_new, np.cumsum(is_new) - 1, again)
        return columns

    def expected(self) -> pd.DataFrame:
        """Return the windows that are closed at the end of the stream, computed without Spark."""
        if self.is_join:
            return joins.JOINS[self.windows].expected(self.inputs())
        frame = pd.DataFrame(self.events())
        if self.windows == "per-key":
            return per_key.expected(frame)
        if self.windows == "running":
            totals = frame.groupby("k")["v"].agg(["size", "sum"]).reset_index()
            return totals.set_axis(["k", "n", "total"], axis=1)
        watermark = int(frame["ts"].max()) - DELAY_MS
        if self.windows == "sliding":
            windows = _sliding(frame)
            return windows[windows["end"] <= watermark].reset_index(drop=True)
        if self.windows in ("patterns-cut", "patterns-absent"):
            matches = _bounded_matches(frame, self.windows)
            # Each is decided when its bound has passed.
            return matches[matches["start"] + WITHIN_MS <= watermark].reset_index(drop=True)
        if self.windows.startswith("patterns"):
            matches = _matches(frame)
            return matches[matches["end"] <= watermark].reset_index(drop=True)
        if self.windows == "distinct":
            frame["start"] = frame["ts"] // COUNTED_MS * COUNTED_MS
            frame["end"] = frame["start"] + COUNTED_MS
            counted = frame.groupby(["k", "start", "end"], sort=True)["u"].nunique()
            windows = counted.rename("n").reset_index()
            return windows[windows["end"] <= watermark].reset_index(drop=True)
        if self.windows == "session":
            frame = frame.sort_values(["k", "ts"], kind="stable")
            begins = (frame["k"].diff() != 0) | (frame["ts"].diff() > GAP_MS)
            sessions = frame.groupby(begins.cumsum())
            frame["start"] = sessions["ts"].transform("min")
            frame["end"] = sessions["ts"].transform("max") + GAP_MS
        else:
            hops = HOPS if self.windows == "hopping" else 1
            minute = frame["ts"] // MINUTE_MS
            frame = pd.concat([frame.assign(start=minute - hop) for hop in range(hops)])
            frame["start"] *= MINUTE_MS
            frame["end"] = frame["start"] + hops * MINUTE_MS
        keys = ["k", "start", "end"]
        windows = frame.groupby(keys, sort=True)["v"].agg(["size", "sum"]).reset_index()
        windows.columns = pd.Index([*keys, "n", "total"])
        return windows[windows["end"] <= watermark].reset_index(drop=True)


def _sliding(frame: pd.DataFrame) -> pd.DataFrame:
    """Count and sum the window that ends with each event, which is its start and end here."""
    frame = frame.sort_values(["k", "ts"], kind="stable")
    keys, times = frame["k"].to_numpy(), frame["ts"].to_numpy()
    position = keys * (1 << 42) + times  # milliseconds of any date in question need fewer bits
    before = np.searchsorted(position, position - REACH_MS, side="right")
    after = np.searchsorted(position, position, side="right")
    totals = np.concatenate([[0.0], np.cumsum(frame["v"].to_numpy())])
    windows = pd.DataFrame(
        {
            "k": keys,
            "start": times,
            "end": times,
            "n": after - before,
            "total": totals[after] - totals[before],
        }
    )
    return windows.drop_duplicates(["k", "end"])


def _matches(frame: pd.DataFrame) -> pd.DataFrame:
    """Pair the first low value since the last match with the next high one, row by row."""
    found: list[tuple[int, int, int, int, float]] = []
    key, starts = None, deque[tuple[int, float]]()
    ordered = frame.sort_values(["k", "ts", "v"], kind="stable")
    columns = (ordered[name].tolist() for name in ("k", "ts", "v"))
    for k, time, value in zip(*columns, strict=True):
        if k != key:
            key = k
            starts.clear()
        while starts and time - starts[0][0] >= WITHIN_MS:
            starts.popleft()
        if value < LOW:
            starts.append((time, value))
        elif value >= HIGH and starts:
            start, low = starts[0]
            found.append((k, start, time, 2, low + value))
            starts.clear()
    return _table(found)


def _bounded_matches(frame: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Match the rows of one key, all low, up to the bound; or up to a zero directly before the bound."""
    ordered = frame.sort_values(["ts", "v"], kind="stable")
    times, values = ordered["ts"].to_numpy(), ordered["v"].to_numpy()
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.searchsorted(times, times + WITHIN_MS)
    matches = ends - np.arange(len(times)) > 1
    if workload == "patterns-absent":
        matches &= values[ends - 1] == 0
    found: list[tuple[int, int, int, int, float]] = []
    starts, at = np.flatnonzero(matches), 0
    while at < len(starts):
        start, end = starts[at], ends[starts[at]]
        found.append((0, times[start], times[end - 1], end - start, sums[end] - sums[start]))
        at = int(np.searchsorted(starts, end))
    return _table(found)


def _table(found: list[tuple[int, int, int, int, float]]) -> pd.DataFrame:
    matches = pd.DataFrame(found, columns=["k", "start", "end", "n", "total"])
    return matches.astype(
        {"k": "int64", "start": "int64", "end": "int64", "n": "int64", "total": "f8"}
    )


def standard(name: str, sizes: Sequence[int], quick: bool) -> Workload:
    """Return the workload of this name that is measured with micro-batches of the given sizes.

    Four million rows come before the first measurement: by then the code that rows run through
    is compiled; after one million rows native Spark still costs a fifth more. What runs once per
    micro-batch (planning, JSON, file names) is still being compiled after the fiftieth: a third
    of a second of the JVM's compiler in each. Only more micro-batches help, so there are many, and
    small ones, which take the least time, come first.
    """
    keys, windows = WORKLOADS[name]
    phases = [Phase(500_000, 2 if quick else 8, 0)]
    if windows == "seen":  # all items are known before the first measurement
        phases = [Phase(500_000, -(-keys // 500_000), 0)]
    if windows in joins.JOINS:
        return Workload(keys, joins.phases(sizes, quick), windows=windows)
    for rows in sorted(sizes):
        if rows >= LARGE:
            warm, measured = 2, 1_000_000 if quick else 4_000_000
        elif rows >= SMALL:
            warm, measured = 5 if quick else 20, 300_000 if quick else 1_200_000
        else:
            # A million rows would be a thousand batches. Whole minutes of event time instead:
            # windows close, and results come out, once a minute.
            warm, measured = 10 if quick else 120, ROWS_PER_MINUTE * (1 if quick else 2)
        phases.append(Phase(rows, warm, max(1, -(-measured // rows))))
    return Workload(keys, tuple(phases), windows=windows)


def for_verification(name: str) -> Workload:
    """Return a short workload with micro-batches of three sizes, to compare results on."""
    keys, windows = WORKLOADS[name]
    phases = (Phase(200_000, 0, 2), Phase(20_000, 0, 5), Phase(1_000, 0, 10))
    if windows == "seen":
        keys = 300_000
    if windows == "per-key":
        return Workload(keys, phases, divisor=10, windows=windows)
    if windows in joins.JOINS:
        phases = (Phase(300_000, 0, 3), Phase(60_000, 0, 5), Phase(20_000, 0, 5))
    return Workload(keys, phases, windows=windows)


def prepare(workload: Workload, cache: Path) -> list[list[list[Path]]]:
    """Write the micro-batches as Parquet files, once, and return them step by step.

    A micro-batch is a file for each input, in a folder of the input's name. File times rise by
    two seconds, because the file source takes files in the order of their modification times.
    """
    steps = workload.batches
    events = {name: value for name, value in asdict(workload).items() if name != "windows"}
    about: list[Any] = [ROWS_PER_MINUTE, DISORDER_MS, ORIGIN_MS]
    if workload.windows in ("patterns-hot", "corrections", *_ALL_LOW):
        about.append(workload.windows)
    if workload.has_turns:
        about.append([TURN_MS, TURNS])
    if workload.is_join:
        about = [workload.windows, joins.VERSION]
    identity = json.dumps([events, workload.schemas, *about])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    folder = cache / f"events-{workload.keys}-keys-{digest}"
    if not folder.exists():
        partial = cache / f"{folder.name}.partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        sizes = [rows for step in steps for rows in step]
        for name, (columns, positions) in workload.inputs().items():
            _write(columns, np.searchsorted(positions, np.cumsum([0, *sizes])), partial / name)
        partial.rename(folder)
    inputs = [sorted((folder / name).iterdir()) for name in workload.schemas]
    batches = iter(zip(*inputs, strict=True))
    return [[list(next(batches)) for _ in step] for step in steps]


def _write(columns: joins.Columns, borders: np.ndarray[Any, Any], folder: Path) -> None:
    folder.mkdir(parents=True)
    times = {
        name: pa.array(values * 1000).cast(pa.timestamp("us", tz="UTC"))
        for name, values in columns.items()
        if name in ("ts", "since")
    }
    table = pa.table({**columns, **times})
    for index, (start, end) in enumerate(itertools.pairwise(borders.tolist())):
        path = folder / f"{index:05d}.parquet"
        # Several row groups, so that a large file is read by more than one task.
        pq.write_table(table.slice(start, end - start), path, row_group_size=125_000)
        os.utime(path, times=(ORIGIN_MS // 1000 + 2 * index,) * 2)
