"""A thousand micro-batches of Spark to several targets: nothing that was persisted or opened stays.

`sinks.side_outputs` and `sinks.fan_out` persist the micro-batch in the JVM, and write three targets with a
ledger each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import sinks
from streamops.spark.identity import Identity
from tests.resources import MEMORY, Resources
from tests.sinks.test_soak import KEYS, LIFE, LONG, MAINTAINED_EVERY, SHORT, changes, make_delta

REJECTED = 5
"""Rows of the side output of each micro-batch."""

HEAP = 2 * MEMORY
"""How much larger the heap of the JVM may be in the last quarter: its interface keeps old queries."""

OPEN_FILES = 16
"""How many more files the JVM may have open: jars, and connections of its pools."""


def with_side_output(rows: pa.Table) -> pa.Table:
    """Rows of a change stream, the first of which are rejected ones in addition."""
    reason = pa.struct([("reason", pa.string())])
    nothing = rows.append_column("rejected", pa.nulls(len(rows), reason))
    tagged = pa.array([{"reason": "conflict"}] * REJECTED, reason)
    return pa.concat_tables([nothing, rows.slice(0, REJECTED).append_column("rejected", tagged)])


@pytest.mark.parametrize("batches", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)])
def test_many_micro_batches_to_several_targets(
    spark: SparkSession,
    tmp_path: Path,
    batches: int,
    record_property: Callable[[str, object], None],
) -> None:
    table = make_delta(tmp_path)
    archive, rejected = (sinks.parquet(str(tmp_path / name)) for name in ("archive", "rejected"))
    sink = sinks.side_outputs(
        results=sinks.fan_out({"table": table.sink, "archive": archive}),
        rejected=rejected,
        operator="soak",
    )
    delivered, resources = 0, Resources()
    for batch in range(batches):
        rows = changes(batch)
        delivered += len(rows)
        frame = spark.createDataFrame(with_side_output(rows))
        sink._deliver(frame, batch, Identity("query", "run"))
        if batch % MAINTAINED_EVERY == 0:
            table.maintain()
        if batch % (25 if batches == LONG else 5) == 0:
            resources.measure(**java(spark))
    for written in (table.sink, archive, rejected):
        entry = written.read_ledger()
        assert entry is not None
        assert entry.batch == batches - 1
    assert table.count_rows() == LIFE * KEYS
    counts = [
        sinks.read_parquet(str(tmp_path / name)).count_rows() for name in ("archive", "rejected")
    ]
    assert counts == [delivered, REJECTED * batches]
    second, last = resources.quarters()
    record_property("soak", {figure: [second[figure], last[figure]] for figure in second})
    assert last["persisted"] == 0
    assert last["java_files"] <= second["java_files"] + OPEN_FILES
    if batches == LONG:  # before, it fills what it keeps of old queries
        assert last["heap"] <= second["heap"] + HEAP
    resources.check(except_for=["java_files", "heap"])


def java(spark: SparkSession) -> dict[str, int]:
    """Persisted frames, open files, and the heap after garbage collection, of the JVM."""
    machine: Any = spark._jvm
    machine.java.lang.System.gc()
    runtime = machine.java.lang.Runtime.getRuntime()
    pid = machine.java.lang.ProcessHandle.current().pid()
    context: Any = spark.sparkContext
    return {
        "persisted": context._jsc.getPersistentRDDs().size(),
        "java_files": len(os.listdir(f"/proc/{pid}/fd")),
        "heap": runtime.totalMemory() - runtime.freeMemory(),
    }
