"""The two input streams of every join, and their expected results.

Rows of both sides arrive in one sequence, and every micro-batch has rows of both. As in `workloads`,
the disorder is smaller than the delay, so nothing is late for any size of micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.documents import expected_matches, found_matches, make_inputs
from benchmarks.stream import DELAY_MS, DISORDER_MS, LARGE, MINUTE_MS, ORIGIN_MS, Phase

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
Input = tuple[Columns, Array]
"""The columns of one side, and the position of each of its rows in the sequence of arrival."""

VERSION = 2
"""Version of the streams below; prepared files of another version are not read."""
HOUR_MS = 60 * MINUTE_MS
# Of 13 rows 3 are clicks, of 11 one is a version of a key, of 10 two are changes of the right.
CLICKS, VERSIONS, RIGHTS = (13, 3), (11, 1), (10, 2)
FACTS_PER_MINUTE = 30_000
FILL = {"interval": 650_000, "temporal": 650_000, "tables": 500_000, "search": 500_000}
"""Rows before the first phase, after which the state has its final size."""
OF = 5
"""In tables: rows of the left for each of the right."""
REMOVED = 10_000
"""In tables: deleted rows whose sequence is stored."""


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """One join: its inputs, how to generate them, and its expected results."""

    schemas: dict[str, str]
    make: Callable[[int, int, int, int], dict[str, Input]]
    """From the rows of both, the keys, the divisor and the seed of a workload."""
    expected: Callable[[Mapping[str, Input]], pd.DataFrame]
    found: Callable[[pd.DataFrame], pd.DataFrame]
    """The written results, with the columns and the order of the expected ones."""


def phases(sizes: Sequence[int], quick: bool) -> tuple[Phase, ...]:
    """Return phases of 1.3 million rows each, after their warm-up micro-batches."""
    found = [Phase(500_000, 2, 0)]
    for rows in sorted(sizes):
        # After 20 of 60,000 rows a third of the JVM's CPU still goes to its compilers.
        warm = 2 if rows >= LARGE else 5 if quick else 100
        measured = 300_000 if quick and rows < LARGE else 1_300_000
        # A thousand batches of a thousand rows would take an hour.
        found.append(Phase(rows, warm, min(100, -(-measured // rows))))
    return tuple(found)


def _sides(rows: int, of: tuple[int, int]) -> tuple[Array, Array]:
    """Positions of left and right rows: `of` is (rows, right rows among them), spread evenly."""
    every, some = of
    is_right = np.arange(rows) % every * some % every < some
    return np.flatnonzero(~is_right), np.flatnonzero(is_right)


def _event_times(rng: np.random.Generator, arrival: Array) -> Array:
    return arrival - rng.integers(0, DISORDER_MS, len(arrival), dtype=np.int64)


def _quarters(rng: np.random.Generator, rows: int) -> Array:
    return rng.integers(0, 400, rows).astype(np.float64) / 4


def _watermark(inputs: Mapping[str, Input], left: str, right: str) -> int:
    """Spark's watermark at the end: the minimum of both sides, minus the delay."""
    ends = (inputs["left"][0][left].max(), inputs["right"][0][right].max())
    return int(min(ends)) - DELAY_MS


def _searches(rows: int, keys: int, divisor: int, seed: int) -> dict[str, Input]:
    """Searches, `keys` of them an hour, and clicks on three of ten."""
    rng = np.random.default_rng(seed)
    left, right = _sides(rows, CLICKS)
    per_ms = keys / HOUR_MS
    arrival = ORIGIN_MS + (np.arange(rows) * (CLICKS[0] - CLICKS[1]) / CLICKS[0] / per_ms).astype(
        np.int64
    )
    # Most clicks come within minutes, some after more than the hour.
    after = rng.exponential(5 * MINUTE_MS, len(right))
    anywhere = rng.random(len(right)) < 0.1
    after[anywhere] = rng.uniform(0, 2 * HOUR_MS, int(anywhere.sum()))
    clicked = np.searchsorted(left, right) - 1 - (after * per_ms).astype(np.int64)
    searches = {
        "k": np.arange(len(left)),
        "v": _quarters(rng, len(left)),
        "ts": _event_times(rng, arrival[left]),
    }
    clicks = {
        "k": np.maximum(clicked, 0),
        "c": np.arange(len(right)),
        "ts": _event_times(rng, arrival[right]),
    }
    return {"left": (searches, left), "right": (clicks, right)}


def _clicked(inputs: Mapping[str, Input]) -> pd.DataFrame:
    """Every click within an hour of its search; searches without one, after the hour has ended."""
    searches, clicks = (pd.DataFrame(inputs[side][0]) for side in ("left", "right"))
    pairs = searches.merge(clicks.rename(columns={"ts": "clicked"}), on="k")
    pairs = pairs[(pairs["clicked"] >= pairs["ts"]) & (pairs["clicked"] <= pairs["ts"] + HOUR_MS)]
    lone = searches[~searches["k"].isin(pairs["k"])]
    lone = lone[lone["ts"] + HOUR_MS <= _watermark(inputs, "ts", "ts")]
    return _in_order(pd.concat([pairs, lone.assign(c=-1, clicked=-1)]))


def _found_clicks(found: pd.DataFrame) -> pd.DataFrame:
    return _in_order(
        pd.DataFrame(
            {
                "k": found["k"],
                "v": found["v"],
                "ts": _millis(found["ts"]),
                "c": found["c"].fillna(-1).astype("int64"),
                "clicked": _millis(found["clicked"]),
            }
        )
    )


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(list(rows.columns), ignore_index=True)


def _millis(times: pd.Series[Any]) -> Array:
    millis: Array = times.to_numpy("datetime64[ms]").astype("int64")
    return np.where(times.isna(), -1, millis)


def _facts(rows: int, keys: int, divisor: int, seed: int) -> dict[str, Input]:
    """Facts, and a tenth as many versions of their keys."""
    rng = np.random.default_rng(seed)
    left, right = _sides(rows, VERSIONS)
    share = (VERSIONS[0] - VERSIONS[1]) / VERSIONS[0]
    after = np.arange(rows) * share * divisor * MINUTE_MS / FACTS_PER_MINUTE
    arrival = ORIGIN_MS + after.astype(np.int64)
    facts = {
        "k": rng.integers(0, keys, len(left), dtype=np.int64),
        "v": _quarters(rng, len(left)),
        "ts": _event_times(rng, arrival[left]),
    }
    versions = {
        "k": rng.integers(0, keys, len(right), dtype=np.int64),
        "price": _quarters(rng, len(right)),
        "seq": np.arange(len(right)),
        "since": _event_times(rng, arrival[right]),
    }
    return {"left": (facts, left), "right": (versions, right)}


def _priced(inputs: Mapping[str, Input]) -> pd.DataFrame:
    """Each fact that the watermark has reached, with the newest version of its key."""
    facts, versions = (pd.DataFrame(inputs[side][0]) for side in ("left", "right"))
    facts = facts[facts["ts"] <= _watermark(inputs, "ts", "since")].sort_values("ts")
    versions = versions.sort_values(["since", "seq"])
    both = pd.merge_asof(facts, versions, left_on="ts", right_on="since", by="k")
    return _in_order(_no_nulls(both))


def _found_prices(found: pd.DataFrame) -> pd.DataFrame:
    times = {name: _millis(found[name]) for name in ("ts", "since")}
    return _in_order(_no_nulls(found.assign(**times)))


def _no_nulls(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[["k", "v", "ts", "price", "seq", "since"]].fillna(-1)
    return rows.astype({"seq": "int64", "since": "int64"})


def _changes(rows: int, keys: int, divisor: int, seed: int) -> dict[str, Input]:
    """Changes of `keys` orders and of a fifth as many customers, updates as two images."""
    rng = np.random.default_rng(seed)
    left, right = _sides(rows, RIGHTS)
    orders = _changing(rng, left, keys)
    customers = _changing(rng, right, keys // OF)
    # One order in ten goes to another customer when it changes.
    moves = orders["number"] - orders["number"] % 10
    owner = (orders["id"] * 7_919 + moves * 104_729) % (keys // OF)
    return {
        "left": (
            {
                "k": orders["id"],
                "c": owner,
                "v": orders["number"].astype(np.float64) / 4,
                "seq": orders["seq"],
                "_change_type": orders["change"],
            },
            left,
        ),
        "right": (
            {
                "c": customers["id"],
                "n": customers["number"],
                "seq": customers["seq"],
                "_change_type": customers["change"],
            },
            right,
        ),
    }


def _changing(rng: np.random.Generator, positions: Array, count: int) -> Columns:
    """Changes of `count` rows, numbered per row: nineteen of twenty are updates."""
    events = len(positions)
    ids = np.concatenate([np.arange(count), rng.integers(0, count, events)])[:events]
    order = np.argsort(ids, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(ids[order]) != 0))
    number = np.empty(events, np.int64)
    number[order] = np.arange(events) - np.repeat(first, np.diff(np.append(first, events)))
    # Every twentieth change deletes the row, and the next one inserts it again.
    is_delete = ((number + ids) % 20 == 19) & (number > 0)
    is_insert = (number == 0) | ((number + ids) % 20 == 0) & (number > 1)
    twice = np.where(is_insert | is_delete, 1, 2)
    which = np.repeat(np.arange(events), twice)[:events]
    second = np.append(False, which[1:] == which[:-1])
    update = ~(is_insert | is_delete)[which]
    before = update & ~second | is_delete[which]
    change = np.where(update, np.where(second, "update_postimage", "update_preimage"), "")
    change = np.where(is_insert[which], "insert", np.where(is_delete[which], "delete", change))
    if change[-1] == "update_preimage":  # no stream ends within an update
        change[-1] = "delete"
    return {
        "id": ids[which],
        "number": number[which] - before,
        "seq": which,
        "change": change.astype(object),
    }


def _joined(inputs: Mapping[str, Input]) -> pd.DataFrame:
    """The join of the two tables that the changes fold to."""
    orders, customers = (_table(inputs[side][0]) for side in ("left", "right"))
    both = orders.merge(customers, on="c", how="left", suffixes=("", "_right"))
    return _in_order(both[["k", "c", "v", "n"]].fillna(-1))


def _table(changes: Columns) -> pd.DataFrame:
    rows = pd.DataFrame(changes)
    key = rows.columns[0]
    adds = rows["_change_type"].isin(["insert", "update_postimage"])
    last = rows.assign(adds=adds).drop_duplicates(key, keep="last")
    return last[last["adds"]].drop(columns=["adds", "_change_type"])


def _folded(found: pd.DataFrame) -> pd.DataFrame:
    return fold_changes(found, ["k", "c", "v", "n"])


def fold_changes(found: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """What is left: rows that were published once more than they were taken back."""
    adds = found["_change_type"].isin(["insert", "update_postimage"])
    rows = found[columns].fillna(-1).assign(times=np.where(adds, 1, -1))
    left = rows.groupby(columns)["times"].sum()
    if not left.isin([0, 1]).all():
        raise ValueError("a row is there twice, or was taken back before it was published")
    return _in_order(left[left == 1].reset_index().drop(columns="times"))


JOINS = {
    "interval": JoinWorkload(
        {"left": "k long, v double, ts timestamp", "right": "k long, c long, ts timestamp"},
        _searches,
        _clicked,
        _found_clicks,
    ),
    "temporal": JoinWorkload(
        {
            "left": "k long, v double, ts timestamp",
            "right": "k long, price double, seq long, since timestamp",
        },
        _facts,
        _priced,
        _found_prices,
    ),
    "tables": JoinWorkload(
        {
            "left": "k long, c long, v double, seq long, _change_type string",
            "right": "c long, n long, seq long, _change_type string",
        },
        _changes,
        _joined,
        _folded,
    ),
    "search": JoinWorkload(
        {
            "left": "k long, title string, price long",
            "right": "id long, query string, lsn long",
        },
        make_inputs,
        expected_matches,
        found_matches,
    ),
}
