"""Two processes that start at once, and write the same micro-batches to one target in files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.kernel.versions import has_views

deltalake = pytest.importorskip("deltalake")

BATCHES = 12

WRITER = """
import sys, time
import pyarrow as pa
from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity

form, path, run, begin, batches = sys.argv[1:]
options = {"key": "k"} if form == "delta upserts" else {}
make = sinks.parquet if form == "parquet" else sinks.delta
time.sleep(max(0, float(begin) - time.time()))
batch = 0
while batch < int(batches):
    # A new start of the query for each micro-batch, so that none is fenced for good.
    sink = make(path, **options)
    rows = pa.table({"k": [batch, -1], "v": [batch, batch]})
    try:
        sink._deliver_rows(rows, batch, Identity("query", f"{run} {batch} {time.time()}"))
        batch += 1
    except SinkError as error:
        if error.code == "CHECKPOINT_BEHIND":
            batch += 1
        elif error.code not in {"BATCH_GAP", "FENCED"}:
            raise
"""


@pytest.mark.parametrize("form", ["parquet", *["delta", "delta upserts"] * has_views()])
def test_each_micro_batch_is_written_once(tmp_path: Path, form: str) -> None:
    """Also the first one, before which both create the target."""
    path, begin = str(tmp_path / "target"), str(time.time() + 4)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, form, path, run, begin, str(BATCHES)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for run in ("first", "second")
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors
    if form == "parquet":
        found = sinks.read_parquet(path, check="content").to_table()
    else:
        found = pa.table(deltalake.DeltaTable(path).scan().read_all())
    rows = sorted((row["k"], row["v"]) for row in found.to_pylist())
    fixed = [(-1, batch) for batch in range(BATCHES)]
    if form == "delta upserts":
        fixed = fixed[-1:]
    assert rows == sorted([*fixed, *((batch, batch) for batch in range(BATCHES))])
