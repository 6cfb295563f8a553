"""Rows per CPU second of the sinks, and of code that writes the same rows without a ledger.

    make bench-sinks                                    all systems
    python -m benchmarks.sinks delta --rows 100000

A function per system yields what to compare: the sink, and ways to write by hand with the same package. All
write the same micro-batches to equal targets, in turns. Micro-batches are Arrow tables: Spark is not part of the
measurement, except for Kafka, OpenSearch and Redis, to which tasks write. CPU seconds are those of this process
and of the processes that it started, servers and JVMs: other programs do not count, but they share its caches,
so the load is printed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
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

Write = Callable[[pa.Table, int], object]
FromSpark = Callable[[Any, int], object]
"""Writes a frame, which is a micro-batch."""


@dataclass(frozen=True)
class Compared:
    """Ways to write the same micro-batches, each to a target of its own."""

    task: str
    sink: Write
    by_hand: dict[str, Write]
    batches: list[pa.Table]


def delta(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The Delta sink, and ``deltalake`` called directly."""
    deltalake = importlib.import_module("deltalake")
    paths = [str(folder / name) for name in ("append sink", "append by hand")]

    def append(table: pa.Table, _: int) -> None:
        deltalake.write_deltalake(paths[1], table, mode="append")

    first, *batches = make_upserts(rows, repeats)
    yield Compared("append", writer(sinks.delta(paths[0])), {"write_deltalake": append}, batches)

    upserts = [str(folder / name) for name in ("upsert sink", "upsert by hand")]

    def merge(table: pa.Table, _: int) -> None:
        values = {name: f"s.{name}" for name in table.column_names}
        target = deltalake.DeltaTable(upserts[1])
        merging = target.merge(table, "t.k = s.k", source_alias="s", target_alias="t")
        merging = merging.when_matched_update(values, predicate="t.revision < s.revision")
        merging.when_not_matched_insert(values).execute()

    for path in upserts:
        deltalake.write_deltalake(path, first)
    yield Compared("upsert", writer(sinks.delta(upserts[0], key="k")), {"merge": merge}, batches)

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
    sink = writer(sinks.delta(changes[0], key="k"))
    yield Compared("changes", sink, {"merge": merge_changes}, steps)


def iceberg(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The Iceberg sink, and ``pyiceberg`` called directly."""
    local = {
        "name": "local",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}",
    }
    catalog = importlib.import_module("pyiceberg.catalog").load_catalog(**local)
    catalog.create_namespace("t")
    first, *batches = make_upserts(rows, repeats)
    by_hand = catalog.create_table("t.appended", first.schema)
    sink = writer(sinks.iceberg(local, "t.append"))
    yield Compared("append", sink, {"append": lambda table, _: by_hand.append(table)}, batches)

    # An upsert of pyiceberg is quadratic: fewer rows.
    first, *batches = make_upserts(rows // 10, repeats, stored=STORED // 10)
    upserted = catalog.create_table("t.upserted", first.schema)
    for table in (upserted, catalog.create_table("t.upsert", first.schema)):
        table.append(first)

    def upsert(table: pa.Table, _: int) -> None:
        upserted.upsert(table, ["k"])

    sink = writer(sinks.iceberg(local, "t.upsert", key="k"))
    yield Compared("upsert", sink, {"upsert": upsert}, batches)


def parquet(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The Parquet sink, and a file per micro-batch."""
    pq = importlib.import_module("pyarrow.parquet")

    def write(table: pa.Table, number: int) -> None:
        pq.write_table(table, folder / f"{number}.parquet")

    sink = writer(sinks.parquet(str(folder / "sink")))
    yield Compared("append", sink, {"write_table": write}, make_upserts(rows, repeats)[1:])


def sqlalchemy(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The SQLAlchemy sink on SQLite, and the same upsert in the dialect of SQLite."""
    insert = importlib.import_module("sqlalchemy.dialects.sqlite").insert

    def upsert(table: Any) -> Any:
        statement = insert(table)
        newer = table.c.revision < statement.excluded.revision
        new = {name: statement.excluded[name] for name in ("name", "v", "revision")}
        return statement.on_conflict_do_update(index_elements=["k"], set_=new, where=newer)

    yield from _compare_sql(f"sqlite:///{folder}/db", upsert, rows, repeats)


def mariadb(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The SQLAlchemy sink on MariaDB, and the same upsert in the dialect of MySQL."""
    sa = importlib.import_module("sqlalchemy")
    insert = importlib.import_module("sqlalchemy.dialects.mysql").insert
    server = importlib.import_module("tests.servers.mariadb")

    def upsert(table: Any) -> Any:
        statement = insert(table)
        newer = table.c.revision < statement.inserted.revision
        # In this order: the revision is compared before it changes.
        new = [
            (name, sa.func.if_(newer, statement.inserted[name], table.c[name]))
            for name in ("name", "v", "revision")
        ]
        return statement.on_duplicate_key_update(new)

    with server.running(server.program()) as running:
        url = running.url()
        yield from _compare_sql(url, upsert, rows, repeats)

        sink, (_, other) = _sql_sink_and_tables(url, "staged", "executed")

        def send(given: Iterator[Any]) -> None:
            engine = sa.create_engine(url)
            with engine.begin() as connection:
                connection.execute(upsert(other), [row.asDict() for row in given])
            engine.dispose()

        def write_by_tasks(frame: Any, number: int) -> None:
            sink.session.is_small = False
            sink.write(frame, query="query", batch_id=number)

        with _from_spark(folder) as compare:
            ways: dict[str, FromSpark] = {
                "executemany in tasks": lambda frame, _: frame.foreachPartition(send)
            }
            yield compare(
                "upsert, by tasks", write_by_tasks, ways, make_upserts(rows, repeats + 2)[1:]
            )


def _compare_sql(
    url: str, upsert: Callable[[Any], Any], rows: int, repeats: int
) -> Iterator[Compared]:
    """The SQLAlchemy sink, and a statement that is executed for many rows."""
    sa = importlib.import_module("sqlalchemy")
    engine = sa.create_engine(url)
    first, *batches = make_upserts(rows // 10, repeats, stored=STORED // 10)
    sink, tables = _sql_sink_and_tables(url, "sink", "by_hand")

    def execute(table: Any, batch: pa.Table) -> None:
        with engine.begin() as connection:
            connection.execute(upsert(table), batch.to_pylist())

    for table in tables:
        execute(table, first)
    by_hand: dict[str, Write] = {"executemany": lambda batch, _: execute(tables[1], batch)}
    yield Compared("upsert", writer(sink), by_hand, batches)
    sink.session.close()
    engine.dispose()


def _sql_sink_and_tables(url: str, *names: str) -> tuple[Any, list[Any]]:
    """New tables with a unique key, and the sink of the first one."""
    sa = importlib.import_module("sqlalchemy")
    types = {"name": sa.Text, "v": sa.Double, "revision": sa.Integer}
    engine, tables = sa.create_engine(url), []
    for name in names:
        columns = [sa.Column("k", sa.BigInteger, primary_key=True, autoincrement=False)]
        columns += [sa.Column(*column) for column in types.items()]
        tables.append(sa.Table(name, sa.MetaData(), *columns))
        tables[-1].create(engine)
    engine.dispose()
    return sinks.sqlalchemy(url, names[0], key="k"), tables


def postgres(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The PostgreSQL sink, and psycopg's row-wise COPY with the same upsert."""
    psycopg = importlib.import_module("psycopg")
    server = importlib.import_module("tests.servers.postgres")
    with server.running(server.programs()) as where, psycopg.connect(where) as connection:
        url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"
        columns = "k bigint PRIMARY KEY, name text, v double precision, revision integer"
        first, *batches = make_upserts(rows, repeats)
        for name in ("sink", "copied", "executed"):
            connection.execute(f"CREATE TABLE {name} ({columns})".encode())
        connection.execute("CREATE TEMP TABLE staged (LIKE copied)")
        for name in ("appended_copied", "appended_executed"):
            connection.execute(f"CREATE TABLE {name} (LIKE copied)".encode())
        connection.commit()
        update = (
            "ON CONFLICT (k) DO UPDATE SET name = excluded.name, v = excluded.v, "
            "revision = excluded.revision WHERE t.revision < excluded.revision"
        )

        def copy_rows(cursor: Any, table: pa.Table, name: str) -> None:
            with cursor.copy(f"COPY {name} FROM STDIN") as copy:
                for row in zip(*(c.to_pylist() for c in table.columns), strict=True):
                    copy.write_row(row)

        def append(table: pa.Table, _: int) -> None:
            with connection.cursor() as cursor:
                copy_rows(cursor, table, "appended_copied")
            connection.commit()

        def execute(table: pa.Table, name: str, after: str = "") -> None:
            with connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO {name} AS t VALUES (%s, %s, %s, %s) {after}".encode(),
                    list(zip(*(c.to_pylist() for c in table.columns), strict=True)),
                )
            connection.commit()

        def upsert(table: pa.Table, _: int) -> None:
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE staged")
                copy_rows(cursor, table, "staged")
                cursor.execute(f"INSERT INTO copied AS t SELECT * FROM staged {update}".encode())
            connection.commit()

        appended = sinks.postgres(url, "appended")
        by_hand: dict[str, Write] = {
            "COPY by row": append,
            "executemany": lambda table, _: execute(table, "appended_executed"),
        }
        yield Compared("append", writer(appended), by_hand, batches)
        appended.session.close()
        sink = sinks.postgres(url, "sink", key="k")
        upsert(first, 0)
        for name in ("sink", "executed"):
            connection.execute(f"INSERT INTO {name} SELECT * FROM copied".encode())
        connection.commit()
        connection.execute("ANALYZE")
        connection.commit()
        by_hand = {
            "COPY by row, ON CONFLICT": upsert,
            "executemany, ON CONFLICT": lambda table, _: execute(table, "executed", update),
        }
        yield Compared("upsert", writer(sink), by_hand, batches)
        sink.session.close()


def kafka(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The Kafka sink, Spark's own, and a loop in tasks over rows, with the same JSON."""
    broker = importlib.import_module("tests.kafka.broker")
    functions = importlib.import_module("pyspark.sql.functions")
    connector = ",".join(map(str, broker.jars("connector")))
    with broker.running() as server, _from_spark(folder, connector) as compare:

        def to_json(frame: Any) -> Any:
            columns = (("key", ["k"]), ("value", frame.columns))
            return frame.select(
                *(
                    functions.to_json(functions.struct(*names)).alias(alias)
                    for alias, names in columns
                )
            )

        def save(topic: str) -> FromSpark:
            options = {
                "kafka.bootstrap.servers": server.bootstrap,
                "kafka.compression.type": "lz4",
                "topic": topic,
            }
            return lambda frame, _: to_json(frame).write.format("kafka").options(**options).save()

        def produce(topic: str) -> FromSpark:
            settings = {
                "bootstrap.servers": server.bootstrap,
                "compression.type": "lz4",
                "enable.idempotence": True,
                "linger.ms": 100,
            }

            def send(rows: Iterator[Any]) -> None:
                from confluent_kafka import Producer

                producer = Producer(settings)
                for row in rows:
                    while True:
                        try:
                            producer.produce(topic, row.value, row.key)
                            break
                        except BufferError:
                            producer.poll(0.1)
                producer.flush()

            return lambda frame, _: to_json(frame).foreachPartition(send)

        for task, atomic in (("upsert", "batch"), ("upsert, by partition", "partition")):
            topic, *others = [server.create_topic(partitions=4) for _ in range(3)]
            sink = sinks.kafka(topic, servers=server.bootstrap, key="k", atomic=atomic)
            ways = {"Spark's Kafka sink": save(others[0]), "confluent-kafka": produce(others[1])}
            yield compare(task, frame_writer(sink), ways, make_upserts(rows, repeats + 2)[1:])


def opensearch(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The OpenSearch sink, and ``helpers.bulk`` in tasks, with the same versions."""
    server = importlib.import_module("tests.servers.opensearch")
    with server.running(server.program()) as running, _from_spark(folder) as compare:
        url = running.url

        def send(rows: Iterator[Any]) -> None:
            from opensearchpy import OpenSearch, helpers

            with OpenSearch(url) as client:
                actions = (
                    {
                        "_index": "by_hand",
                        "_id": row.k,
                        "_source": row.asDict(),
                        "version": 2 * row.revision,
                        "version_type": "external_gte",
                    }
                    for row in rows
                )
                helpers.bulk(client, actions)

        running.request("PUT", "/by_hand")
        sink = sinks.opensearch(url, "sink", key="k")
        ways: dict[str, FromSpark] = {"helpers.bulk": lambda frame, _: frame.foreachPartition(send)}
        batches = make_upserts(rows // 10, repeats + 2, stored=STORED // 10)[1:]
        yield compare("upsert", frame_writer(sink), ways, batches)


def redis(rows: int, repeats: int, folder: Path) -> Iterator[Compared]:
    """The Redis sink, and a pipeline of ``SET`` in tasks, which does not compare versions."""
    server = importlib.import_module("tests.servers.redis")
    with server.running(server.program()) as running, _from_spark(folder) as compare:
        url = running.url

        def send(rows: Iterator[Any]) -> None:
            from redis import Redis

            with Redis.from_url(url) as client, client.pipeline(transaction=False) as pipeline:
                for row in rows:
                    pipeline.set(f"by_hand:{row.k}", json.dumps(row.asDict()))
                    if len(pipeline) == 1_000:
                        pipeline.execute()
                pipeline.execute()

        sink = sinks.redis(url, "sink", key="k")
        ways: dict[str, FromSpark] = {"pipeline": lambda frame, _: frame.foreachPartition(send)}
        yield compare("upsert", frame_writer(sink), ways, make_upserts(rows, repeats + 2)[1:])


@contextmanager
def _from_spark(folder: Path, jars: str = "") -> Iterator[Callable[..., Compared]]:
    """Compare ways to write frames, which all read the micro-batch from a Parquet file."""
    pq = importlib.import_module("pyarrow.parquet")
    spark = local_session(conf={"spark.jars": jars} if jars else {})

    def read(write: FromSpark) -> Write:
        def read_and_write(table: pa.Table, number: int) -> None:
            path = str(folder / "batch.parquet")
            pq.write_table(table, path)
            write(spark.read.parquet(path), number)

        return read_and_write

    def compare(
        task: str, sink: FromSpark, by_hand: dict[str, FromSpark], batches: list[pa.Table]
    ) -> Compared:
        ways = {name: read(write) for name, write in by_hand.items()}
        ours = read(sink)
        # The first micro-batches warm the JVM up.
        for number, table in enumerate(batches[:2]):
            for write in (ours, *ways.values()):
                write(table, number)
        return Compared(task, lambda t, n: ours(t, n + 2), ways, batches[2:])

    try:
        yield compare
    finally:
        spark.stop()


SYSTEMS = {
    "postgres": postgres,
    "delta": delta,
    "iceberg": iceberg,
    "parquet": parquet,
    "sqlalchemy": sqlalchemy,
    "mariadb": mariadb,
    "kafka": kafka,
    "opensearch": opensearch,
    "redis": redis,
}


def writer(sink: Sink) -> Write:
    """Write micro-batches with a sink."""
    return lambda table, number: sink._deliver_rows(table, number, RUN)


def frame_writer(sink: Any) -> FromSpark:
    """Write frames with a sink."""
    return lambda frame, number: sink.write(frame, query="query", batch_id=number)


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


def measure(compared: Compared) -> tuple[float, dict[str, float]]:
    """Rows per CPU second of the sink, and by hand: the medians of all micro-batches, in turns."""
    ways = list({"": compared.sink, **compared.by_hand}.items())
    rates: dict[str, list[float]] = {name: [] for name, _ in ways}
    for number, table in enumerate(compared.batches):
        first = number % len(ways)
        for name, write in (ways[first:] + ways[:first])[:: 1 if number % 2 else -1]:
            before = read_cpu()
            write(table, number)
            time.sleep(_SETTLE)
            rates[name].append(len(table) / (read_cpu() - before))
    medians = {name: statistics.median(of) for name, of in rates.items()}
    return medians.pop(""), medians


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
    print("| system | task | by hand with | sink, rows per CPU s | by hand | sink ÷ by hand |")
    print("|---|---|---|---:|---:|---:|")
    sys.stdout.flush()
    for name in options.systems or SYSTEMS:
        # A JVM has the connectors with which it was started.
        process = get_context("spawn").Process(
            target=show, args=(name, options.rows, options.repeats)
        )
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{name} failed")


def show(name: str, rows: int, repeats: int) -> None:
    """Measure a system, and print its lines."""
    with tempfile.TemporaryDirectory() as folder:
        for compared in SYSTEMS[name](rows, repeats, Path(folder)):
            ours, by_hand = measure(compared)
            for way, theirs in by_hand.items():
                ratio = f"{ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f}"
                print(f"| {name} | {compared.task} | {way} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
