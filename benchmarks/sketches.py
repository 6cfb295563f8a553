"""`python -m benchmarks.sketches`: sketches of many keys, beside the packages that offer them.

Both sides start from the sketches of all keys and from new rows, sorted by key, and end with the
bytes of every sketch. The package runs a plain Python loop: read a sketch, update it, write it.
Its rows are ready as Python values, which is not measured. Ours are Arrow columns. One process, CPU seconds of all threads, the best of several repeats that take turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import datasketch
import datasketches as apache
import numpy as np
import pyarrow as pa

from benchmarks.tables import replace_between
from streamops.kernel.groups import Groups
from streamops.sketches.core.countmin import CountMin
from streamops.sketches.core.frequent import Frequent
from streamops.sketches.core.hyperloglog import HyperLogLog
from streamops.sketches.core.kll import QuantileSketch
from streamops.sketches.core.minhash import MinHash
from streamops.sketches.core.sketch import Framed, Sketch, read_states
from streamops.sketches.core.theta import Theta

Values = np.ndarray[Any, Any]
_AT_ONCE = 1_000  # keys whose first items are sketched together


@dataclass(frozen=True, slots=True)
class Case:
    """A sketch of ours, and the loop over a package that makes the same one."""

    name: str
    package: str
    sketch: Sketch
    values: Callable[[np.random.Generator, int], Values]
    prepare: Callable[[Values], Any]
    """Rows of one key, as the package takes them."""
    update: Callable[[bytes | None, Any], bytes]
    """Read a sketch, or make an empty one; add rows; write it."""
    bound: float
    """The ratio of CPU seconds, ours over the package's, that is aimed for at most."""
    keys: int = 20_000


def _hll(blob: bytes | None, rows: list[int]) -> bytes:
    empty = apache.hll_sketch(12, apache.tgt_hll_type.HLL_8) if blob is None else None
    sketch = empty or apache.hll_sketch.deserialize(blob)
    for row in rows:
        sketch.update(row)
    return sketch.serialize_compact()


def _kll(blob: bytes | None, rows: Values) -> bytes:
    sketch = apache.kll_doubles_sketch(200) if blob is None else None
    sketch = sketch or apache.kll_doubles_sketch.deserialize(blob)
    sketch.update(rows)
    return sketch.serialize()


def _theta(blob: bytes | None, rows: list[int]) -> bytes:
    sketch = apache.update_theta_sketch(12)
    for row in rows:
        sketch.update(row)
    if blob is None:
        return sketch.compact().serialize()
    union = apache.theta_union(12)  # its sketches are read-only once they were written
    union.update(apache.compact_theta_sketch.deserialize(blob))
    union.update(sketch)
    return union.get_result().serialize()


def _frequent(blob: bytes | None, rows: list[str]) -> bytes:
    sketch = apache.frequent_strings_sketch(7) if blob is None else None
    sketch = sketch or apache.frequent_strings_sketch.deserialize(blob)
    for row in rows:
        sketch.update(row)
    return sketch.serialize()


def _count_min(blob: bytes | None, rows: list[int]) -> bytes:
    sketch = apache.count_min_sketch(5, 272) if blob is None else None
    sketch = sketch or apache.count_min_sketch.deserialize(blob)
    for row in rows:
        sketch.update(row)
    return sketch.serialize()


def _minhash(blob: bytes | None, rows: list[int]) -> bytes:
    known: dict[str, Any] = {}
    if blob is not None:
        lean = datasketch.LeanMinHash.deserialize(blob)
        known = {"hashvalues": lean.hashvalues, "seed": lean.seed}
    sketch = datasketch.MinHash(128, hashfunc=int, scheme="affine32", **known)
    sketch.update_batch(rows)
    lean = datasketch.LeanMinHash(sketch)
    buffer = bytearray(lean.bytesize())
    lean.serialize(buffer)
    return bytes(buffer)


def _uniform(rng: np.random.Generator, count: int) -> Values:
    return rng.integers(0, 1 << 32, count)


def _zipf(rng: np.random.Generator, count: int) -> Values:
    return rng.zipf(1.3, count) % 100_000


CASES = (
    Case(
        "HyperLogLog, p=12",
        "datasketches",
        HyperLogLog("value", 12),
        _uniform,
        Values.tolist,
        _hll,
        2.0,
    ),
    Case(
        "KLL, k=200",
        "datasketches",
        QuantileSketch("value", 200),
        lambda rng, count: rng.normal(size=count),
        np.asarray,
        _kll,
        1.5,
    ),
    Case(
        "theta, k=4096",
        "datasketches",
        Theta("value", 4096),
        _uniform,
        Values.tolist,
        _theta,
        2.0,
        keys=4_000,
    ),
    Case(
        "frequent items, 96 counters",
        "datasketches",
        Frequent("value", pa.string(), 96),
        lambda rng, count: _zipf(rng, count).astype(str),
        Values.tolist,
        _frequent,
        2.0,
        keys=4_000,
    ),
    Case(
        "count-min, 272 x 5",
        "datasketches",
        CountMin("value", pa.int64(), 272, 5),
        _zipf,
        Values.tolist,
        _count_min,
        2.0,
        keys=4_000,
    ),
    Case(
        "MinHash, 128 permutations",
        "datasketch",
        MinHash("value"),
        _uniform,
        Values.tolist,
        _minhash,
        2.0,
        keys=2_000,
    ),
)
SIZES = ((1.0, 500, 50), (0.5, 20, 2))
"""Share of the keys of a case, items that the sketch of each has seen, and new rows of each."""


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds of one case at one size."""

    case: Case
    keys: int
    items: int
    rows: int
    package: float
    state: float
    """From the columns of state."""
    stored: float
    """From stored sketches, which are verified."""


def measure(case: Case, keys: int, items: int, rows: int, repeats: int) -> Reading:
    """Measure both sides of one case."""
    rng = np.random.default_rng(7)
    parts, blobs = [], []
    for start in range(0, keys, _AT_ONCE):
        count = min(_AT_ONCE, keys - start)
        values = case.values(rng, count * items)
        ids = Groups(np.repeat(np.arange(count), items), count)
        parts.append(case.sketch.update(ids, pa.table({"value": values})))
        blobs += [case.update(None, case.prepare(part)) for part in values.reshape(count, items)]
    states = [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]
    stored = Framed(case.sketch).estimate(states)
    values = case.values(rng, keys * rows)
    table, by_key = pa.table({"value": values}), values.reshape(keys, rows)
    prepared = [case.prepare(part) for part in by_key]
    groups = Groups(np.repeat(np.arange(keys), rows), keys)
    both = Groups(np.tile(np.arange(keys), 2), keys)

    def merge(before: Sequence[pa.Array]) -> list[pa.Array]:
        pairs = zip(before, case.sketch.update(groups, table), strict=True)
        return case.sketch.merge(both, [pa.concat_arrays(pair) for pair in pairs])

    def of_package() -> None:
        for blob, part in zip(blobs, prepared, strict=True):
            case.update(blob, part)

    def of_state() -> None:
        case.sketch.payload(merge(states))

    def of_stored() -> None:
        Framed(case.sketch).estimate(merge(read_states(case.sketch, stored)))

    runs = (of_package, of_state, of_stored)
    seconds = [[_cpu(run) for run in runs] for _ in range(repeats + 1)][1:]  # one to warm up
    return Reading(case, keys, items, rows, *map(min, zip(*seconds, strict=True)))


def _cpu(run: Callable[[], None]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def table(readings: Sequence[Reading]) -> str:
    """Format the readings as a Markdown table."""
    return "\n".join(_lines(readings))


def _lines(readings: Sequence[Reading]) -> Iterator[str]:
    yield "| sketch | package | keys x items + new rows | package, s | from state, s | ratio | aim | stored to stored, s | ratio |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for reading in readings:
        case, base = reading.case, reading.package
        fields = [
            case.name,
            f"`{case.package}`",
            f"{reading.keys:,} x {reading.items} + {reading.rows}",
            f"{base:.4f}",
            f"{reading.state:.4f}",
            f"**{reading.state / base:.2f}**",
            f"{case.bound}" + ("" if reading.state <= case.bound * base else " (missed)"),
            f"{reading.stored:.4f}",
            f"{reading.stored / base:.2f}",
        ]
        yield f"| {' | '.join(fields)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sketches", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="put the table into results/README.md")
    options = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    readings = []
    for case in CASES:
        if options.only.lower() in case.name.lower():
            for share, items, rows in SIZES:
                keys = int(case.keys * share)
                readings.append(measure(case, keys, items, rows, options.repeats))
    text = table(readings)
    print(text)
    if options.write:
        replace_between("sketches", "python -m benchmarks.sketches --write", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
