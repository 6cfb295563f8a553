"""The targets of the sinks: how to write to them, and how to read them without the sink."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from streamops import sinks
from streamops.sinks import staging
from streamops.sinks.kafka import KafkaSink
from streamops.sinks.sink import BatchWriter, Sink
from tests.kills.inputs import (
    KEY,
    Expected,
    Form,
    Rows,
    effects,
    last_effects,
    reduce_changes,
    values,
    whole,
)
from tests.kills.unguarded import Unguarded, read_unguarded


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where the targets of a round are.

    Parameters
    ----------
    folder : Path
        Of targets that are files.
    name : str
        Of the round, for servers that serve all rounds.
    postgres, kafka : str, optional
        Address of the PostgreSQL server and of the Kafka broker.
    """

    folder: Path
    name: str
    postgres: str | None = None
    kafka: str | None = None


@dataclass(frozen=True)
class Target:
    """A type of target.

    Parameters
    ----------
    sink : function
        Makes a sink, from the location, a name, and the options `key` and `repeated`.
    rows : function
        Reads all rows, from the location and a name. It does not use the sink.
    stores : "rows", "emitted" or "effects"
        The final rows, all rows as they were emitted, or all net effects of them.
    requires : str
        The package that it needs, or "".
    server : str
        The address of the location that it needs, or "".
    prepare : function, optional
        Creates it, from the location and a name. Others are created by the sink.
    """

    sink: Callable[..., Any]
    rows: Callable[[Location, str], list[dict[str, Any]]]
    stores: Literal["rows", "emitted", "effects"] = "rows"
    requires: str = ""
    server: str = ""
    prepare: Callable[[Location, str], None] | None = None


def _postgres_sink(at: Location, name: str, **options: Any) -> BatchWriter:
    assert at.postgres is not None
    return sinks.postgres(at.postgres, f"{at.name} {name}", **options)


def _postgres_rows(at: Location, name: str) -> list[dict[str, Any]]:
    import psycopg
    from psycopg.rows import dict_row

    assert at.postgres is not None
    with psycopg.connect(at.postgres, row_factory=dict_row) as connection:
        statement = psycopg.sql.SQL("SELECT * FROM {}")
        return connection.execute(
            statement.format(psycopg.sql.Identifier(f"{at.name} {name}"))
        ).fetchall()


def _delta_sink(at: Location, name: str, **options: Any) -> BatchWriter:
    return sinks.delta(str(at.folder / f"delta {name}"), **options)


def _delta_rows(at: Location, name: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    table = DeltaTable(str(at.folder / f"delta {name}"))
    return _listed(pa.table(table.scan().read_all()))


def _parquet_sink(at: Location, name: str, *, key: Any = None) -> BatchWriter:
    return sinks.parquet(str(at.folder / f"parquet {name}"))


def _parquet_rows(at: Location, name: str) -> list[dict[str, Any]]:
    folder = str(at.folder / f"parquet {name}")
    return _listed(sinks.read_parquet(folder, check="content").to_table())


def _sqlite_url(at: Location, name: str) -> str:
    return f"sqlite:///{at.folder}/{name}.sqlite"


def _sqlalchemy_sink(at: Location, name: str, **options: Any) -> BatchWriter:
    # A database per table: SQLite has one writer at a time.
    return sinks.sqlalchemy(_sqlite_url(at, name), name, **options)


def _sqlalchemy_rows(at: Location, name: str) -> list[dict[str, Any]]:
    import sqlalchemy as sa

    engine = sa.create_engine(_sqlite_url(at, name))
    with closing(_Disposed(engine)), engine.connect() as connection:
        table = sa.Table(name, sa.MetaData(), autoload_with=connection)
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


class _Disposed:
    """Closes the connections of an engine."""

    def __init__(self, engine: Any) -> None:
        self.close = engine.dispose


def _catalog(at: Location) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{at.folder}/catalog.sqlite",
        "warehouse": f"file://{at.folder}/warehouse",
    }


def _iceberg_sink(at: Location, name: str, **options: Any) -> BatchWriter:
    return sinks.iceberg(_catalog(at), f"kills.{name}", **options)


def _iceberg_rows(at: Location, name: str) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    return _listed(load_catalog(**_catalog(at)).load_table(f"kills.{name}").scan().to_arrow())


def _create_catalog(at: Location, name: str) -> None:
    from pyiceberg.catalog import load_catalog

    load_catalog(**_catalog(at)).create_namespace_if_not_exists("kills")


def _partitions(at: Location) -> Location:
    """Where the topics are whose partitions are written one by one."""
    return replace(at, name=f"{at.name} partitions")


def _partitions_sink(at: Location, name: str, **options: Any) -> BatchWriter:
    assert at.kafka is not None
    topic = _topic(_partitions(at), name)
    return sinks.kafka(topic, servers=at.kafka, atomic="partition", **options)


def _partitions_rows(at: Location, name: str) -> list[dict[str, Any]]:
    return _kafka_rows(_partitions(at), name)


def _create_partitions(at: Location, name: str) -> None:
    _create_topic(_partitions(at), name)


def _topic(at: Location, name: str) -> str:
    return f"{at.name}-{name}".replace(" ", "-")


def _kafka_sink(at: Location, name: str, **options: Any) -> BatchWriter:
    assert at.kafka is not None
    return sinks.kafka(_topic(at, name), servers=at.kafka, **options)


def _create_topic(at: Location, name: str) -> None:
    _broker(at).create_topic(_topic(at, name), partitions=2)


def _kafka_rows(at: Location, name: str) -> list[dict[str, Any]]:
    """The values of all committed records, in the order of their offsets."""
    rows = [json.loads(record.value()) for record in _broker(at).read(_topic(at, name))]
    for row in rows:
        for column in ("window_start", "window_end"):
            if column in row:
                row[column] = dt.datetime.fromisoformat(row[column])
    return rows


def _broker(at: Location) -> Any:
    from tests.kafka.broker import Broker

    assert at.kafka is not None
    return Broker(at.folder, int(at.kafka.rpartition(":")[2]))


def _naive_sink(at: Location, name: str, *, key: Any = None) -> BatchWriter:
    return Unguarded(folder=str(at.folder / f"naive {name}"))


def _naive_rows(at: Location, name: str) -> list[dict[str, Any]]:
    return _listed(read_unguarded(at.folder / f"naive {name}"))


def _listed(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


TARGETS = {
    "postgres": Target(
        _postgres_sink, _postgres_rows, requires="adbc_driver_postgresql", server="postgres"
    ),
    "delta": Target(_delta_sink, _delta_rows, requires="deltalake"),
    "parquet": Target(_parquet_sink, _parquet_rows, stores="emitted"),
    "sqlalchemy": Target(_sqlalchemy_sink, _sqlalchemy_rows, requires="sqlalchemy"),
    "kafka": Target(
        _kafka_sink,
        _kafka_rows,
        stores="effects",
        requires="confluent_kafka",
        server="kafka",
        prepare=_create_topic,
    ),
    "iceberg": Target(_iceberg_sink, _iceberg_rows, requires="pyiceberg", prepare=_create_catalog),
    "partitions": Target(
        _partitions_sink,
        _partitions_rows,
        stores="effects",
        requires="confluent_kafka",
        server="kafka",
        prepare=_create_partitions,
    ),
}
NAMES = "results", "rejected"
"""What each target has."""
NAIVE = {"naive": Target(_naive_sink, _naive_rows, stores="emitted")}
"""A writer that every user writes first. It has no ledger, so this campaign must find duplicates."""

ALL = {**TARGETS, **NAIVE}


def available(at: Location) -> list[str]:
    """The targets whose packages and servers are there."""
    return [
        name
        for name, target in TARGETS.items()
        if (not target.requires or find_spec(target.requires))
        and (not target.server or getattr(at, target.server) is not None)
    ]


def results_sink(target: str, at: Location, form: Form) -> Any:
    """The sink of the results."""
    return ALL[target].sink(at, "results", key=None if form in {"multiset", "rows"} else KEY)


def rejected_sink(target: str, at: Location) -> Any:
    """The sink of the rows that were too late, which are appended."""
    return ALL[target].sink(at, "rejected")


def prepare(target: str, at: Location) -> None:
    """Create what the sinks of a target need."""
    create = ALL[target].prepare
    if create is not None:
        for name in NAMES:
            create(at, name)


def left_behind(target: str, at: Location) -> list[str]:
    """What tasks have written or announced, and no commit has removed."""
    if target == "postgres":
        import psycopg

        assert at.postgres is not None
        with psycopg.connect(at.postgres) as connection:
            found = connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r'")
            prefixes = tuple(staging.prefix(f"{at.name} {name}") for name in NAMES)
            return [name for (name,) in found if name.startswith(prefixes)]
    folders = {"parquet": "parquet */_attempts", "delta": "delta */_streamops"}
    pattern = folders.get(target, "warehouse/**/streamops" if target == "iceberg" else "no such")
    files = (file for folder in at.folder.glob(pattern) for file in folder.rglob("*"))
    return [str(file.relative_to(at.folder)) for file in files if file.is_file()]


def last_batch(sink: Sink) -> int:
    """The last micro-batch in the ledger of the target; -1 if there is none."""
    # The transaction of a driver that was killed stays open: it is not waited for.
    if isinstance(sink, KafkaSink):
        entry = sink._read_entries(wait=False).entry
    else:
        entry = sink.read_ledger()
    return -1 if entry is None else entry.batch


@dataclass(frozen=True)
class Difference:
    """How a target differs from what it must have.

    Parameters
    ----------
    target, rows : str
        The target, and which of its rows: "results", "emitted" or "rejected".
    lost, unexpected : Counter
        Rows that it lacks; rows that it has too often, or must not have.
    """

    target: str
    rows: str
    lost: Rows
    unexpected: Rows

    def __str__(self) -> str:
        example = next(iter(self.lost or self.unexpected))
        return (
            f"{self.target}, {self.rows}: {self.lost.total()} lost, {self.unexpected.total()} duplicated "
            f"or wrong, such as {example}"
        )


def compare(target: str, at: Location, form: Form, expected: Expected) -> Iterator[Difference]:
    """Compare all rows of a target with what it must have."""
    stored = _read(target, at, "results", expected.emitted)
    rejected = _read(target, at, "rejected", expected.rejected)
    pairs: dict[str, tuple[Rows, Rows]] = {}
    match ALL[target].stores:
        case "rows":
            pairs["results"] = Counter(map(values, stored)), expected.results
        case "emitted":
            pairs["results"] = reduce_changes(stored, form), expected.results
            pairs["emitted"] = Counter(map(whole, stored)), expected.emitted
        case "effects":
            pairs["results"] = last_effects(stored, form), expected.results
            pairs["emitted"] = Counter(map(whole, stored)), effects(expected.emitted, form)
    reasons = ((row["reason"], json.loads(row["row"])["late"]["row"]["id"]) for row in rejected)
    pairs["rejected"] = Counter(reasons), expected.rejected
    for name, (found, wanted) in pairs.items():
        if found != wanted:
            yield Difference(target, name, wanted - found, found - wanted)


def _read(target: str, at: Location, name: str, expected: Rows) -> list[dict[str, Any]]:
    """All rows; none if a target that was never written must not have any."""
    try:
        return ALL[target].rows(at, name)
    except Exception:
        if expected:
            raise
        return []
