"""The input of a query, its operator, and what its targets must have in the end."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamops import aggregates as agg
from streamops import windows
from streamops.testing import START, replay

Form = Literal["changes", "revisions", "multiset", "rows"]
Rows = Counter[tuple[Any, ...]]

FORMS: tuple[Form, ...] = ("changes", "revisions", "multiset")
"""The forms of the results of windows. The fourth one, rows without an operator, starts much faster."""

SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())]
)
DDL = "id long, k string, ts timestamp, v long"
KEY = ("k", "window_start")
VALUES = ("k", "window_start", "window_end", "n", "total", "revision")
"""The columns of a result."""

CLOSING = 2
"""Micro-batches at the end: one moves the watermark past all windows, and the next one closes them."""

_MINUTE = 60_000_000
_KEYS = 40
_START = int(START.timestamp() * 1e6)


def make_input(batches: int, rows: int, seed: int) -> list[pa.Table]:
    """Make the rows of each micro-batch, which covers a minute.

    A fifth of the rows correct windows of the eight minutes before, which are accepted. Every fiftieth
    row is twenty minutes late, which is too much.
    """
    draw = np.random.default_rng(seed)
    tables = []
    for batch in range(batches):
        ids = np.arange(batch * rows, (batch + 1) * rows)
        times = batch * _MINUTE + draw.integers(0, _MINUTE, rows)
        times -= np.where(ids % 5 == 1, draw.integers(0, 8 * _MINUTE, rows), 0)
        times -= np.where(ids % 50 == 7, 20 * _MINUTE, 0)
        keys = [f"key {number}" for number in draw.integers(0, _KEYS, rows)]
        tables.append(_table(ids, keys, _START + times, draw.integers(-1_000, 1_000, rows)))
    for batch in range(batches, batches + CLOSING):
        tables.append(_table([-batch], ["end"], [_START + (batches + 1_440) * _MINUTE], [0]))
    return tables


def _table(ids: Any, keys: Any, times: Any, values: Any) -> pa.Table:
    columns = [pa.array(ids), keys, pa.array(times, pa.timestamp("us", "UTC")), pa.array(values)]
    return pa.table(columns, SCHEMA.names).cast(SCHEMA)


def write_files(tables: Iterable[pa.Table], folder: Path) -> None:
    """Write a file per micro-batch, in the order in which Spark reads them."""
    folder.mkdir(parents=True)
    for number, table in enumerate(tables):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number + 1, number + 1))


def operator(form: Form) -> Any:
    """The operator of the query: windows of a minute, which late rows correct; or none."""
    if form == "rows":
        return lambda frame: frame
    return windows.tumbling(
        "1 minute",
        time="ts",
        by="k",
        agg={"n": agg.count(), "total": agg.sum("v")},
        delay="30 seconds",
        allowed_lateness="10 minutes",
        stragglers="update" if form == "revisions" else "retract",
        too_late="route",
    )


@dataclass(frozen=True)
class Expected:
    """What the targets must have.

    Parameters
    ----------
    results : Counter
        The final rows.
    emitted : Counter
        All rows that the query has emitted, with all corrections, for a target that stores them.
    rejected : Counter
        The rows that were too late: their ids, and the reason.
    """

    results: Rows
    emitted: Rows
    rejected: Rows


def expect(tables: Sequence[pa.Table], form: Form) -> Expected:
    """Compute what the targets must have, without Spark and without sinks.

    The numbers of the windows are recomputed from all rows at once, as a batch job does it; the
    revisions are those of a replay of the micro-batches.
    """
    emitted = replay(operator(form), tables)
    late = [row for result in emitted for row in result.late.to_pylist()]
    rejected = Counter((row["reason"], row["row"]["id"]) for row in late)
    rows = [row for result in emitted for row in result.table.to_pylist()]
    results = reduce_changes(rows, form)
    batch = recompute(tables, {identifier for _, identifier in rejected})
    if {row[:5] for row in results} != batch or len(results) != len(batch):
        message = "the replay of the micro-batches differs from the batch result"
        raise AssertionError(message)
    return Expected(results, Counter(map(whole, rows)), rejected)


def recompute(tables: Sequence[pa.Table], rejected: set[int]) -> set[tuple[Any, ...]]:
    """The windows of all rows at once, except the last one, which stays open."""
    rows = pa.concat_tables(tables).to_pandas()
    rows = rows[~rows["id"].isin(rejected) & (rows["k"] != "end")]
    start = rows["ts"].dt.floor("min")
    found = rows.groupby([rows["k"], start])["v"].agg(["size", "sum"])
    minute = dt.timedelta(minutes=1)
    return {
        tuple(map(plain, (key, begin, begin + minute, int(size), int(total))))
        for (key, begin), size, total in found.itertuples()
    }


def reduce_changes(rows: Iterable[dict[str, Any]], form: Form) -> Rows:
    """The final rows of everything that was emitted."""
    if form == "revisions":
        newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for row in map(values, rows):
            if row[:2] not in newest or row[-1] > newest[row[:2]][-1]:
                newest[row[:2]] = row
        return Counter(newest.values())
    found: Rows = Counter()
    for row in rows:
        is_added = row["_change_type"] in {"insert", "update_postimage"}
        found[values(row)] += 1 if is_added else -1
    return Counter({row: count for row, count in found.items() if count})


def effects(emitted: Rows, form: Form) -> Rows:
    """What a log has of the rows that were emitted, of which no key has two in a micro-batch.

    With a key: the rows after the changes. Otherwise: rows that are inserted and deleted.
    """
    if form == "revisions":
        return emitted
    found: Rows = Counter()
    for (*row, change_type), count in emitted.items():
        is_added = change_type in {"insert", "update_postimage"}
        if form == "multiset":
            found[(*row, "insert" if is_added else "delete")] += count
        elif is_added:
            found[(*row, None)] += count
    return found


def last_effects(rows: Iterable[dict[str, Any]], form: Form) -> Rows:
    """The final rows of a log: the last one of each key, or all that are not deleted."""
    if form == "multiset":
        return reduce_changes(rows, form)
    return Counter({row[: len(KEY)]: row for row in map(values, rows)}.values())


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    """A result, in values that do not depend on where it is stored."""
    return tuple(plain(row[name]) for name in VALUES)


def whole(row: dict[str, Any]) -> tuple[Any, ...]:
    """A result, and its change type if it has one."""
    return (*values(row), row.get("_change_type"))


def plain(value: Any) -> Any:
    """A value, or the microseconds since 1970 of an instant, in UTC unless it has a zone."""
    if not isinstance(value, dt.datetime):
        return value
    instant = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return (instant - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
