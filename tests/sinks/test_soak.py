"""A thousand micro-batches to every sink: memory, open files, connections and ledgers do not grow.

`make test` delivers fifty. The rows are changes of keys that come and go: each key lives for twenty micro-batches.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from streamops import sinks
from streamops.sinks.sink import Sink
from streamops.spark.identity import Identity
from tests.kafka.broker import Broker
from tests.kills.processes import wait_until
from tests.resources import Resources

deltalake = pytest.importorskip("deltalake")
sa = pytest.importorskip("sqlalchemy")

KEYS, LIFE = 50, 20
SHORT, LONG = 50, 1_000
MAINTAINED_EVERY = 100


@dataclass(frozen=True)
class Soaked:
    """A sink, and what is to be measured of its target.

    Parameters
    ----------
    sink : Sink
    count_rows : callable
        The rows of the target.
    ledger_bytes : callable
        The size of the ledger of the sink.
    connections : callable
        Connections to the server.
    most_connections : int
        How many there may be.
    maintain : callable
        What its documentation asks for from time to time.
    keeps_changes : bool
        Whether the target has all changes, and not the rows that they amount to.
    """

    sink: Sink
    count_rows: Callable[[], int]
    ledger_bytes: Callable[[], int]
    connections: Callable[[], int] = lambda: 0
    most_connections: int = 0
    maintain: Callable[[], object] = lambda: None
    keeps_changes: bool = False


def make_parquet(folder: Path) -> Soaked:
    manifests = folder / "archive" / "_manifests"
    return Soaked(
        sinks.parquet(str(folder / "archive")),
        lambda: sinks.read_parquet(str(folder / "archive")).count_rows(),
        # One of 16 also lists the files of others.
        lambda: statistics.median_low(name.stat().st_size for name in manifests.iterdir()),
        keeps_changes=True,
    )


def make_delta(folder: Path) -> Soaked:
    path = str(folder / "table")

    def maintain() -> None:
        deltalake.DeltaTable(path).optimize.compact()
        deltalake.DeltaTable(path).vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False
        )

    def ledger_bytes() -> int:
        last = max((folder / "table" / "_delta_log").glob("*.json"))
        return sum(len(line) for line in last.read_text().splitlines() if '"txn"' in line)

    count = lambda: deltalake.DeltaTable(path).count()  # noqa: E731
    return Soaked(sinks.delta(path, key="k"), count, ledger_bytes, maintain=maintain)


def make_sqlalchemy(folder: Path) -> Soaked:
    url = f"sqlite:///{folder}/database"

    def query(statement: str) -> int:
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            found: int = connection.execute(sa.text(statement)).scalar_one()
        engine.dispose()
        return found

    return Soaked(
        sinks.sqlalchemy(url, "t", key="k"),
        lambda: query("SELECT count(*) FROM t"),
        lambda: query("SELECT count(*) FROM streamops_entries"),
    )


def make_postgres(where: str) -> Soaked:
    url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"

    def query(statement: str) -> int:
        with psycopg.connect(url) as connection:
            found: Any = connection.execute(statement.encode()).fetchone()
        return int(found[0])

    # Earlier tests on this server may have left sessions of their own.
    named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'soaked'"
    return Soaked(
        sinks.postgres(f"{url}&application_name=soaked", "soaked", key="k"),
        lambda: query("SELECT count(*) FROM soaked"),
        lambda: query(
            "SELECT sum(pg_column_size(l.*)) FROM streamops_ledger l WHERE sink = 'soaked'"
        ),
        lambda: query(named),
        most_connections=1,
    )


def make_kafka(broker: Broker) -> Soaked:
    from tests.sinks.test_kafka import ArrowSink

    topic = broker.create_topic(partitions=2)
    ledger = f"ledger-of-{topic}"
    sink = sinks.kafka(topic, servers=broker.bootstrap, key="k", ledger=ledger)

    def count_rows() -> int:
        latest = {record.key(): record.value() for record in broker.read(topic)}
        return sum(value is not None for value in latest.values())

    def ledger_bytes() -> int:
        return len(broker.read(ledger)[-1].value())

    def connections() -> set[str]:
        """Addresses of this machine that are connected to the broker."""
        lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        found = [line.split()[1:4] for line in lines]
        return {a for a, b, state in found if b.endswith(f":{broker.port:04X}") and state == "01"}

    others = connections()

    made = ArrowSink(**{f.name: getattr(sink, f.name) for f in fields(sink)})
    # A producer connects to the bootstrap address, to the broker, and to the coordinator.
    return Soaked(
        made, count_rows, ledger_bytes, lambda: len(connections() - others), most_connections=3
    )


MAKERS: dict[str, Callable[[Any], Soaked]] = {
    "parquet": make_parquet,
    "delta": make_delta,
    "sqlalchemy": make_sqlalchemy,
    "postgres": make_postgres,
    "kafka": make_kafka,
}
SERVERS = ("postgres", "kafka")


def cases() -> Iterator[Any]:
    """Each sink for a short time, and for a long one."""
    for name in MAKERS:
        needs = [getattr(pytest.mark, name)] if name in SERVERS else []
        yield pytest.param(name, SHORT, marks=[*needs, pytest.mark.thorough])
        yield pytest.param(name, LONG, marks=[*needs, pytest.mark.soak])


@pytest.fixture
def soaked(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[Soaked]:
    made = MAKERS[name](request.getfixturevalue(name) if name in SERVERS else tmp_path)
    yield made
    made.sink.session.close()


def changes(batch: int) -> pa.Table:
    """New keys, updates of all that live, and deletes of those whose life is over."""
    steps: list[tuple[int, str, int]] = []
    for born in range(max(0, batch - LIFE), batch + 1):
        age = batch - born
        if age == 0:
            steps.append((born, "insert", 0))
        elif age == LIFE:
            steps.append((born, "delete", age - 1))
        else:
            steps += [(born, "update_preimage", age - 1), (born, "update_postimage", age)]
    born, types, revisions = (np.repeat(column, KEYS) for column in zip(*steps, strict=True))
    keys = born.astype(np.int64) * KEYS + np.tile(np.arange(KEYS), len(steps))
    return pa.table(
        {
            "k": keys,
            "v": keys * 31 + revisions.astype(np.int64),
            "revision": revisions.astype(np.int32),
            "_change_type": types.astype(str),
        }
    )


@pytest.mark.parametrize(("name", "batches"), list(cases()))
def test_many_micro_batches_of_keys_that_come_and_go(
    soaked: Soaked, batches: int, record_property: Callable[[str, object], None]
) -> None:
    delivered, resources = 0, Resources()
    for batch in range(batches):
        rows = changes(batch)
        delivered += len(rows)
        soaked.sink._deliver_rows(rows, batch, Identity("query", "run"))
        if batch % MAINTAINED_EVERY == 0:
            soaked.maintain()
        if batch % (25 if batches == LONG else 5) == 0:
            resources.measure(
                threads=threading.active_count(),
                connections=soaked.connections(),
                ledger=soaked.ledger_bytes(),
            )
    entry = soaked.sink.read_ledger()
    assert entry is not None
    assert entry.batch == batches - 1
    assert soaked.count_rows() == (delivered if soaked.keeps_changes else LIFE * KEYS)
    second, last = resources.quarters()
    record_property("soak", {figure: [second[figure], last[figure]] for figure in second})
    # The numbers of micro-batches and of manifests grow by a digit.
    assert last["ledger"] <= second["ledger"] + 8
    # The server ends a session some time after its client has left.
    assert wait_until(lambda: soaked.connections() <= soaked.most_connections, patience=60)
    resources.check(except_for=["ledger", "connections"])
