"""The systems that are compared: count and sum over event-time windows, per key."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks import join_systems, per_key
from benchmarks.join_systems import Join, StateApi
from benchmarks.stream import DELAY, LARGE, MINUTE_MS, SMALL, Phase
from benchmarks.workloads import (
    COUNTED_MS,
    GAP_MS,
    HOPS,
    P,
    Workload,
)

RESULT = "k long, window_start timestamp, window_end timestamp, n long, total double"
STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Files of both inputs are linked while Spark is not looking, so that a micro-batch has both.
    "spark.sql.streaming.pollingDelay": "1s",
    # The default keeps 100 progress reports; the rows of every batch are checked at the end.
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
MASTER = "local[2,4]"


@dataclass(frozen=True, slots=True)
class System:
    """One way to compute the windows."""

    name: str
    store: str
    """State store provider: `hdfs` (Spark's default), `rocksdb`, or `none` (no state)."""
    build: Callable[[DataFrame, str, int | None], DataFrame]
    """From the stream of events, a kind of windows and a number of shards to the results."""
    join: Join
    """The same of two streams."""
    parts: Callable[[Workload], list[Workload]] = lambda workload: [workload]
    """What this system is given in place of the full workload, one process for each part."""


def session(
    store: str, master: str = MASTER, more: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Start the session of a run: the same settings for all systems but the state store."""
    builder = SparkSession.builder.master(master).appName("streamops benchmarks")
    settings = {**SETTINGS, **more}
    if store != "none":
        settings["spark.sql.streaming.stateStore.providerClass"] = STORES[store]
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _native(events: DataFrame, windows: str, shards: int | None) -> DataFrame:
    if windows == "distinct":
        ten = F.window("ts", f"{COUNTED_MS} milliseconds").alias("w")
        sketch = F.hll_sketch_estimate(F.hll_sketch_agg("u", P))
        counted = events.withWatermark("ts", DELAY).groupBy("k", ten).agg(sketch.alias("n"))
        return counted.select(
            "k", *(F.col(f"w.{item}").alias(f"window_{item}") for item in ("start", "end")), "n"
        )
    window = {
        "tumbling": F.window("ts", "1 minute"),
        "hopping": F.window("ts", f"{HOPS} minutes", "1 minute"),
        "session": F.session_window("ts", f"{GAP_MS} milliseconds"),
    }[windows]
    return (
        events.withWatermark("ts", DELAY)
        .groupBy("k", window.alias("w"))
        .agg(F.count(F.lit(1)).alias("n"), F.sum("v").alias("total"))
        .select(
            "k",
            F.col("w.start").alias("window_start"),
            F.col("w.end").alias("window_end"),
            "n",
            "total",
        )
    )


def _close_windows(
    key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count and sum one key's windows, as one would write it by hand: one group per key.

    Open windows are kept as JSON, because array and map state columns do not work in Spark 4.3.
    The loop over the rows is deliberate: a `frame.groupby` per key would take most of a millisecond.
    """
    windows: dict[str, list[float]] = json.loads(state.get[0]) if state.exists else {}
    if not state.hasTimedOut:
        for frame in frames:
            millis = frame["ts"].to_numpy("datetime64[ms]").astype(np.int64)
            starts = millis // MINUTE_MS * MINUTE_MS
            for start, value in zip(starts.tolist(), frame["v"].tolist(), strict=True):
                window = windows.setdefault(str(start), [0, 0.0])
                window[0] += 1
                window[1] += value
    watermark = state.getCurrentWatermarkMs()
    closed = [start for start in windows if int(start) + MINUTE_MS <= watermark]
    results = [windows.pop(start) for start in closed]
    if windows:
        state.update((json.dumps(windows),))
        # A timeout fires once the watermark is above it; a window is closed when they are equal.
        state.setTimeoutTimestamp(min(map(int, windows)) + MINUTE_MS - 1)
    else:
        state.remove()
    if closed:
        starts = np.array(closed, dtype=np.int64)
        yield pd.DataFrame(
            {
                "k": key[0],
                "window_start": starts.astype("datetime64[ms]"),
                "window_end": (starts + MINUTE_MS).astype("datetime64[ms]"),
                "n": [int(n) for n, _ in results],
                "total": [total for _, total in results],
            }
        )


def _count_items(
    key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count one key's distinct items by datasketch, as one would write it by hand: item by item."""
    from datasketch import HyperLogLogPlusPlus

    windows: dict[int, HyperLogLogPlusPlus] = {}
    for start, stored in (json.loads(state.get[0]) if state.exists else {}).items():
        registers = np.frombuffer(base64.b64decode(stored), np.int8).copy()
        windows[int(start)] = HyperLogLogPlusPlus(p=P, reg=registers)
    if not state.hasTimedOut:
        for frame in frames:
            millis = frame["ts"].to_numpy("datetime64[ms]").astype(np.int64)
            starts = millis // COUNTED_MS * COUNTED_MS
            for start, item in zip(starts.tolist(), frame["u"].tolist(), strict=True):
                if start not in windows:
                    windows[start] = HyperLogLogPlusPlus(p=P)
                windows[start].update(item.to_bytes(8, "little"))
    watermark = state.getCurrentWatermarkMs()
    closed = [start for start in windows if start + COUNTED_MS <= watermark]
    results = [windows.pop(start).count() for start in closed]
    if windows:
        stored = {s: base64.b64encode(item.reg.tobytes()).decode() for s, item in windows.items()}
        state.update((json.dumps(stored),))
        state.setTimeoutTimestamp(min(windows) + COUNTED_MS - 1)
    else:
        state.remove()
    if closed:
        starts = np.array(closed, dtype=np.int64)
        yield pd.DataFrame(
            {
                "k": key[0],
                "window_start": starts.astype("datetime64[ms]"),
                "window_end": (starts + COUNTED_MS).astype("datetime64[ms]"),
                "n": [round(n) for n in results],
            }
        )


def _naive(events: DataFrame, windows: str, shards: int | None) -> DataFrame:
    if windows == "per-key":
        return per_key.naive(events)
    is_distinct = windows == "distinct"
    return (
        events.withWatermark("ts", DELAY)
        .groupBy("k")
        .applyInPandasWithState(
            _count_items if is_distinct else _close_windows,
            outputStructType=RESULT.removesuffix(", total double") if is_distinct else RESULT,
            stateStructType="windows string",
            outputMode="append",
            timeoutConf=GroupStateTimeout.EventTimeTimeout,
        )
    )


def _in_minutes(workload: Workload) -> list[Workload]:
    """Return what one group per key can do in minutes: fewer batches, and a tenth of many keys.

    Small batches stay at full scale: in a replica, what a batch costs before it does anything would
    be divided by a tenth of the rows.
    """
    if workload.windows == "per-key":
        # At full scale, where a group costs a millisecond: one large micro-batch takes a minute and more.
        measured = [phase for phase in workload.phases if phase.batches]
        few = tuple(Phase(phase.rows, min(phase.warm, 1), 1) for phase in measured)
        return [replace(workload, phases=few)]
    if workload.windows not in ("tumbling", "distinct", "temporal"):
        return []
    phases = [_fewer(phase) for phase in workload.phases]
    if workload.keys < 10_000:
        return [replace(workload, phases=tuple(phases))]
    large = tuple(phase for phase in phases if phase.rows >= SMALL)
    small = tuple(phase for phase in phases if phase.rows < SMALL)
    parts = [replace(workload, phases=large, divisor=10), replace(workload, phases=small)]
    return [part for part in parts if any(phase.batches for phase in part.phases)]


def _on_a_grid(workload: Workload) -> list[Workload]:
    """Return the workload if Spark has its operator on streams."""
    lacks = ("sliding", "seen", "per-key", "running", "corrections", "temporal", "tables", "search")
    is_pattern = workload.windows.startswith("patterns")
    return [] if is_pattern or workload.windows in lacks else [workload]


def _fewer(phase: Phase) -> Phase:
    warm, batches = (1, 2) if phase.rows >= LARGE else (2, 5) if phase.rows >= SMALL else (5, 30)
    return Phase(phase.rows, min(phase.warm, warm), min(phase.batches, batches))


def _kernel(state_api: StateApi) -> Callable[[DataFrame, str, int | None], DataFrame]:
    def build(events: DataFrame, windows: str, shards: int | None) -> DataFrame:
        # Here, not above: the other systems are measured without this library in the process.
        from benchmarks.operators import build_window

        operator = build_window(windows)
        result = events.transform(
            operator.options(engine="kernel", state_api=state_api, shards=shards)
        )
        if windows == "distinct":
            return result.withColumn("n", F.col("users.estimate")).drop("users")
        return result

    return build


def _kernels(
    state_api: StateApi,
) -> tuple[Callable[[DataFrame, str, int | None], DataFrame], Join]:
    return _kernel(state_api), join_systems.kernel(state_api)


def _ceiling(events: DataFrame, windows: str, shards: int | None) -> DataFrame:
    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return events.mapInArrow(identity, events.schema)


SYSTEMS = {
    system.name: system
    for system in (
        System("ceiling", "none", _ceiling, join_systems.ceiling),
        System("native", "hdfs", _native, join_systems.native, _on_a_grid),
        System("native-rocksdb", "rocksdb", _native, join_systems.native, _on_a_grid),
        System("kernel-aipws", "hdfs", *_kernels("applyInPandasWithState")),
        System("kernel-tws", "rocksdb", *_kernels("transformWithStateInPandas")),
        System("naive", "hdfs", _naive, join_systems.naive, _in_minutes),
    )
}
