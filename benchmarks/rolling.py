"""Rolling aggregates next to hopping windows joined by hand, and training sets next to what was served.

    python -m benchmarks.rolling

Views of pages over 40 days. The values of five horizons, from an hour to 30 days, are computed every ten minutes:
by one `windows.rolling`, and by five `windows.hopping` whose results are joined by page and end of the window, those of
30 days with the others by `joins.interval`. All are replayed in the same micro-batches without Spark, from the rows to the
stored states and the output. CPU seconds are those of this process.

Then ten million labelled rows get a page and a time each. What was served is the last row of the page that the stream had emitted.
What `joins.asof` finds in a batch result must have the same bits.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from time import process_time

import numpy as np
import pyarrow as pa

from streamops import aggregates as agg
from streamops import joins, windows
from streamops.spark.drive import resolve
from streamops.spark.operator import Operator
from streamops.testing.batches import canonical
from streamops.testing.replaying import Replay

HORIZONS = {"1h": "1 hour", "6h": "6 hours", "1d": "1 day", "7d": "7 days", "30d": "30 days"}
EVERY, DELAY = "10 minutes", "1 minute"
AGGREGATES = {"n": agg.count(), "total": agg.sum("v"), "most": agg.max("v")}
_EVERY, _DELAY = 600_000_000, 60_000_000
_DAY = 86_400_000_000
_START = 1_767_225_600_000_000
_PIECE = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("us", tz="UTC"))])


def make_batches(keys: int, rows: int, days: int, batches: int) -> list[pa.Table]:
    """Views in micro-batches of equal time. Few pages have most of them, and up to a minute of disorder."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, days * _DAY, rows))
    arrival = times + rng.integers(0, _DELAY, rows)
    page = (keys * rng.random(rows) ** 3).astype(np.int64)
    table = pa.table(
        [
            pa.array(page),
            pa.array(rng.normal(size=rows)),
            pa.array(_START + times).cast(SCHEMA[2].type),
        ],
        schema=SCHEMA,
    )
    order = np.argsort(arrival, kind="stable")
    cuts = np.searchsorted(arrival[order], np.linspace(0, days * _DAY, batches + 1)[1:-1])
    return [table.take(part) for part in np.split(order, cuts)]


def replay(operator: Operator, batches: list[pa.Table]) -> tuple[float, list[pa.Table], list[int]]:
    """CPU seconds, the output of each micro-batch, and its watermark in microseconds."""
    query = Replay(operator, SCHEMA, shards=1)
    start = process_time()
    results = query.run(batches)
    used = process_time() - start
    late = sum(r.counts.stragglers + r.counts.too_late for r in results if r.counts)
    assert not late, f"{late} rows were late"
    marks = [
        -1 if r.watermark is None else int(r.watermark.timestamp()) * 1_000_000 for r in results
    ]
    return used, [result.table for result in results], marks


def join_by_hand(outputs: dict[str, list[pa.Table]]) -> tuple[float, int]:
    """CPU seconds of the joins of all horizons with the longest one, and the rows of the result."""
    *others, longest = outputs
    joined, used = [_of_horizon(table, longest) for table in outputs[longest]], 0.0
    for name in others:
        right = [_of_horizon(table, name) for table in outputs[name]]
        operator = joins.interval(
            None,
            "0 seconds",
            "0 seconds",
            by="k",
            time=(f"end_{longest}", f"end_{name}"),
            how="left",
            delay=("0 seconds", "0 seconds"),
        )
        query = Replay(operator, (joined[0].schema, right[0].schema), shards=1)
        start = process_time()
        results = query.run(zip(joined, right, strict=True))
        used += process_time() - start
        joined = [result.table.drop_columns(["status"]) for result in results[: len(right)]]
    return used, sum(map(len, joined))


def _of_horizon(table: pa.Table, name: str) -> pa.Table:
    """The results of a window under the names of its horizon."""
    own = {"k": "k", "window_end": f"end_{name}"} | {
        value: f"{value}_{name}" for value in AGGREGATES
    }
    return table.select(list(own)).rename_columns(own)


def rolling() -> Operator:
    """All horizons in one operator."""
    return windows.rolling(EVERY, HORIZONS, time="ts", by="k", agg=AGGREGATES, delay=DELAY)


def compare_costs(batches: list[pa.Table]) -> tuple[list[pa.Table], list[int]]:
    """Print the cost of rolling aggregates and of hopping windows. Returns the output of the former."""
    rows = sum(map(len, batches))
    print("| operator | CPU s | rows of output |\n|---|---:|---:|", flush=True)
    total = output = 0.0
    by_name = {}
    for name, size in HORIZONS.items():
        by_hand = windows.hopping(size, EVERY, time="ts", by="k", agg=AGGREGATES, delay=DELAY)
        used, tables, _ = replay(by_hand, batches)
        by_name[name] = tables
        total, output = total + used, output + sum(map(len, tables))
        print(f"| hopping {name} | {used:.1f} | {sum(map(len, tables)):,} |", flush=True)
    print(f"| five hopping, not joined | {total:.1f} | {output:,.0f} |", flush=True)
    used, joined = join_by_hand(by_name)
    by_name.clear()
    total += used
    print(f"| their joins | {used:.1f} | {joined:,} |", flush=True)
    print(f"| five hopping, joined | {total:.1f} | {joined:,} |", flush=True)
    used, tables, marks = replay(rolling(), batches)
    print(f"| rolling | {used:.1f} ({used / total:.2f}) | {sum(map(len, tables)):,} |", flush=True)
    print(f"{rows:,} rows in {len(batches)} micro-batches", flush=True)
    return tables, marks


def served_rows(
    tables: list[pa.Table], pages: np.ndarray, numbers: np.ndarray
) -> tuple[pa.Table, np.ndarray]:
    """All rows that were emitted, and which of them each page had after a micro-batch; -1 without one."""
    rows = pa.concat_tables(tables)
    batch = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    page, end = (rows.column(n).cast(pa.int64()).to_numpy() for n in ("k", "window_end"))
    order = np.lexsort((end, batch, page))
    codes = (page * len(tables) + batch)[order]
    found = np.searchsorted(codes, pages * len(tables) + numbers, side="right") - 1
    exists = (found >= 0) & (page[order[found]] == pages)
    return rows, np.where(exists, order[found], -1)


def joined_rows(batches: list[pa.Table], facts: pa.Table) -> Iterator[pa.Table]:
    """Labelled rows with the values of a batch that were in effect at their times, in pieces."""
    of = rolling()
    spec = resolve(of, (canonical(SCHEMA),), (None,))
    features = of.core.run(spec, [of.core.pack(spec, pa.concat_tables(batches))]).output
    join = joins.asof(None, by="k", time="at", version="window_end", sequence="window_end")
    joined = resolve(join, (facts.schema, features.schema), (None, None))
    versions = join.core.pack(joined, features, "right")
    for start in range(0, len(facts), _PIECE):
        piece = join.core.pack(joined, facts.slice(start, _PIECE), "left")
        yield join.core.run(joined, [piece, versions]).output


def count_differences(found: pa.Table, expected: pa.Table, names: list[str]) -> int:
    """How many rows have a value with other bits."""
    differs = np.zeros(len(found), bool)
    for name in names:
        ours, theirs = found.column(name).combine_chunks(), expected.column(name).combine_chunks()
        bits = [
            np.where(a.is_null(), 0, a.fill_null(0).to_numpy(zero_copy_only=False).view(np.int64))
            for a in (ours, theirs)
        ]
        nulls = ours.is_null().to_numpy(zero_copy_only=False) != theirs.is_null().to_numpy(
            zero_copy_only=False
        )
        differs |= nulls | (bits[0] != bits[1])
    return int(differs.sum())


def compare_training(
    batches: list[pa.Table], tables: list[pa.Table], marks: list[int], keys: int, labels: int
) -> None:
    """Print how many labelled rows have other values than those that were served."""
    rng = np.random.default_rng(1)
    mark = np.array(marks)
    pages = rng.integers(0, keys, labels)
    numbers = rng.choice(np.flatnonzero(mark > _START), labels)
    # Nothing is emitted between the watermark and the next border.
    at = mark[numbers] + (rng.random(labels) * (_EVERY - mark[numbers] % _EVERY)).astype(np.int64)
    rows, which = served_rows(tables, pages, numbers)
    times = pa.array(at).cast(SCHEMA.field("ts").type)
    facts = pa.table({"id": np.arange(labels), "k": pages, "at": times})
    names = [name for name in rows.column_names if name != "k"]
    differences = matched = compared = 0
    for joined in joined_rows(batches, facts):
        found = which[joined.column("id").to_numpy()]
        expected = rows.select(names).take(pa.array(found, mask=found < 0))
        differences += count_differences(joined, expected, names)
        matched, compared = matched + int((found >= 0).sum()), compared + len(joined)
    print(
        f"{compared:,} labelled rows, {matched:,} with values: {differences:,} differ from what was served"
    )
    assert compared == labels


def main() -> None:
    """Measure and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rolling", description=__doc__)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--batches", type=int, default=960)
    parser.add_argument("--labels", type=int, default=10_000_000)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    batches = make_batches(options.keys, options.rows, options.days, options.batches)
    tables, marks = compare_costs(batches)
    compare_training(batches, tables, marks, options.keys, options.labels)


if __name__ == "__main__":
    main()
