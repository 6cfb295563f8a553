"""Commits of Iceberg whose outcome is not known, and files that something else still names: none is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.kernel.versions import has_views
from tests.sinks.attempts import Attempts, deliver
from tests.sinks.contract import RUN, run_of

catalogs = pytest.importorskip("pyiceberg.catalog")
exceptions = pytest.importorskip("pyiceberg.exceptions")
sql = pytest.importorskip("pyiceberg.catalog.sql")

pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")

TABLE = "shop.orders"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return {"name": "c", "type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}"}


def load(properties: dict[str, str]) -> Any:
    return catalogs.load_catalog(**properties).load_table(TABLE)


def rows(*values: str) -> pa.Table:
    return pa.table({"k": pa.array([1, 2], pa.int64()), "v": list(values)})


def by_driver(sink: Any, table: pa.Table, batch: int, identity: Any) -> None:
    sink._deliver_rows(table, batch, identity)


WAYS = pytest.mark.parametrize("write", [by_driver, deliver], ids=["driver", "tasks"])


def read(properties: dict[str, str], snapshot: int | None = None) -> list[tuple[Any, ...]]:
    table = load(properties).scan(snapshot_id=snapshot).to_arrow()
    return sorted((row["k"], row["v"]) for row in table.to_pylist())


def answer_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the next commit take effect, and answer with an error."""
    commit, errors = sql.SqlCatalog.commit_table, [error]

    def commit_table(*arguments: Any, **named: Any) -> Any:
        result = commit(*arguments, **named)
        if errors:
            raise errors.pop()
        return result

    monkeypatch.setattr(sql.SqlCatalog, "commit_table", commit_table)


@WAYS
@pytest.mark.parametrize("key", [None, "k"])
def test_a_commit_that_was_applied_before_its_repetition_was_refused(
    properties: Any, write: Any, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport of a catalog repeats a request whose answer was lost."""
    sink = sinks.iceberg(properties, TABLE, key=key)
    write(sink, rows("a", "a"), 0, RUN)
    answer_once(monkeypatch, exceptions.CommitFailedException("a concurrent update"))
    write(sink, rows("b", "b"), 1, RUN)
    before = [] if key else [(1, "a"), (2, "a")]
    assert read(properties) == sorted([*before, (1, "b"), (2, "b")])
    assert len(load(properties).metadata.snapshots) == 2


@WAYS
@pytest.mark.parametrize(
    "error",
    [
        ValueError("an answer that was cut off"),
        TypeError("an answer of another kind"),
        exceptions.CommitStateUnknownException("502"),
        ConnectionError("no answer"),
    ],
    ids=repr,
)
def test_a_commit_without_an_answer_is_no_refusal_of_rows(
    properties: Any, write: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sinks.iceberg(properties, TABLE, key="k")
    write(sink, rows("a", "a"), 0, RUN)
    answer_once(monkeypatch, error)
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        write(sink, rows("b", "b"), 1, RUN)
    write(sinks.iceberg(properties, TABLE, key="k"), rows("b", "b"), 1, run_of(2))
    assert read(properties) == [(1, "b"), (2, "b")]


def test_files_of_an_applied_commit_stay_after_its_snapshot_was_expired(
    properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later snapshots have its files, and the metadata does not name it any more."""
    sink = sinks.iceberg(properties, TABLE)
    sink._deliver_rows(rows("a", "a"), 0, RUN)
    commit, is_first = sql.SqlCatalog.commit_table, [True]

    def commit_table(*arguments: Any, **named: Any) -> Any:
        result = commit(*arguments, **named)
        if is_first and is_first.pop():
            applied = load(properties).metadata.current_snapshot_id
            load(properties).append(rows("x", "x"))
            load(properties).maintenance.expire_snapshots().by_id(applied).commit()
            raise exceptions.CommitFailedException("a concurrent update")
        return result

    monkeypatch.setattr(sql.SqlCatalog, "commit_table", commit_table)
    sink._deliver_rows(rows("b", "b"), 1, RUN)
    assert read(properties) == sorted([(k, v) for v in "abx" for k in (1, 2)])


def test_an_answer_of_a_catalog_that_was_cut_off_is_no_missing_catalog(
    properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Answer", defaults=(dict, ...))
    monkeypatch.setattr(catalogs, "load_catalog", lambda **_: model.model_validate_json('{"defau'))
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        sinks.iceberg(properties, TABLE).check()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("PyIceberg does not yet support equality deletes"), "TARGET_FEATURE"),
        (NotImplementedError("PyIceberg does not yet support equality deletes"), "TARGET_FEATURE"),
        (ValueError("a manifest that was cut off"), "TARGET_REFUSED"),
    ],
    ids=repr,
)
def test_a_manifest_that_cannot_be_read_is_no_feature(
    properties: Any, error: Exception, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sinks.iceberg(properties, TABLE, key="k")
    sink._deliver_rows(rows("a", "a"), 0, RUN)

    def plan_files(_: Any) -> Any:
        raise error

    monkeypatch.setattr(pytest.importorskip("pyiceberg.table").DataScan, "plan_files", plan_files)
    with pytest.raises(SinkError, match=code):
        sink._deliver_rows(rows("b", "b"), 1, RUN)


def test_files_of_a_commit_that_was_not_the_first_are_deleted(
    properties: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sinks.iceberg(properties, TABLE)
    sink._deliver_rows(rows("a", "a"), 0, RUN)
    commit, others = sql.SqlCatalog.commit_table, [1]

    def commit_table(self: Any, *arguments: Any) -> Any:
        if others:
            others.pop()
            load(properties).append(rows("x", "x"))
        return commit(self, *arguments)

    monkeypatch.setattr(sql.SqlCatalog, "commit_table", commit_table)
    sink._deliver_rows(rows("b", "b"), 1, RUN)
    assert len(read(properties)) == 6
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    assert len(list(tmp_path.rglob("snap-*.avro"))) == 3


def test_files_of_a_commit_stay_if_it_may_still_be_applied(
    properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal while nobody else has committed: a request before it may be on its way."""
    sink = sinks.iceberg(properties, TABLE)
    sink._deliver_rows(rows("a", "a"), 0, RUN)
    commit, held = sql.SqlCatalog.commit_table, list[Any]()

    def commit_table(*arguments: Any) -> Any:
        held.append(arguments)
        raise exceptions.CommitFailedException("no lock")

    monkeypatch.setattr(sql.SqlCatalog, "commit_table", commit_table)
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        sink._deliver_rows(rows("b", "b"), 1, RUN)
    commit(*held[0])
    assert len(read(properties)) == 4


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("named_by", ["tag", "branch", "nothing but the table"])
def test_files_of_a_snapshot_before_a_rollback_stay(
    properties: Any, key: str | None, named_by: str
) -> None:
    """A driver died between its commit and the clean-up; then the table was rolled back."""
    deliver(sinks.iceberg(properties, TABLE, key=key), rows("a", "b"), 0, RUN)
    first = load(properties).current_snapshot().snapshot_id
    dead = sinks.iceberg(properties, TABLE, key=key)
    object.__setattr__(dead, "_clean_up", lambda _: None)
    deliver(dead, rows("x", "y"), 1, RUN)
    second = load(properties).current_snapshot().snapshot_id
    manage = load(properties).manage_snapshots()
    if named_by == "tag":
        manage.create_tag(second, "audit").commit()
    if named_by == "branch":
        manage.create_branch(second, "audit").commit()
    before = read(properties, second)
    load(properties).manage_snapshots().set_current_snapshot(first).commit()
    deliver(sinks.iceberg(properties, TABLE, key=key), rows("z", "z"), 1, run_of(2))
    assert read(properties, second) == before


def test_files_of_another_table_at_the_same_place_stay(properties: Any, tmp_path: Path) -> None:
    """A table that another catalog has registered goes on by itself, with a sink of the same name."""
    deliver(sinks.iceberg(properties, TABLE), rows("a", "a"), 0, RUN)
    other = {**properties, "uri": f"sqlite:///{tmp_path}/other.db"}
    catalog = catalogs.load_catalog(**other)
    catalog.create_namespace("shop")
    catalog.register_table(TABLE, load(properties).metadata_location)
    dead = sinks.iceberg(other, TABLE)
    object.__setattr__(dead, "_clean_up", lambda _: None)
    deliver(dead, rows("o", "o"), 1, RUN)
    deliver(sinks.iceberg(properties, TABLE), rows("b", "b"), 1, run_of(2))
    assert read(other) == [(1, "a"), (1, "o"), (2, "a"), (2, "o")]


@pytest.mark.parametrize("setting", ["true", "FALSE"])
def test_a_table_that_does_not_own_its_files_loses_none(
    properties: Any, tmp_path: Path, setting: str
) -> None:
    deliver(sinks.iceberg(properties, TABLE), Attempts(rows("a", "a"), tasks=1), 0, RUN)
    with load(properties).transaction() as transaction:
        transaction.set_properties({"gc.enabled": setting})
    prepared = sinks.iceberg(properties, TABLE)._prepare(rows("b", "b").schema, 1, "write")
    list(prepared(iter([rows("b", "b")])))  # of a driver that died before its commit
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    again = Attempts(rows("c", "c"), tasks=1)
    deliver(sinks.iceberg(properties, TABLE), again, 1, run_of(2))
    assert len(list(tmp_path.rglob("*.parquet"))) == (2 if setting == "true" else 3)
    assert read(properties) == [(1, "a"), (1, "c"), (2, "a"), (2, "c")]
