"""A function per key, called by both systems: count and sum of a key, and an alert at each level of the sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

LEVEL = 200.0
"""More than any value, so that a row reaches at most one level, and alerts do not depend on the order of rows."""
STATE = "n long, total double, alerts long"
OUTPUT = "alerts long, level double"


def alert_at_levels(key: Any, rows: Iterable[Any], state: Any) -> Iterator[tuple[int, float]]:
    """The function that is measured: the same object for all systems."""
    for row in rows:
        state.n += 1
        state.total += row.v
        if state.total >= (state.alerts + 1) * LEVEL:
            state.alerts += 1
            yield state.alerts, state.alerts * LEVEL


class _Row(NamedTuple):
    v: float


@dataclass(slots=True)
class _State:
    n: int = 0
    total: float = 0.0
    alerts: int = 0


def _call_group(
    key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Call the function for one key, at the least cost: rows have only the column that it reads."""
    stored = _State(*state.get) if state.exists else _State()
    found: list[tuple[int, float]] = []
    for frame in frames:
        found += alert_at_levels(key, map(_Row, frame["v"].tolist()), stored)
    state.update((stored.n, stored.total, stored.alerts))
    if found:
        alerts, levels = zip(*found, strict=True)
        yield pd.DataFrame({"k": key[0], "alerts": alerts, "level": levels})


def naive(events: DataFrame) -> DataFrame:
    """One group per key, by Spark's own operator."""
    return events.groupBy("k").applyInPandasWithState(
        _call_group,
        outputStructType=f"k long, {OUTPUT}",
        stateStructType=STATE,
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )


def expected(events: pd.DataFrame) -> pd.DataFrame:
    """All alerts of all keys, computed without either."""
    totals = events.groupby("k", sort=True)["v"].sum()
    counts = (totals // LEVEL).astype("int64").to_numpy()
    last = np.cumsum(counts)
    number = np.arange(1, counts.sum() + 1) - np.repeat(last - counts, counts)
    keys = np.repeat(totals.index.to_numpy(), counts)
    return pd.DataFrame({"k": keys, "alerts": number, "level": number * LEVEL})


def found(results: pd.DataFrame) -> pd.DataFrame:
    """The results of a system, in the order of the expected ones."""
    return results[["k", "alerts", "level"]].sort_values(["k", "alerts"], ignore_index=True)
