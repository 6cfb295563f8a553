"""A thousand micro-batches to every sink: memory, open files, connections and ledgers do not grow.

The rows are changes of keys that come and go: each key lives for twenty micro-batches.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from streamops import sinks
from streamops.sinks.sink import Sink
from streamops.spark.identity import Identity

deltalake = pytest.importorskip("deltalake")
sa = pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.soak

BATCHES, KEYS, LIFE = 1_000, 50, 20
MEASURED_EVERY = 25
MAINTAINED_EVERY = 100
MEMORY = 32 << 20
"""How much larger the process may be in the last quarter than in the second, in bytes."""


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
    maintain : callable
        What its documentation asks for from time to time.
    keeps_changes : bool
        Whether the target has all changes, and not the rows that they amount to.
    """

    sink: Sink
    count_rows: Callable[[], int]
    ledger_bytes: Callable[[], int]
    connections: Callable[[], int] = lambda: 0
    maintain: Callable[[], object] = lambda: None
    keeps_changes: bool = False


def make_parquet(folder: Path) -> Soaked:
    manifests = folder / "archive" / "_manifests"
    return Soaked(
        sinks.parquet(str(folder / "archive")),
        lambda: sinks.read_parquet(str(folder / "archive")).count_rows(),
        lambda: max(manifests.iterdir()).stat().st_size,
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

    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    return Soaked(
        sinks.postgres(url, "soaked", key="k"),
        lambda: query("SELECT count(*) FROM soaked"),
        lambda: query(
            "SELECT sum(pg_column_size(l.*)) FROM streamops_ledger l WHERE sink = 'soaked'"
        ),
        lambda: query(others),
        lambda: query("SELECT 1"),
    )


MAKERS = {"parquet": make_parquet, "delta": make_delta, "sqlalchemy": make_sqlalchemy}
SINKS = [*MAKERS, pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=SINKS)
def soaked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Soaked]:
    name = request.param
    made = (
        MAKERS[name](tmp_path)
        if name in MAKERS
        else make_postgres(request.getfixturevalue("postgres"))
    )
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


def test_a_thousand_micro_batches(
    soaked: Soaked, record_property: Callable[[str, object], None]
) -> None:
    delivered = 0
    figures: list[dict[str, int]] = []
    for batch in range(BATCHES):
        rows = changes(batch)
        delivered += len(rows)
        soaked.sink._deliver_rows(rows, batch, Identity("query", "run"))
        if batch % MAINTAINED_EVERY == 0:
            soaked.maintain()
        if batch % MEASURED_EVERY == 0:
            figures.append(
                {
                    "memory": memory(),
                    "files": len(os.listdir("/proc/self/fd")),
                    "threads": threading.active_count(),
                    "connections": soaked.connections(),
                    "ledger": soaked.ledger_bytes(),
                }
            )
    entry = soaked.sink.read_ledger()
    assert entry is not None
    assert entry.batch == BATCHES - 1
    assert soaked.count_rows() == (delivered if soaked.keeps_changes else LIFE * KEYS)
    quarter = len(figures) // 4
    second, last = (
        {name: max(row[name] for row in part) for name in figures[0]}
        for part in (figures[quarter : 2 * quarter], figures[3 * quarter :])
    )
    record_property("soak", {name: [second[name], last[name]] for name in second})
    assert last.pop("memory") <= second.pop("memory") + MEMORY
    # The numbers of micro-batches grow by a digit.
    assert last.pop("ledger") <= second.pop("ledger") + 4
    assert all(last[name] <= second[name] for name in last), (second, last)
    assert last["connections"] <= 1


def memory() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
