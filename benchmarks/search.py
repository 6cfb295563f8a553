"""Stored queries: the cost of a document as the number of queries grows, at an equal number of matches.

``python -m benchmarks.search --write`` measures all that benchmarks/results/README.md and docs/search.md state about
``search.match`` without Spark, records it in benchmarks/results/search, and writes the tables of the page. A
number of queries takes its time: a million are compiled in two minutes.

One shard, one process. *Pack* is what a task does before the shuffle: it splits documents into words, and
writes them. The *shard* is the whole step that Spark calls, from packed rows and the stored state to packed
results and the state to store. *Every query* verifies each query for each document, by the same vectorised
code without the index, on a sample. As of event time, a document costs two steps of the shard: it is stored,
and it is matched. Every tenth query has a second version then, which is valid later.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.documents import make_documents, make_queries
from benchmarks.machine import describe_machine
from benchmarks.tables import replace_between
from streamops import search
from streamops.kernel.codec import ipc_write
from streamops.kernel.core import State
from streamops.search.core import match
from streamops.search.core.match import SearchCore
from streamops.spark.operator import Operator
from streamops.spark.packing import pack_rows
from streamops.spark.retained import forget_all
from streamops.spark.step import ShardStep, Stored

RESULTS = Path(__file__).with_name("results") / "search"
GROWTH = 3.0
"""The aim: a document costs at most so many times more with the most queries than with the fewest."""

INSTANT = pa.timestamp("us", tz="UTC")
DOCUMENTS = pa.schema([("number", pa.int64()), ("title", pa.string()), ("price", pa.int64())])
QUERIES = pa.schema([("id", pa.int64()), ("query", pa.string()), ("lsn", pa.int64())])
COMPILED_AT_ONCE = 50_000
WARM = 2
"""Micro-batches before the first measured one: the index is filed for the last time in them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds with one number of queries."""

    queries: int
    documents: int
    batch: int
    matches: int
    compile: float
    store: float
    state_bytes: int
    decode: float
    """To decode the stored state, which a worker does that has not retained it."""
    index: float
    """To build the index, which a worker does after a change."""
    first: float
    """The first micro-batch of a worker, which decodes the state and builds the index."""
    pack: list[float]
    """Of each micro-batch."""
    shard: list[float]
    change: float
    """A micro-batch with documents and one changed query."""
    every_query: float
    """Per document, on a sample."""

    @property
    def packed(self) -> float:
        """Microseconds per document, before the shuffle."""
        return median(self.pack) / self.batch * 1e6

    @property
    def matched(self) -> float:
        """Microseconds per document, in the shard."""
        return median(self.shard) / self.batch * 1e6


@dataclass(frozen=True, slots=True)
class ReadingAsOf:
    """CPU seconds as of event time."""

    queries: int
    documents: int
    batch: int
    matches: int
    wait: list[float]
    """Of each micro-batch, to store its documents."""
    shard: list[float]
    """To match them."""


@dataclass(frozen=True, slots=True)
class ReadingMemory:
    """Memory that a worker retains."""

    queries: int
    retained: int
    """Bytes: the decoded state, and its index."""


def documents(count: int, seed: int, batch_size: int) -> Iterator[pa.Table]:
    """Micro-batches of documents."""
    rng = np.random.default_rng(seed)
    for first in range(0, count, batch_size):
        size = min(batch_size, count - first)
        columns = {"number": np.arange(first, first + size), **make_documents(rng, size)}
        yield pa.table(columns, schema=DOCUMENTS)


def cpu(act: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    before = time.process_time()
    result = act(*arguments)
    return time.process_time() - before, result


def build_step(operator: Operator, *schemas: pa.Schema) -> ShardStep:
    spec = operator.parameters.resolve(schemas, carried=(None, None), shards=1)
    return ShardStep(operator.name, operator.core, spec, 1)


def pack(step: ShardStep, rows: pa.Table, *, is_query: bool = False) -> bytes:
    """Rows as a task sends them to the shard."""
    return ipc_write(pack_rows(step.core, step.spec, "right" if is_query else "left", rows))


def compile_all(step: ShardStep, rows: pa.Table) -> list[bytes]:
    """Packed queries."""
    parts = range(0, len(rows), COMPILED_AT_ONCE)
    return [pack(step, rows.slice(start, COMPILED_AT_ONCE), is_query=True) for start in parts]


def measure(query_count: int, document_count: int, batch_size: int) -> Reading:
    """Measure the queries in effect when a document is processed."""
    operator = search.match(
        None, text="title", fields="price", sequence="lsn", horizon=0, max_keys=10**7
    )
    step = build_step(operator, DOCUMENTS, QUERIES)
    numbers = np.arange(query_count)
    rows = pa.table([numbers, make_queries(query_count), numbers], schema=QUERIES)
    compiling, packs = cpu(compile_all, step, rows)
    storing, (stored, _) = cpu(step, None, packs)
    del packs
    forget_all()
    decoding, state = cpu(lambda: Stored(*stored).state(step.header))
    indexing, _ = cpu(match._find_index, step.spec, state.tables["rows"])
    every = _every_query(step.spec, state)
    state = None
    gc.collect()

    warm = [pack(step, rows) for rows in documents(WARM * batch_size, 1, batch_size)]
    first, _ = cpu(step, stored, warm[:1])
    step(stored, warm[1:])
    packing, matching, results = [], [], 0
    for batch in documents(document_count, 2, batch_size):
        seconds, packed = cpu(pack, step, batch)
        packing.append(seconds)
        seconds, (after, emitted) = cpu(step, stored, [packed])
        matching.append(seconds)
        assert after is None, "no query was changed"
        results += _results(step, emitted)
    other = pa.table([[0], ["word50"], [query_count]], schema=QUERIES)
    packs = [warm[0], pack(step, other, is_query=True)]
    changing, _ = cpu(step, stored, packs)
    return Reading(
        query_count,
        document_count,
        batch_size,
        results,
        compiling,
        storing,
        len(stored[-1]),
        decoding,
        indexing,
        first,
        packing,
        matching,
        changing,
        every,
    )


def measure_as_of(query_count: int, document_count: int, batch_size: int) -> ReadingAsOf:
    """Measure the queries of event time."""
    operator = search.match(
        None,
        text="title",
        fields="price",
        as_of="ts",
        time="since",
        sequence="lsn",
        delay="0 seconds",
        max_keys=10**7,
    )
    schemas = DOCUMENTS.append(pa.field("ts", INSTANT)), QUERIES.append(pa.field("since", INSTANT))
    step = build_step(operator, *schemas)
    numbers = np.arange(query_count)
    rows = pa.table([numbers, make_queries(query_count), numbers], schema=QUERIES)
    versions = ((rows, 0), (rows.slice(0, query_count // 10), 1 << 50))
    changes = pa.concat_tables(
        some.append_column("since", pa.array(np.full(len(some), since)).cast(INSTANT))
        for some, since in versions
    )
    stored, _ = step(None, compile_all(step, changes), 1)
    waiting, matching, results = [], [], 0
    warm = documents(WARM * batch_size, 1, batch_size)
    for number, batch in enumerate((*warm, *documents(document_count, 2, batch_size))):
        start_ms = batch_size * (number + 1)
        times = start_ms * 1_000 + np.arange(len(batch))
        packed = pack(step, batch.append_column("ts", pa.array(times).cast(INSTANT)))
        storing, (stored, _) = cpu(step, stored, [packed], start_ms - 1)
        released, (stored, emitted) = cpu(step, stored, [], start_ms + batch_size)
        if number >= WARM:
            waiting.append(storing)
            matching.append(released)
            results += _results(step, emitted)
    return ReadingAsOf(query_count, document_count, batch_size, results, waiting, matching)


def measure_memory(query_count: int, document_count: int, batch_size: int) -> ReadingMemory:
    """Measure what a worker retains of a shard."""
    operator = search.match(
        None, text="title", fields="price", sequence="lsn", horizon=0, max_keys=10**7
    )
    step = build_step(operator, DOCUMENTS, QUERIES)
    numbers = np.arange(query_count)
    rows = pa.table([numbers, make_queries(query_count), numbers], schema=QUERIES)
    stored, _ = step(None, compile_all(step, rows))
    packed = pack(step, next(documents(1_000, 1, 1_000)))
    forget_all()
    before = _memory()
    step(stored, [packed])
    return ReadingMemory(query_count, _memory() - before)


def _results(step: ShardStep, emitted: Any) -> int:
    return int(dict(zip(step.metric_names, emitted["metrics"][0], strict=True))["results"])


def _memory() -> int:
    """Bytes of memory that this process has in use now."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _every_query(spec: Any, state: State) -> float:
    """CPU seconds per document if every query is verified, on few documents."""
    index, _ = match._find_index(spec, state.tables["rows"])
    index.always, index.filed = np.arange(len(index.starts)), 1 << 40
    index.bounds = np.zeros(len(index.frequency) + 1, np.int64)
    count = max(1, min(1_000, 2_000_000 // len(index.starts)))
    packed = SearchCore().pack(spec, next(documents(count, 3, count)), "left")
    none = SearchCore().pack(spec, QUERIES.empty_table(), "right")
    seconds, _ = cpu(SearchCore().step, spec, state, [packed, none], None)
    return seconds / count


def tables(record: dict[str, Any]) -> str:
    """The tables of a record."""
    return "\n".join(_lines(record))


def _lines(record: dict[str, Any]) -> Iterator[str]:
    readings = [Reading(**reading) for reading in record["readings"]]
    machine, loads = record["machine"], record["loads"]
    few = min(readings, key=lambda reading: reading.queries)
    yield (
        f"Run of {record['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; Python "
        f"{machine['python']}, pyarrow {machine['pyarrow']}. Load average {min(loads):.1f} to "
        f"{max(loads):.1f}. {few.documents:,} documents in micro-batches of {few.batch:,}."
    )
    yield ""
    yield "| stored queries | matches per document | pack, µs per document | shard | lowest to highest | both | times the first row | every query, µs |"
    yield "|---|---|---|---|---|---|---|---|"
    for reading in readings:
        both, least = (r.packed + r.matched for r in (reading, few))
        shards = [seconds / reading.batch * 1e6 for seconds in reading.shard]
        yield (
            f"| {reading.queries:,} | {reading.matches / reading.documents:.2f} | "
            f"{reading.packed:.2f} | {reading.matched:.2f} | {min(shards):.2f} to {max(shards):.2f} | "
            f"**{both:.2f}** | {both / least:.2f} | {reading.every_query * 1e6:,.0f} |"
        )
    most = readings[-1]
    ratio = (most.packed + most.matched) / (few.packed + few.matched)
    met = "met" if ratio <= GROWTH else "not met"
    yield ""
    yield (
        f"Wanted: with {most.queries:,} queries at most {GROWTH:.0f} times the cost with "
        f"{few.queries:,}. Measured: {ratio:.2f}, {met}."
    )
    yield ""
    yield "| stored queries | compile, s | state, bytes per query | decode, µs per query | index, µs per query | first micro-batch of a worker, s | any other, s | with one change, s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for reading in readings:
        count = reading.queries
        yield (
            f"| {count:,} | {reading.compile:.2f} | {reading.state_bytes / count:.0f} | "
            f"{reading.decode / count * 1e6:.2f} | {reading.index / count * 1e6:.2f} | "
            f"{reading.first:.2f} | {median(reading.shard):.2f} | "
            f"{reading.change:.2f} |"
        )
    yield ""
    as_of = [ReadingAsOf(**reading) for reading in record["as_of"]]
    if as_of:
        yield f"As of event time, {as_of[0].documents:,} documents in micro-batches of {as_of[0].batch:,}:"
        yield ""
        yield "| stored queries | matches per document | shard, store, µs per document | shard, match | both |"
        yield "|---|---|---|---|---|"
    for of in as_of:
        stored, matched = (median(seconds) / of.batch * 1e6 for seconds in (of.wait, of.shard))
        yield (
            f"| {of.queries:,} | {of.matches / of.documents:.2f} | {stored:.2f} | {matched:.2f} | "
            f"**{stored + matched:.2f}** |"
        )
    for of in (ReadingMemory(**reading) for reading in record["memory"]):
        yield ""
        yield (
            f"A worker retains {of.retained / of.queries / 1e3:.2f} KB per query: the decoded state "
            f"and its index, with {of.queries:,} queries."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    add = parser.add_argument
    add("--queries", type=int, nargs="*", default=[1_000, 100_000, 1_000_000])
    add("--as-of-queries", type=int, nargs="*", default=[1_000, 100_000])
    add("--memory-queries", type=int, nargs="*", default=[100_000])
    add("--documents", type=int, default=1_000_000)
    add("--batch", type=int, default=100_000, help="documents per micro-batch")
    add("--write", action="store_true", help="put the tables into results/README.md")
    add("--into", type=Path, help="add to a recorded file")
    add("--record", type=Path, help="print the tables of a recorded file, measure nothing")
    options = parser.parse_args(arguments)
    record = json.loads(options.record.read_text()) if options.record else _measure(options)
    text = tables(record)
    print(text)
    if options.write:
        replace_between("search", "python -m benchmarks.search --write", text)
    return 0


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    pa.set_cpu_count(1)
    started = datetime.now(UTC)
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = options.into or RESULTS / f"{started:%Y-%m-%dT%H%M%S}.json"
    record: dict[str, Any] = {
        "started": started.isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "loads": [os.getloadavg()[0]],
        "readings": [],
        "as_of": [],
        "memory": [],
    }
    if options.into:
        record |= json.loads(target.read_text())
    for name, act, counts in (
        ("readings", measure, options.queries),
        ("as_of", measure_as_of, options.as_of_queries),
        ("memory", measure_memory, options.memory_queries),
    ):
        for count in counts:
            forget_all()
            record[name].append(asdict(act(count, options.documents, options.batch)))
            record["loads"].append(os.getloadavg()[0])
            target.write_text(json.dumps(record, indent=1))
            print(f"{name}: {count:,} queries, recorded in {target}", file=sys.stderr, flush=True)
    return record


if __name__ == "__main__":
    sys.exit(main())
