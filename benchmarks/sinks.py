"""Rows per CPU second of the sinks, and of code that writes the same rows without a ledger.

    make bench-sinks                                    all systems
    python -m benchmarks.sinks delta --rows 100000

A function per system yields pairs to compare: the sink, and what one would write by hand with the same
package. Both write the same micro-batches to equal targets, in turns. Micro-batches are Arrow tables: Spark
is not part of the measurement, except for Kafka, which is compared with Spark's own sink. CPU seconds are those
of this process and of the processes that it started, servers and JVMs: other programs do not count, but they
share its caches, so the load is printed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.cpu import read_started
from streamops import local_session, sinks
from streamops.sinks.sink import Sink
from streamops.spark.identity import Identity

RUN = Identity("query", "run")
STORED = 1_000_000
"""Rows of a target before the first micro-batch."""

_SETTLE = 0.3
"""Seconds in which threads of a writer free its memory, which would count for the next one."""

Write = Callable[[pa.Table, int], None]


@dataclass(frozen=True)
class Pair:
    """Two ways to write the same micro-batches, each to a target of its own."""

    task: str
    sink: Write
    by_hand: Write
    batches: list[pa.Table]


def delta(rows: int, repeats: int, folder: Path) -> Iterator[Pair]:
    """The Delta sink, and ``deltalake`` called directly."""
    deltalake = importlib.import_module("deltalake")
    paths = [str(folder / name) for name in ("append sink", "append by hand")]

    def append(table: pa.Table, _: int) -> None:
        deltalake.write_deltalake(paths[1], table, mode="append")

    first, *batches = make_upserts(rows, repeats)
    yield Pair("append", writer(sinks.delta(paths[0])), append, batches)

    upserts = [str(folder / name) for name in ("upsert sink", "upsert by hand")]

    def merge(table: pa.Table, _: int) -> None:
        values = {name: f"s.{name}" for name in table.column_names}
        target = deltalake.DeltaTable(upserts[1])
        merging = target.merge(table, "t.k = s.k", source_alias="s", target_alias="t")
        merging = merging.when_matched_update(values, predicate="t.revision < s.revision")
        merging.when_not_matched_insert(values).execute()

    for path in upserts:
        deltalake.write_deltalake(path, first)
    yield Pair("upsert", writer(sinks.delta(upserts[0], key="k")), merge, batches)

    changes = [str(folder / name) for name in ("changes sink", "changes by hand")]

    def merge_changes(table: pa.Table, _: int) -> None:
        # Without a comparison of the preimages: the last image of a key, or its delete.
        is_last = pa.compute.not_equal(table.column("_change_type"), "update_preimage")
        values = {n: f"s.{n}" for n in table.column_names if n != "_change_type"}
        target = deltalake.DeltaTable(changes[1])
        merging = target.merge(
            table.filter(is_last), "t.k = s.k", source_alias="s", target_alias="t"
        )
        merging = merging.when_matched_delete("s._change_type = 'delete'")
        merging.when_matched_update(values).when_not_matched_insert(values).execute()

    for path in changes:
        deltalake.write_deltalake(path, first)
    steps = list(make_changes(first, rows, repeats))
    yield Pair("changes", writer(sinks.delta(changes[0], key="k")), merge_changes, steps)


def parquet(rows: int, repeats: int, folder: Path) -> Iterator[Pair]:
    """The Parquet sink, and a file per micro-batch."""
    pq = importlib.import_module("pyarrow.parquet")

    def write(table: pa.Table, number: int) -> None:
        pq.write_table(table, folder / f"{number}.parquet")

    yield Pair(
        "append",
        writer(sinks.parquet(str(folder / "sink"))),
        write,
        make_upserts(rows, repeats)[1:],
    )


def sqlalchemy(rows: int, repeats: int, folder: Path) -> Iterator[Pair]:
    """The SQLAlchemy sink on SQLite, and the same upsert in the dialect of SQLite."""
    sa = importlib.import_module("sqlalchemy")
    insert = importlib.import_module("sqlalchemy.dialects.sqlite").insert
    url = f"sqlite:///{folder}/by-hand"
    engine = sa.create_engine(url)
    columns = [
        sa.Column("name", sa.Text),
        sa.Column("v", sa.Double),
        sa.Column("revision", sa.Integer),
    ]
    key = sa.Column("k", sa.BigInteger, primary_key=True)
    table = sa.Table("t", sa.MetaData(), key, *columns)
    table.create(engine)

    def upsert(batch: pa.Table, _: int) -> None:
        statement = insert(table)
        new = {column.name: statement.excluded[column.name] for column in columns}
        newer = table.c.revision < statement.excluded.revision
        statement = statement.on_conflict_do_update(index_elements=["k"], set_=new, where=newer)
        with engine.begin() as connection:
            connection.execute(statement, batch.to_pylist())

    sink = sinks.sqlalchemy(f"sqlite:///{folder}/sink", "t", key="k")
    batches = make_upserts(rows // 10, repeats, stored=STORED // 10)[1:]
    yield Pair("upsert", writer(sink), upsert, batches)
    engine.dispose()


def postgres(rows: int, repeats: int, folder: Path) -> Iterator[Pair]:
    """The PostgreSQL sink, and psycopg's row-wise COPY with the same upsert."""
    psycopg = importlib.import_module("psycopg")
    server = importlib.import_module("tests.servers.postgres")
    with server.running(server.programs()) as where, psycopg.connect(where) as connection:
        url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"
        columns = "k bigint PRIMARY KEY, name text, v double precision, revision integer"
        first, *batches = make_upserts(rows, repeats)
        for name in ("sink", "by_hand"):
            connection.execute(f"CREATE TABLE {name} ({columns})".encode())
        connection.execute("CREATE TEMP TABLE staged (LIKE by_hand)")
        connection.execute("CREATE TABLE appended_by_hand (LIKE by_hand)")
        connection.commit()

        def copy_rows(cursor: Any, table: pa.Table, name: str) -> None:
            with cursor.copy(f"COPY {name} FROM STDIN") as copy:
                for row in zip(*(c.to_pylist() for c in table.columns), strict=True):
                    copy.write_row(row)

        def append(table: pa.Table, _: int) -> None:
            with connection.cursor() as cursor:
                copy_rows(cursor, table, "appended_by_hand")
            connection.commit()

        def upsert(table: pa.Table, _: int) -> None:
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE staged")
                copy_rows(cursor, table, "staged")
                cursor.execute(
                    "INSERT INTO by_hand AS t SELECT * FROM staged ON CONFLICT (k) DO UPDATE SET name = "
                    "excluded.name, v = excluded.v, revision = excluded.revision "
                    "WHERE t.revision < excluded.revision"
                )
            connection.commit()

        appended = sinks.postgres(url, "appended")
        yield Pair("append", writer(appended), append, batches)
        appended.session.close()
        sink = sinks.postgres(url, "sink", key="k")
        upsert(first, 0)
        connection.execute("INSERT INTO sink SELECT * FROM by_hand")
        connection.commit()
        connection.execute("ANALYZE")
        connection.commit()
        yield Pair("upsert", writer(sink), upsert, batches)
        sink.session.close()


def kafka(rows: int, repeats: int, folder: Path) -> Iterator[Pair]:
    """The Kafka sink, and Spark's own with the same JSON. Both read the micro-batch from a Parquet file."""
    pq = importlib.import_module("pyarrow.parquet")
    broker = importlib.import_module("tests.kafka.broker")
    functions = importlib.import_module("pyspark.sql.functions")
    connector = ",".join(map(str, broker.jars("connector")))
    spark = local_session(conf={"spark.jars": connector})
    with broker.running() as server:
        topics = [server.create_topic(partitions=4) for _ in range(2)]
        sink = sinks.kafka(topics[0], servers=server.bootstrap, key="k")

        def read(table: pa.Table, name: str) -> Any:
            path = str(folder / f"{name}.parquet")
            pq.write_table(table, path)
            return spark.read.parquet(path)

        def by_hand(table: pa.Table, number: int) -> None:
            frame = read(table, f"by hand {number}")
            key, value = (
                functions.to_json(functions.struct(*names)).alias(alias)
                for alias, names in (("key", ["k"]), ("value", table.column_names))
            )
            writing = frame.select(key, value).write.format("kafka")
            options = {
                "kafka.bootstrap.servers": server.bootstrap,
                "kafka.compression.type": "lz4",
                "topic": topics[1],
            }
            writing.options(**options).save()

        def write(table: pa.Table, number: int) -> None:
            sink.write(read(table, f"sink {number}"), query="query", batch_id=number)

        # The first micro-batches warm the JVM up.
        warm = make_upserts(rows, repeats + 2)[1:]
        for number, table in enumerate(warm[:2]):
            write(table, number)
            by_hand(table, number)
        yield Pair("upsert", lambda t, n: write(t, n + 2), by_hand, warm[2:])
    spark.stop()


SYSTEMS = {
    "postgres": postgres,
    "delta": delta,
    "parquet": parquet,
    "sqlalchemy": sqlalchemy,
    "kafka": kafka,
}


def writer(sink: Sink) -> Write:
    """Write micro-batches with a sink."""
    return lambda table, number: sink._deliver_rows(table, number, RUN)


def make_upserts(rows: int, repeats: int, stored: int = STORED) -> list[pa.Table]:
    """A first table, and micro-batches whose keys are spread over it; one in ten is new."""
    rng = np.random.default_rng(0)
    numbers = [np.arange(stored)]
    numbers += [rng.choice(stored + rows // 10, rows, replace=False) for _ in range(repeats)]
    return [_table(rng, keys, revision) for revision, keys in enumerate(numbers)]


def make_changes(first: pa.Table, rows: int, repeats: int) -> Iterator[pa.Table]:
    """Updates of spread keys, and one delete in ten changes."""
    rng = np.random.default_rng(1)
    names = first.column_names
    left = rng.permutation(len(first))
    for number in range(repeats):
        chosen = left[number * rows // 2 : (number + 1) * rows // 2]
        old = first.take(chosen)
        is_deleted = np.arange(len(chosen)) % 10 == 0
        types = pa.array(np.where(is_deleted, "delete", "update_preimage").astype(object))
        new = _table(rng, chosen[~is_deleted], 1).select(names)
        images = pa.array(["update_postimage"] * len(new))
        parts = [
            old.append_column("_change_type", types),
            new.append_column("_change_type", images),
        ]
        yield pa.concat_tables(parts).combine_chunks()


def _table(rng: np.random.Generator, keys: np.ndarray, revision: int) -> pa.Table:
    return pa.table(
        {
            "k": keys,
            "name": pa.array(keys).cast(pa.string()),
            "v": rng.random(len(keys)),
            "revision": np.full(len(keys), revision, np.int32),
        }
    )


def measure(pair: Pair) -> tuple[float, float]:
    """Rows per CPU second of the sink, and by hand: the medians of all micro-batches, in turns."""
    rates: tuple[list[float], list[float]] = ([], [])
    for number, table in enumerate(pair.batches):
        both = [(0, pair.sink), (1, pair.by_hand)]
        for which, write in both if number % 2 else reversed(both):
            before = read_cpu()
            write(table, number)
            time.sleep(_SETTLE)
            rates[which].append(len(table) / (read_cpu() - before))
    return statistics.median(rates[0]), statistics.median(rates[1])


def read_cpu() -> float:
    """CPU seconds of this process, and of the servers and JVMs that it started."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + read_started()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="*", default=[], help=", ".join(SYSTEMS))
    parser.add_argument("--rows", type=int, default=100_000, help="rows per micro-batch")
    parser.add_argument("--repeats", type=int, default=9, help="micro-batches")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, micro-batches of {options.rows} rows")
    print(
        "| system | task | sink, rows per CPU s | by hand | sink ÷ by hand |\n|---|---|---:|---:|---:|"
    )
    for name in options.systems or SYSTEMS:
        with tempfile.TemporaryDirectory() as folder:
            for pair in SYSTEMS[name](options.rows, options.repeats, Path(folder)):
                ours, theirs = measure(pair)
                print(
                    f"| {name} | {pair.task} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |"
                )


if __name__ == "__main__":
    main()
