"""What it costs to add an aggregate to a stopped checkpoint: `python -m benchmarks.migrating`.

The state is filled with open windows as in `benchmarks.open_windows_spark`. A process of its own then calls `state.migrate`
with one more aggregate, which verifies the new checkpoint. CPU seconds are those of its whole process tree after Java has started.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu import ProcessTree
from benchmarks.machine import describe_machine
from benchmarks.open_windows_spark import APIS, FILL, SCHEMA, SIZE, _Query
from benchmarks.stream import DELAY
from benchmarks.systems import session

SIZES = (1_000_000, 10_000_000)
RESULTS = Path(__file__).with_name("results") / "migrating"


def fill(system: str, windows: int, folder: Path) -> None:
    """Run a query until it has so many open windows."""
    query = _Query(system, folder, windows)
    keys = np.random.default_rng(windows).permutation(windows)
    for start in range(0, windows, FILL):
        query.feed([keys[start : start + FILL]])
    query.stop()


def migrate(system: str, folder: Path) -> dict[str, Any]:
    """Add an aggregate to its checkpoint."""
    from streamops import aggregates as agg
    from streamops import state
    from streamops import windows as windows_

    totals = {"n": agg.count(), "total": agg.sum("v"), "most": agg.max("v")}
    operator = windows_.tumbling(SIZE, time="ts", by="k", agg=totals, delay=DELAY)
    api: Any = APIS[system]
    with ProcessTree() as tree:
        spark = session("rocksdb")
        spark.range(1).collect()  # starts Java
        frame = spark.readStream.schema(SCHEMA).parquet(str(folder / "input"))
        before, began = tree.read(), time.monotonic()
        (done,) = state.migrate(
            folder / "checkpoint", folder / "new", operator.options(state_api=api), frame
        )
        used, wall = tree.read().since(before), time.monotonic() - began
        spark.stop()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "system": system,
        "windows": done.entries,
        "jvm": used.jvm + used.helpers,
        "python": used.python,
        "wall": wall,
        "memory": memory,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Measure each number of windows, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.migrating", description=__doc__)
    add = parser.add_argument
    add("--windows", type=int, nargs="+", default=SIZES)
    add("--systems", nargs="+", choices=[*APIS], default=[*APIS])
    add("--one", choices=("fill", "migrate"), help=argparse.SUPPRESS)
    add("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one == "fill":
        fill(options.systems[0], options.windows[0], options.folder)
        return
    if options.one == "migrate":
        found = migrate(options.systems[0], options.folder)
        (options.folder / "result.json").write_text(json.dumps(found))
        return
    record: dict[str, Any] = {"machine": describe_machine(), "runs": []}
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    print("| state API | open windows | CPU s | JVM | Python | wall s | memory of Python, GiB |")
    for windows in options.windows:
        for system in options.systems:
            with tempfile.TemporaryDirectory() as folder:
                for one in ("fill", "migrate"):
                    command = [sys.executable, "-m", "benchmarks.migrating", "--one", one]
                    command += ["--systems", system, "--windows", str(windows)]
                    subprocess.run([*command, "--folder", folder], check=True)
                found = json.loads((Path(folder) / "result.json").read_text())
            record["runs"].append(found)
            target.write_text(json.dumps(record, indent=1))
            print(
                f"| `{APIS[system]}` | {found['windows']:,} | **{found['jvm'] + found['python']:.1f}** | "
                f"{found['jvm']:.1f} | {found['python']:.1f} | {found['wall']:.1f} | "
                f"{found['memory'] / 2**30:.1f} |",
                flush=True,
            )
    print(f"recorded in {target}")


if __name__ == "__main__":
    main()
