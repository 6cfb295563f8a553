"""What a local session writes to stderr: errors, and in a terminal one progress line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = """
import sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql import functions as F
from streamops import aggregates as agg, local_session, windows
from streamops.testing import at, micro_batches

schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
per_ten = windows.tumbling("10 seconds", time="ts", agg={"n": agg.count()}, delay="5 seconds")
spark = local_session()

def run(name, plan):
    folder = Path(sys.argv[1]) / name
    script = [[{"k": "a", "ts": at(1)}]]
    frame = micro_batches(spark, script, schema=schema, directory=folder, source="files")
    query = plan(frame).writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination(200)

run("good", lambda frame: frame.transform(per_ten.options(shards=2)))
print("=== good", file=sys.stderr, flush=True)
try:
    run("bad", lambda frame: frame.select(F.col("k").cast("int")))
except Exception as error:
    print(type(error).__name__)
spark.stop()
"""

LONG_JOB = """
import time
from streamops import local_session

def slow(batches):
    for batch in batches:
        time.sleep(1.5)
        yield batch

spark = local_session()
print("=== begin", flush=True)
print("rows:", spark.range(0, 8, 1, 4).mapInArrow(slow, "id long").count(), flush=True)
print("=== end", flush=True)
spark.stop()
"""


def test_progress_of_workers_is_dropped_and_errors_are_not(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUERIES, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )
    assert done.stdout == "StreamingQueryException\n"
    before, _, after = done.stderr.partition("=== good\n")
    assert before == ""
    assert "ERROR" in after
    assert "CAST_INVALID_INPUT" in after
    assert "Python worker" not in after


def test_a_long_batch_job_in_a_terminal_has_one_progress_line(tmp_path: Path) -> None:
    pexpect = pytest.importorskip("pexpect")
    program = tmp_path / "job.py"
    program.write_text(LONG_JOB)
    terminal = pexpect.spawn(sys.executable, [str(program)], timeout=300, dimensions=(40, 140))
    terminal.expect_exact("=== begin")
    terminal.expect_exact("=== end")
    printed = terminal.before.decode()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert len(re.findall(r"\r\[Stage 0:[=> ]*\(\d \+ \d\) / 4\]", printed)) > 1
    # Each update overwrites the one before, and the last one is overwritten by spaces.
    lines = [line.rpartition("\r")[2].strip() for line in printed.replace("\r\n", "\n").split("\n")]
    assert [line for line in lines if line] == ["rows: 8"]
