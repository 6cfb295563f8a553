"""Random histories of changes, delivered to an index, a cache, a mirror and two warehouses whose servers are killed.

    python -m tests.sinks.converge --histories 10000

A history inserts, updates, deletes and inserts again the rows of some keys. Many histories at once are one change
stream, of which each micro-batch goes to all systems. The mirror (MariaDB) and the warehouses (Delta and Iceberg) get it in its
order, some micro-batches again, by the same run or by another; so does a query that fails. The index (OpenSearch) and the
cache (Redis) get its rows in pieces and in any order, some again, and some of the histories before. Meanwhile the servers
are killed, and started again. In the end all must have the rows of the database.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity
from tests.servers import mariadb, opensearch, redis
from tests.sinks import planned
from tests.sinks.planned import Change

AT_ONCE, MICRO_BATCHES = 250, 5
INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"
_DEAD, _PATIENCE = 0.2, 120  # seconds
Row = tuple[Change, str]


@dataclass
class Servers:
    """The servers of the systems."""

    index: opensearch.Server
    cache: redis.Server
    mirror: mariadb.Server


@contextmanager
def serving() -> Iterator[Servers]:
    """Start the servers, yield them, and stop them."""
    programs = opensearch.program(), redis.program(), mariadb.program()
    if None in programs:
        raise SystemExit("run scripts/get-opensearch, scripts/get-redis and scripts/get-mariadb")
    with ExitStack() as stack:
        modules: Any = (opensearch, redis, mariadb)
        yield Servers(
            *(
                stack.enter_context(module.running(program))
                for module, program in zip(modules, programs, strict=True)
            )
        )


def make_history(rng: random.Random, name: str) -> list[list[Row]]:
    """Changes of some keys, each of one or two rows of a change stream."""
    latest: dict[str, Change] = {}
    rows: list[list[Row]] = []
    for _ in range(rng.randint(1, 12)):
        key = f"{name}-{rng.randrange(3)}"
        old = latest.get(key)
        if old is None or old.deletes:
            new = Change(key, 0 if old is None else old.revision + 1)
            rows.append([(new, INSERT)])
        elif rng.random() < 0.3:
            new = Change(key, old.revision, deletes=True)
            rows.append([(new, DELETE)])
        else:
            new = Change(key, old.revision + 1)
            rows.append([(old, PREIMAGE), (new, POSTIMAGE)])
        latest[key] = new
    return rows


def interleave(rng: random.Random, histories: list[list[list[Row]]]) -> list[list[Row]]:
    """The changes of all histories, with each history in its order."""
    turns = [number for number, rows in enumerate(histories) for _ in rows]
    rng.shuffle(turns)
    iterators = list(map(iter, histories))
    return [next(iterators[turn]) for turn in turns]


def to_table(rows: list[Row]) -> pa.Table:
    """The rows as a micro-batch."""
    columns = {
        name: [change.row[name] for change, _ in rows] for name in ("id", "revision", "text")
    }
    types = {"id": pa.string(), "revision": pa.int32(), "text": pa.string()}
    arrays = {name: pa.array(columns[name], dtype) for name, dtype in types.items()}
    return pa.table(
        arrays | {"_change_type": pa.array([change_type for _, change_type in rows], pa.string())}
    )


@dataclass
class Campaign:
    """All histories, and what happened to them.

    Parameters
    ----------
    servers : Servers
        The servers.
    folder : Path
        The warehouses.
    rng : Random
        Decides what happens.
    killer : ThreadPoolExecutor
        A thread, which lives as long as the servers: they end with the thread that starts them.
    """

    servers: Servers
    folder: Path
    rng: random.Random
    killer: ThreadPoolExecutor
    counts: Counter[str] = field(default_factory=Counter)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    past: list[Change] = field(default_factory=list)
    batch: int = 0
    run: int = 0

    def __post_init__(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self.mirror = sinks.sqlalchemy(self.servers.mirror.url(), "mirror", key="id")
        delta = sinks.delta(str(self.folder / "delta"), key="id")
        iceberg = sinks.iceberg(self._catalog, "shop.rows", key="id")
        self.in_order = self.mirror, delta, iceberg

    @property
    def _catalog(self) -> dict[str, str]:
        where = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}"}
        return {"name": "shop", "type": "sql", **where}

    def pass_round(self, number: int, histories: int, kills: set[str]) -> None:
        """Deliver so many histories at once."""
        made = [make_history(self.rng, f"{number}-{n}") for n in range(histories)]
        stream = interleave(self.rng, made)
        changes = [rows[-1][0] for rows in stream]
        self.counts.update(histories=histories, changes=len(changes))
        self.rows |= planned.expected(changes)
        size = max(1, -(-len(stream) // MICRO_BATCHES))
        for start in range(0, len(stream), size):
            rows = to_table(list(chain.from_iterable(stream[start : start + size])))
            self.deliver_in_order(rows, is_killed="mirror" in kills and start == size)
        index = sinks.opensearch(
            self.servers.index.url, f"round-{number}", key="id", patience="2 minutes"
        )
        cache = sinks.redis(
            self.servers.cache.url, f"round-{number}", key="id", patience="2 minutes"
        )
        for sink in (index, cache):
            with sink._client() as client:
                sink._look(client, create=True, patience=sink.patience)
        for sink, name in ((index, "index"), (cache, "cache")):
            server = getattr(self.servers, name)
            with self.killing(name, server) if name in kills else ExitStack():
                self.deliver_in_disorder(sink, changes)
        mine = {key: row for key, row in self.rows.items() if key.startswith(f"{number}-")}
        self.compare("index", mine, self.read_index(f"round-{number}"))
        self.compare("cache", mine, self.read_cache(f"round-{number}"))

    def deliver_in_order(self, rows: pa.Table, *, is_killed: bool) -> None:
        """Deliver a micro-batch to the mirror and the warehouses until all have it."""
        with self.killing("mirror", self.servers.mirror) if is_killed else ExitStack():
            for _ in range(1 + (self.rng.random() < 0.3)):
                self._restart_sometimes()
                end = time.monotonic() + _PATIENCE
                while True:
                    try:
                        for sink in self.in_order:
                            sink._deliver_rows(rows, self.batch, self._identity)
                        break
                    except SinkError as error:
                        if error.code != "TARGET_UNAVAILABLE" or time.monotonic() > end:
                            raise
                        time.sleep(_DEAD)
                        self._restart()
                self.counts["repeats"] += 1
        self.counts["repeats"] -= 1
        self.batch += 1

    @property
    def _identity(self) -> Identity:
        return Identity("query", f"run {self.run}")

    def _restart_sometimes(self) -> None:
        if self.rng.random() < 0.3:
            self._restart()

    def _restart(self) -> None:
        self.mirror.session.close()
        self.run += 1
        self.counts["restarts"] += 1
        self._connect()

    def deliver_in_disorder(self, sink: Any, changes: list[Change]) -> None:
        """Deliver changes in any order, some of them again."""
        again = self.rng.sample(changes, len(changes) // 3)
        shuffled = changes + again
        self.rng.shuffle(shuffled)
        newest: dict[str, tuple[int, bool]] = {}
        for change in shuffled:
            version = change.revision, change.deletes
            self.counts["out of order"] += version < newest.get(change.key, version)
            newest[change.key] = max(version, newest.get(change.key, version))
        self.counts["repeats"] += len(again)
        for rows in planned.batches(shuffled, max(1, len(shuffled) // 8)):
            planned.deliver(sink, rows)

    @contextmanager
    def killing(self, name: str, server: Any) -> Iterator[None]:
        """Kill a server in the meantime, and start it again."""
        delay, is_dead = self.rng.uniform(0, 0.1), threading.Event()

        def kill() -> None:
            time.sleep(delay)
            server.kill()
            is_dead.set()
            time.sleep(_DEAD)
            server.start()

        killing = self.killer.submit(kill)
        try:
            yield
        finally:
            is_interrupted = is_dead.is_set()
            killing.result()
        self.counts[f"kills of the {name}"] += 1
        self.counts[f"kills of the {name} during a delivery"] += is_interrupted

    def read_index(self, name: str) -> dict[str, Any]:
        """The documents."""
        return {key: hit["_source"] for key, hit in self.servers.index.documents(name).items()}

    def read_cache(self, prefix: str) -> dict[str, Any]:
        """The values."""
        with self.servers.cache.connect() as client:
            keys = [key for key in client.scan_iter(f"{prefix}:*", count=10_000)]
            values = client.mget(keys) if keys else []
        rows = {}
        for key, value in zip(keys, values, strict=True):
            row = json.loads(value)
            row.pop("_version", None)
            if row:
                rows[key.removeprefix(f"{prefix}:")] = row
        return rows

    def read_mirror(self) -> dict[str, Any]:
        """The rows of the table."""
        with self.servers.mirror.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id, revision, text FROM mirror")
            names = ("id", "revision", "text")
            return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}

    def read_delta(self) -> dict[str, Any]:
        """The rows of the table."""
        table = pa.table(deltalake.DeltaTable(str(self.folder / "delta")).scan().read_all())
        return {row["id"]: row for row in table.to_pylist()}

    def read_iceberg(self) -> dict[str, Any]:
        """The rows of the table."""
        table = load_catalog(**self._catalog).load_table("shop.rows").scan().to_arrow()
        return {row["id"]: row for row in table.to_pylist()}

    def compare(self, name: str, expected: dict[str, Any], found: dict[str, Any]) -> None:
        """Count the keys with other rows than those of the database."""
        keys = expected.keys() | found.keys()
        differs = sum(expected.get(key) != found.get(key) for key in keys)
        self.counts[f"rows compared in the {name}"] += len(expected)
        self.counts["differences"] += differs
        if differs:
            key = min(key for key in keys if expected.get(key) != found.get(key))
            print(f"{name}, {key}: {expected.get(key)} expected, {found.get(key)} found")


def converge(
    histories: int,
    seed: int,
    *,
    at_once: int = AT_ONCE,
    report: Callable[[str], object] = lambda text: None,
) -> Counter[str]:
    """Deliver random histories, compare all systems with the database, and count what happened."""
    rng = random.Random(seed)
    with (
        ThreadPoolExecutor(1) as killer,
        serving() as servers,
        tempfile.TemporaryDirectory() as folder,
    ):
        campaign = Campaign(servers, Path(folder), rng, killer)
        rounds = -(-histories // at_once)
        for number in range(rounds):
            # OpenSearch takes ten seconds to start.
            kills = {"cache", "mirror", *(["index"] if number % 2 == 0 else [])}
            count = min(at_once, histories - number * at_once)
            campaign.pass_round(number, count, kills)
            report(f"{min((number + 1) * at_once, histories)} of {histories} histories")
        for name in ("mirror", "delta", "iceberg"):
            read = getattr(campaign, f"read_{name}")
            campaign.compare(name, campaign.rows, read())
        campaign.mirror.session.close()
    return campaign.counts


def main() -> None:
    """Print what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.sinks.converge")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    counts = converge(options.histories, options.seed, report=lambda text: print(text, flush=True))
    print("| | |\n|---|---:|")
    for name, count in [*counts.items(), ("seconds", round(time.monotonic() - start))]:
        print(f"| {name} | {count:,} |")
    raise SystemExit(counts["differences"] > 0)


if __name__ == "__main__":
    main()
