"""Stored queries: the cost of a document as the number of queries grows, at an equal number of matches.

``python -m benchmarks.search --queries 1000 100000 --documents 100000``; with ``--as-of``, documents wait for
the watermark, and every tenth query has a second version: ``wait`` is what a shard does to store them.

Without Spark, in one shard: ``pack`` is what a task does before the shuffle, ``match`` what the shard does.
The first 1,000 queries are the same in all runs and match; the others have a frequent word of the documents
and one that no document has, so that the number of matches stays equal. ``every query`` verifies each query
for each document, by the same vectorised code without the index, on a sample.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streamops import search
from streamops.kernel.codec import encode
from streamops.kernel.core import State
from streamops.search.core import asof, match

DOCUMENTS = pa.schema([("number", pa.int64()), ("title", pa.string()), ("price", pa.int64())])
QUERIES = pa.schema([("id", pa.int64()), ("query", pa.string()), ("lsn", pa.int64())])
VOCABULARY = 50_000
LENGTH = 10
MATCHING = 1_000
BATCH = 50_000


def documents(count: int, seed: int, batch_size: int = BATCH) -> Iterator[pa.Table]:
    """Micro-batches of documents of ten words, with frequencies as in natural texts."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, VOCABULARY + 1)
    vocabulary = np.array([f"word{number}" for number in range(VOCABULARY)])
    for first in range(0, count, batch_size):
        size = min(batch_size, count - first)
        drawn = rng.choice(VOCABULARY, (size, LENGTH), p=weights / weights.sum())
        yield pa.table(
            [
                np.arange(first, first + size),
                [" ".join(row) for row in vocabulary[drawn]],
                rng.integers(0, 1_000, size),
            ],
            schema=DOCUMENTS,
        )


def queries(count: int) -> pa.Table:
    """1,000 queries that match, and others with a frequent word and one that does not occur."""
    rng = np.random.default_rng(7)
    texts = []
    for number in range(count):
        if number < MATCHING:
            word = 50 + number
            texts.append(f"word{word} AND price:[* TO {rng.integers(100, 900)}] AND NOT word3")
        else:
            texts.append(f"word{rng.integers(0, 200)} AND (absent{number} OR missing{number})")
    return pa.table([np.arange(count), texts, np.arange(count)], schema=QUERIES)


def cpu(act: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    before = time.process_time()
    result = act()
    return time.process_time() - before, result


def measure(query_count: int, document_count: int, batch_size: int) -> dict[str, float]:
    """Costs in CPU seconds, for one number of queries."""
    operator = search.match(
        None, text="title", fields="price", sequence="lsn", horizon=0, max_keys=10**7
    )
    spec: Any = operator.parameters.resolve((DOCUMENTS, QUERIES), carried=(None, None), shards=1)
    table = queries(query_count)
    compiling, changes = cpu(lambda: match.pack(spec, table, "right"))
    empty = match.pack(spec, DOCUMENTS.empty_table(), "left")
    storing, step = cpu(
        lambda: match.step(spec, State.empty(match.layout(spec)), [empty, changes], None)
    )
    state, none = step.state, match.pack(spec, QUERIES.empty_table(), "right")
    warm = match.pack(spec, next(documents(BATCH, 1)), "left")
    building, _ = cpu(lambda: match.step(spec, state, [warm, none], None))
    packing = matching = 0.0
    results = 0
    for batch in documents(document_count, 2, batch_size):
        seconds, packed = cpu(lambda rows=batch: match.pack(spec, rows, "left"))
        packing += seconds
        seconds, step = cpu(lambda rows=packed: match.step(spec, state, [rows, none], None))
        matching += seconds
        results += len(step.output)
    return {
        "queries": query_count,
        "matches": results,
        "compile": compiling,
        "store": storing,
        "first step": building,
        "pack, us per document": packing / document_count * 1e6,
        "match, us per document": matching / document_count * 1e6,
        "every query, us per document": _every_query(spec, state, none) * 1e6,
    }


def measure_as_of(query_count: int, document_count: int, batch_size: int) -> dict[str, float]:
    """Costs as of event time. Half of the documents are before the second versions of queries."""
    instant = pa.timestamp("us", tz="UTC")
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
    schemas = (
        DOCUMENTS.append(pa.field("ts", instant)),
        QUERIES.append(pa.field("since", instant)),
    )
    spec: Any = operator.parameters.resolve(schemas, carried=(None, None), shards=1)
    first, middle = queries(query_count), 1 << 30
    versions = ((first, 0), (first.slice(0, query_count // 10), middle))
    table = pa.concat_tables(
        rows.append_column("since", pa.array(np.full(len(rows), since)).cast(instant))
        for rows, since in versions
    )
    changes = asof.pack(spec, table, "right")
    none = asof.pack(spec, schemas[1].empty_table(), "right")
    empty = asof.pack(spec, schemas[0].empty_table(), "left")
    storing, step = cpu(
        lambda: asof.step(spec, State.empty(asof.layout(spec)), [empty, changes], 1)
    )
    state = step.state
    waiting = matching = encoding = 0.0
    results, is_warm = 0, False
    for batch in (*documents(BATCH, 1), *documents(document_count, 2, batch_size)):
        times = middle + np.arange(len(batch)) - len(batch) // 2
        rows = batch.append_column("ts", pa.array(times).cast(instant))
        packed = asof.pack(spec, rows, "left")
        stored, step = cpu(lambda rows=packed: asof.step(spec, state, [rows, none], 1))
        tables = {"documents": step.state.tables["documents"]}
        encoded, _ = cpu(lambda of=tables: encode(asof.STATE, {}, 1, of))
        released, step = cpu(
            lambda of=step.state: asof.step(spec, of, [empty, none], middle + batch_size)
        )
        if is_warm:
            waiting, matching = waiting + stored, matching + released
            encoding, results = encoding + encoded, results + len(step.output)
        is_warm = True  # the first step builds the index
    return {
        "queries": query_count,
        "matches": results,
        "store": storing,
        "wait, us per document": waiting / document_count * 1e6,
        "encode, us per document": encoding / document_count * 1e6,
        "match, us per document": matching / document_count * 1e6,
    }


def _every_query(spec: Any, state: State, none: pa.Table) -> float:
    """CPU seconds per document if every query is verified, on few documents."""
    index, _ = match._find_index(spec, state.tables["rows"])
    filed = (index.queries, index.bounds, index.always, index.filed)
    index.queries, index.bounds = index.queries[:0], np.zeros_like(index.bounds)
    index.always, index.filed = np.arange(len(index.starts)), 1 << 40
    count = max(1, min(1_000, 2_000_000 // len(index.starts)))
    packed = match.pack(spec, next(documents(count, 3)), "left")
    seconds, _ = cpu(lambda: match.step(spec, state, [packed, none], None))
    index.queries, index.bounds, index.always, index.filed = filed
    return seconds / count


def main() -> None:
    """Measure, and print a line per number of queries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=BATCH, help="documents per micro-batch")
    parser.add_argument("--as-of", action="store_true", help="as of the event time of documents")
    arguments = parser.parse_args()
    for count in arguments.queries:
        act = measure_as_of if arguments.as_of else measure
        found = act(count, arguments.documents, arguments.batch)
        print(", ".join(f"{name} {value:,.3g}" if isinstance(value, float) else f"{name} {value:,}" for name, value in found.items()), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
