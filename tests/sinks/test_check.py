"""What a sink says before a query starts, and that a server is found as psql finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streamops import erasure, sinks
from streamops.errors import RequirementError, SinkError, SpecError
from streamops.kernel import databases
from streamops.sinks.sink import Sink
from streamops.sources.postgres_log import Client
from streamops.spark.identity import Identity

RUN = Identity("query", "run 1")
ROWS = pa.table({"n": [1]})


@pytest.fixture
def folder(postgres: str) -> str:
    return postgres.split()[0].partition("=")[2]


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("of", ["a file", "below a file", "no scheme", "no database"])
def test_a_place_without_a_target_is_named(tmp_path: Path, of: str) -> None:
    (tmp_path / "x").write_text("not a target, and longer than the header of SQLite: " + "x" * 100)
    make = {
        "a file": lambda: sinks.delta(f"{tmp_path}/x"),
        "below a file": lambda: sinks.delta(f"{tmp_path}/x/y"),
        "no scheme": lambda: sinks.delta("s4://bucket/table"),
        "no database": lambda: sinks.sqlalchemy(f"sqlite:///{tmp_path}/x", "t"),
    }
    with pytest.raises(SinkError, match="TARGET_KIND"):
        make[of]().check()


@pytest.mark.parametrize("of", ["delta", "parquet", "sqlite"])
def test_files_are_found_and_not_written(tmp_path: Path, of: str) -> None:
    def make(**given: Any) -> Sink:
        if of == "sqlite":
            return sinks.sqlalchemy(f"sqlite:///{tmp_path}/x.db", "t", **given)
        return getattr(sinks, of)(f"{tmp_path}/x", **given)  # type: ignore[no-any-return]

    (found,) = make().check().targets
    assert found.creates
    assert found.entry is None
    assert files(tmp_path) == []
    make()._deliver_rows(ROWS, 0, RUN)
    before = files(tmp_path)
    (found,) = make().check().targets
    assert found.creates == ()
    assert found.entry == make().read_ledger()
    assert files(tmp_path) == before
    assert str(make().check()).endswith("micro-batch: 0 of query query")
    if of != "parquet":
        missing: Any = {"missing": "refuse"}
        make(**missing).check()
        for path in reversed(before):
            path.rmdir() if path.is_dir() else path.unlink()
        with pytest.raises(SinkError, match="TARGET_MISSING"):
            make(**missing).check()


@pytest.mark.smoke
def test_a_table_of_postgres_is_found_and_not_written(postgres: str, folder: str) -> None:
    url = f"postgresql://postgres@/postgres?host={folder}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA checked")
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA checked TO poor")

        def tables() -> list[Any]:
            statement = "SELECT tablename FROM pg_tables WHERE schemaname = 'checked'"
            return sorted(name for (name,) in connection.execute(statement).fetchall())

        sink = sinks.postgres(url, "t", schema="checked")
        assert repr(sink.check()) == (
            "sinks.postgres('t')\n"
            '  target:      table "checked"."t"\n'
            '  to create:   table "checked"."t", table "checked"."streamops_ledger"\n'
            "  micro-batch: none yet"
        )
        assert tables() == []
        sink._deliver_rows(ROWS, 0, RUN)
        (found,) = sink.check().targets
        assert (found.creates, found.entry) == ((), sink.read_ledger())
        assert tables() == ["streamops_ledger", "t"]
        other = sinks.postgres(url, "u", schema="checked", name="t")
        with pytest.raises(SinkError, match="LEDGER_OTHER_TARGET"):
            sinks.fan_out({"right": sink.after(id), "wrong": other}).check()
        strict = sinks.postgres(url, "u", schema="checked", missing="refuse")
        with pytest.raises(SinkError, match="TARGET_MISSING"):
            sinks.side_outputs(results=sink, rejected=strict, operator="x").check()
        poor = sinks.postgres(url.replace("postgres@", "poor@"), "t", schema="checked")
        with pytest.raises(SinkError, match="TARGET_REFUSED") as error:
            poor.check()
        assert 'INSERT on "checked"."t"' in error.value.got
        with pytest.raises(SinkError, match="TARGET_KEY"):
            sinks.postgres(url, "t", schema="checked", key="n").check()
        connection.execute("DROP TABLE checked.t")
        with pytest.raises(SinkError, match="TARGET_RECREATED"):
            sink.check()
        assert tables() == ["streamops_ledger"]


def test_a_server_that_is_not_there() -> None:
    sink = sinks.postgres("postgresql://127.0.0.1:1/shop", "t")
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        sink.check()


@pytest.mark.postgres
def test_a_local_server_is_found_by_its_socket(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests' server has a folder of its own, as Debian's.
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGPORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(databases, "_TMP", Path("/nowhere"))
    monkeypatch.setattr(databases, "_SOCKETS", Path("/nowhere"))
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sinks.postgres("postgresql:///postgres", "t").check()
    assert "/var/run/postgresql" in error.value.fix
    monkeypatch.setattr(databases, "_SOCKETS", Path(folder))
    for url in (
        "postgresql://postgres@/postgres",
        "user=postgres dbname=postgres application_name='a b'",
    ):
        assert sinks.postgres(url, "socket").check().targets[0].creates
        client = Client(url, lambda cursor: None)
        assert client.fetch("SELECT 1") == [(1,)]
        client.close()
    url = "postgresql+psycopg://postgres@/postgres"
    assert sinks.sqlalchemy(url, "socket").check().targets[0].creates
    assert len(erasure.KeyTable(url=url, table="socket keys")._create(["a"])) == 1
    # What the user says counts.
    monkeypatch.setenv("PGHOST", "/nowhere")
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        sinks.postgres("postgresql://postgres@/postgres", "t").check()


@pytest.mark.parametrize(
    "make",
    [
        *(
            lambda url=url: sinks.postgres(url, "t")
            for url in (
                "shop",
                "mysql://db/shop",
                "postgresql://db:port/shop",
                "postgresql://db:70000/shop",
                "postgresql://db/shop?sslmod=require",
                "postgresql://db/shop?sslmode",
                "postgresql://app:pass@word@db/shop",
                "postgresql://app:12/34@db/shop",
                "postgresql://db/%zz",
                "postgresql://[::1/shop",
                "host=db user",
            )
        ),
        *(
            lambda url=url: sinks.sqlalchemy(url, "t")
            for url in (
                "shop",
                "sqlite://shop.db",
                "postgresql+psycopg://db:port/shop",
                "mysql+pymysql://app:pass@word@db/shop",
                "mysql+pymysql://app:p@ss/word@db/shop",
                "mysql+pymysql://db/shop?option",
            )
        ),
        lambda: erasure.KeyTable(url="postgresql+psycopg://app:1@2@db/keys"),
    ],
)
def test_a_url_that_no_driver_understands_is_refused_at_once(make: Any) -> None:
    with pytest.raises(SpecError) as error:
        make()
    assert error.value.code == "NOT_A_URL"


@pytest.mark.parametrize("url", ["shop.db", "sqlite://shop.db"])
def test_a_file_of_sqlite_has_three_slashes(url: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="NOT_A_URL") as error:
        sinks.sqlalchemy(url, "t")
    assert "'sqlite:///shop.db'" in error.value.fix
    sinks.sqlalchemy(f"sqlite:///{tmp_path}/shop.db", "t").check()


def test_folders_may_be_paths(tmp_path: Path) -> None:
    sink: Any = sinks.parquet
    sink(tmp_path / "x")._deliver_rows(ROWS, 0, RUN)
    assert sinks.read_parquet(tmp_path / "x").to_table().num_rows == 1
    for wrong in (3, ""):
        with pytest.raises(SpecError, match="PARAMETER_TYPE"):
            sink(wrong)


@pytest.mark.parametrize(
    "servers",
    ["host:", "host:0", "host:99999", "a b:9092", "host:9092,", "user:pass@host:9092"],
)
def test_servers_that_are_no_addresses_are_refused_at_once(servers: Any) -> None:
    with pytest.raises(SpecError) as error:
        sinks.kafka("topic", servers=servers)
    assert error.value.code == "INVALID_PARAMETER"
    for right in (
        "host",
        "host:9092",
        "a:1,b:2",
        " a:1, b:2",
        "[::1]:9092",
        "SASL_SSL://a-1.b:9092",
    ):
        assert sinks.kafka("topic", servers=right).servers == right


def test_a_dialect_whose_package_is_missing_is_named() -> None:
    with pytest.raises(RequirementError, match="PACKAGE_MISSING") as error:
        sinks.sqlalchemy("nothing://app:secret@db/shop", "t")
    assert error.value.got == "nothing"


@pytest.mark.parametrize("batch", ["frame", None, [(1,)]], ids=repr)
def test_what_is_not_a_frame_is_refused(tmp_path: Path, batch: Any) -> None:
    for sink in (sinks.sqlalchemy("sqlite:////data/t.db", "t"), sinks.parquet(tmp_path / "t")):
        for writer in (sink, sink.after(lambda rows: rows), sinks.fan_out({"a": sink})):
            with pytest.raises(SpecError, match="NOT_A_FRAME"):
                writer(batch, 0)
