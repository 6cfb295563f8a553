"""What a micro-batch costs as the number of open windows grows: `python -m benchmarks.open_windows`.

Windows are so long that none closes. The state is filled with one window per key. Then micro-batches of
60,000 rows with random keys are measured, without Spark: packing, and the step, from the stored state to
the state to store. Finally all windows close in one step. Shards are alike, so one of them is measured, with
its part of the rows, and its cost is multiplied by their number. `--library` measures another version of
streamops: a folder that has the package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import describe_machine
from benchmarks.stream import DELAY, ORIGIN_MS

SIZE = "1000 days"
ROWS = 60_000
FILL = 250_000
SIZES = (100_000, 1_000_000, 10_000_000)
PER_SHARD = 1_250_000
"""Windows of a shard, at most; there are at least 8 shards, the default."""
BATCHES = 10
_ENTRIES = 3
"""The number of rows, in a stored state."""
RESULTS = Path(__file__).with_name("results") / "open_windows"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("us", tz="UTC"))])


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one run.

    Parameters
    ----------
    library : str
        Name of the folder with the version of streamops.
    windows, shards : int
        Open windows, and shards that they are in.
    batches : list of float
        Of each measured micro-batch.
    close : float
        Of the micro-batch in which all windows close.
    stored : int
        Bytes of the stored state of all shards.
    """

    library: str
    windows: int
    shards: int
    batches: list[float]
    close: float
    stored: int


def _rows(keys: np.ndarray[Any, Any], at_ms: int, rng: np.random.Generator) -> pa.Table:
    values = rng.integers(0, 400, len(keys)) / 4
    times = pa.array(np.full(len(keys), at_ms * 1000)).cast(SCHEMA.field("ts").type)
    return pa.table([pa.array(keys), pa.array(values), times], schema=SCHEMA)


class _Shard:
    """The steps of the first shard, as Spark calls them in a worker."""

    def __init__(self, shards: int) -> None:
        from streamops import aggregates as agg
        from streamops import windows
        from streamops.spark.drive import resolve
        from streamops.spark.packing import packer
        from streamops.spark.step import ShardStep

        totals = {"n": agg.count(), "total": agg.sum("v")}
        operator = windows.tumbling(SIZE, time="ts", by="k", agg=totals, delay=DELAY)
        spec = resolve(operator.options(shards=shards), (SCHEMA,), (None,))
        self.step = ShardStep(operator.name, operator.core, spec, shards)
        self.pack = packer(operator.core, spec, 0, shards, newest=False)
        self.stored: Any = None
        self.store: dict[int, str] = {}
        self.more: dict[str, Any] = {}
        if hasattr(self.step, "has_segments"):  # not in versions before segments
            from streamops.testing.replaying import MemoryStore

            self.store = self.more["store"] = MemoryStore()

    def run(self, rows: pa.Table, watermark_ms: int) -> None:
        """Process one micro-batch."""
        packs = [pack.to_pylist()[0] for pack in self.pack(iter(rows.to_batches()))]
        mine = [pack["packed"] for pack in packs if pack["shard"] == 0]
        stored, _ = self.step(self.stored, mine, watermark_ms, shard=0, **self.more)
        self.stored = self.stored if stored is None else stored


def measure(windows: int, batches: int) -> Cost:
    """Fill the state, and measure micro-batches."""
    import streamops
    from streamops.kernel.hashing import shard_of

    rng, shards = np.random.default_rng(windows), max(8, windows // PER_SHARD)
    keys = np.arange(windows)
    keys = keys[shard_of(pa.table({"k": keys}), ["k"], shards) == 0]
    shard, used = _Shard(shards), []
    for start in range(0, len(keys), FILL):
        shard.run(_rows(keys[start : start + FILL], ORIGIN_MS, rng), ORIGIN_MS)
    for number in range(-2, batches + 1):  # two to warm up, and one in which all windows close
        rows = _rows(rng.choice(keys, ROWS // shards), ORIGIN_MS, rng)
        watermark = ORIGIN_MS + 1_000 * (number + 3) if number < batches else 2 * ORIGIN_MS
        stored = len(shard.stored[-1]) + sum(map(len, shard.store.values()))
        before = process_time()
        shard.run(rows, watermark)
        used.append((process_time() - before) * shards)
    left = shard.stored[_ENTRIES]
    assert not left, f"{left:,} windows did not close"
    folder = Path(str(streamops.__file__)).parent.parent
    return Cost(folder.name, windows, shards, used[2:-1], used[-1], stored * shards)


def show(cost: Cost) -> str:
    """A row of the table."""
    mean = sum(cost.batches) / len(cost.batches)
    return (
        f"| {cost.library} | {cost.windows:,} | {cost.shards} | **{mean:.2f}** | {min(cost.batches):.2f} to "
        f"{max(cost.batches):.2f} | {cost.close:.2f} | {cost.stored / 1e6:.1f} |"
    )


def main() -> None:
    """Measure each number of windows, in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_windows", description=__doc__)
    parser.add_argument("--windows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--batches", type=int, default=BATCHES, help="measured micro-batches")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--library", type=Path, nargs="+", default=[Path(__file__).parent.parent])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(measure(options.windows[0], options.batches))))
        return
    record: dict[str, Any] = {"machine": describe_machine(), "load": [os.getloadavg()[0]]}
    costs: dict[tuple[Path, int], list[Cost]] = {}
    for _ in range(options.repeats):
        for windows in options.windows:
            for library in options.library:  # next to each other, at the same load
                cost = _in_process(library, windows, options.batches)
                costs.setdefault((library, windows), []).append(cost)
                print(show(cost), flush=True)
    record["load"].append(os.getloadavg()[0])
    record["runs"] = [asdict(cost) for of in costs.values() for cost in of]
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps(record, indent=1))
    print(
        "| open windows | shards | CPU s per micro-batch | lowest to highest | close, s | state, MB |"
    )
    for of in costs.values():
        batches = [used for cost in of for used in cost.batches]
        close = sorted(cost.close for cost in of)[len(of) // 2]
        print(show(Cost(of[0].library, of[0].windows, of[0].shards, batches, close, of[0].stored)))
    print(f"recorded in {target}")


def _in_process(library: Path, windows: int, batches: int) -> Cost:
    command = [sys.executable, __file__, "--one", "--windows", str(windows)]
    environment = os.environ | {"PYTHONPATH": str(library)}
    done = subprocess.run(
        [*command, "--batches", str(batches)], env=environment, capture_output=True, check=True
    )
    return Cost(**json.loads(done.stdout))


if __name__ == "__main__":
    main()
