"""The Delta sink on local tables, without Spark."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SchemaError, SinkError, SpecError
from streamops.kernel.versions import has_views
from streamops.sinks import delta_files
from streamops.sinks.core import delta_commit
from streamops.sinks.delta import DeltaSink
from tests.sinks.attempts import in_tasks
from tests.sinks.contract import (
    INF,
    NAN,
    ODD,
    RUN,
    Contract,
    D,
    I,
    Target,
    ordered,
    round_trip,
    run_of,
)

deltalake = pytest.importorskip("deltalake")


pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")


@pytest.fixture(autouse=True, params=["rewrites rows", "merges", "tasks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small tables are rewritten; others are merged into; tasks replace files."""
    if request.param == "merges":
        monkeypatch.setattr(delta_commit, "_ROWS_PER_CHANGE", 0)
    if request.param == "tasks":
        monkeypatch.setattr(DeltaSink, "_deliver_rows", in_tasks)
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


def read(path: str) -> list[dict[str, Any]]:
    if not deltalake.DeltaTable.is_deltatable(path):
        return []
    rows: list[dict[str, Any]] = pa.table(deltalake.DeltaTable(path).scan().read_all()).to_pylist()
    return rows


@pytest.fixture
def target(path: str) -> Target:
    return Target(lambda **options: sinks.delta(path, **options), lambda: read(path))


class TestDelta(Contract):
    @pytest.mark.parametrize(
        ("dtype", "values"),
        [
            (pa.float64(), [-0.0, 0.0, -INF]),
            (pa.list_(pa.int64()), [[1, None], []]),
            (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x"]}]),
            (pa.map_(pa.string(), pa.float64()), [[("a", 1.5), ("b", None)], []]),
            (pa.list_(pa.struct([("x", pa.decimal128(10, 3))])), [[{"x": Decimal("1.250")}]]),
            (pa.list_(pa.timestamp("us", "UTC")), [[]]),
            (pa.struct([("f", pa.float32())]), [{"f": NAN}, {"f": None}]),
        ],
        ids=str,
    )
    def test_nested_types_are_stored_without_loss(
        self, target: Target, dtype: pa.DataType, values: list[Any]
    ) -> None:
        round_trip(target, dtype, values)


def test_a_multiset_of_nested_rows(target: Target) -> None:
    rows = {
        "m": pa.array([[("a", 1)], [("a", 1)], [("a", 2)], None], pa.map_(pa.string(), pa.int64())),
        "f": [0.0, -0.0, NAN, NAN],
    }
    target.deliver(0, **rows, _change_type=[I] * 4)
    taken = {"m": rows["m"].take([0, 3]), "f": [-0.0, NAN]}
    target.deliver(1, run_of(2), **taken, _change_type=[D, D])
    assert len(target.content("m", "f")) == 2
    assert ([("a", 2)], "nan") in [(m, repr(f)) for m, f in target.content("m", "f")]
    with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
        target.deliver(2, run_of(3), **taken, _change_type=[D, D])


def test_a_sequence_that_is_a_struct(target: Target) -> None:
    sink = target.sink(key="k", sequence="at")
    for batch, (x, y) in enumerate([(1, 5), (2, 0), (1, 9)]):
        rows = pa.table({"k": ["a"], "at": [{"x": x, "y": y}], "v": [batch]})
        sink._deliver_rows(rows, batch, RUN)
    assert target.content("v") == [(1,)]


def test_a_key_that_is_a_struct(target: Target) -> None:
    window = pa.struct([("start", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    sink = target.sink(key="w")
    for batch in range(2):
        rows = {"w": pa.array([{"start": None, "n": 1}, None], window), "v": [batch, batch]}
        sink._deliver_rows(pa.table(rows), batch, RUN)
    assert target.content("v") == [(1,), (1,)]


@pytest.mark.parametrize(
    "dtype",
    [pa.map_(pa.string(), pa.int64()), pa.list_(pa.float64()), pa.struct([("x", pa.float32())])],
    ids=str,
)
def test_keys_that_cannot_be_compared_are_refused(target: Target, dtype: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        target.sink(key="k")._deliver_rows(pa.table({"k": pa.nulls(0, dtype)}), 0, RUN)


@pytest.mark.parametrize("dtype", [pa.duration("us"), pa.time64("us")], ids=str)
def test_types_that_delta_does_not_have_are_refused(target: Target, dtype: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        target.deliver(0, a=pa.nulls(1, dtype))


def test_the_time_zone_of_the_session_changes_nothing(target: Target) -> None:
    zoned = pa.array([0, None], pa.timestamp("us", "Europe/Berlin"))
    target.deliver(0, at=zoned, nothing=pa.nulls(2))
    target.deliver(1, run_of(2), at=zoned.cast(pa.timestamp("us", "Asia/Tokyo")), nothing=["x", ""])
    assert [row["at"] and row["at"].timestamp() for row in target.rows()].count(0) == 2


def test_a_table_that_is_partitioned_and_has_other_rows(path: str, target: Target) -> None:
    stored = {"day": ["mon", "tue"], "n": [1, 2], "extra": ["x", "y"]}
    deltalake.write_deltalake(path, pa.table(stored), partition_by=["day"])
    rows = {"day": ["tue", "wed"], "n": pa.array([5, 6], pa.int32())}
    target.deliver(0, RUN, {"key": "day"}, **rows)
    expected = [("mon", 1, "x"), ("tue", 5, "y"), ("wed", 6, None)]
    assert target.content("day", "n", "extra") == expected


def test_columns_are_added_by_every_form(path: str, target: Target) -> None:
    changes = {"k": [1], "v": [None], "revision": [0]}
    add: dict[str, Any] = {"columns": "add", "key": "k"}
    target.deliver(0, RUN, add, k=[1], revision=[0], _change_type=[I])
    target.deliver(1, run_of(2), add, **changes, _change_type=[D])
    assert target.content() == []
    target.deliver(2, run_of(3), add, k=[2], revision=[0], ntz=pa.array([0], pa.timestamp("us")))
    target.deliver(3, run_of(4), {"columns": "add"}, k=[2], w=[1], _change_type=[I])
    assert [row["k"] for row in target.rows()] == [2, 2]
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        target.deliver(4, run_of(5), add, K=[3], k=[3], revision=[1])


@pytest.mark.parametrize(
    "settings",
    [{"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}],
)
def test_features_that_are_not_written_are_refused(
    path: str, target: Target, settings: dict[str, str]
) -> None:
    schema = pa.schema([("a", pa.int64())])
    deltalake.DeltaTable.create(path, schema, configuration=settings)
    with pytest.raises(SinkError, match="TARGET_FEATURE") as error:
        target.deliver(0, a=[1])
    assert "SET TBLPROPERTIES" in error.value.fix
    assert target.rows() == []


def test_a_table_whose_deletion_vectors_are_switched_off_is_written(
    path: str, target: Target
) -> None:
    settings = {"delta.enableDeletionVectors": "true"}
    table = deltalake.DeltaTable.create(
        path, pa.schema([("a", pa.int64())]), configuration=settings
    )
    table.alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    target.deliver(0, a=[1])
    assert target.content("a") == [(1,)]


def test_values_that_the_table_refuses_change_nothing(path: str, target: Target) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    deltalake.DeltaTable.create(path, schema).alter.add_constraint({"small": "a < 10"})
    for value in (None, 10):
        with pytest.raises(SinkError, match="TARGET_REFUSED"):
            target.deliver(0, a=pa.array([1, value], pa.int64()))
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        target.deliver(0, b=[1])
    target.deliver(0, a=[1])
    assert target.content("a") == [(1,)]


def test_a_table_that_must_not_lose_rows(path: str, target: Target) -> None:
    settings = {"delta.appendOnly": "true"}
    deltalake.DeltaTable.create(path, pa.schema([("k", pa.int64())]), configuration=settings)
    target.deliver(0, RUN, {"key": "k"}, k=[1])
    with pytest.raises(SinkError, match="append-only"):
        target.deliver(1, run_of(2), {"key": "k"}, k=[1])


def test_a_repeated_micro_batch_commits_nothing(path: str, target: Target) -> None:
    sink, run = target.sink(), RUN._replace(offsets=('{"logOffset":3}',))
    for _ in range(3):
        sink._deliver_rows(pa.table({"k": [1]}), 0, run)
    assert deltalake.DeltaTable(path).version() == 1  # after the one that created the table
    with pytest.raises(SinkError, match="OFFSETS_UNKNOWN"):
        sinks.wait_for(sink, "kafka:orders:0:3")


def test_the_entry_is_part_of_the_commit_of_the_rows(path: str, target: Target) -> None:
    sink = target.sink(key="k")
    for batch in range(4):
        sink._deliver_rows(pa.table({"k": [batch // 2], "revision": [batch]}), batch, RUN)
    table = deltalake.DeltaTable(path)
    assert table.version() == 4  # the first one created the table
    assert [entry.get("streamops.batch") for entry in table.history()] == ["3", "2", "1", "0", None]
    assert {entry.get("streamops.query") for entry in table.history(4)} == {"query"}


def test_an_entry_survives_checkpoints_and_the_clean_up_of_the_log(
    path: str, target: Target
) -> None:
    target.deliver(0, a=[1])
    for _ in range(3):
        deltalake.write_deltalake(path, pa.table({"a": [0]}), mode="append")
    deltalake.DeltaTable(path).create_checkpoint()
    for log in sorted(Path(path, "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    target.deliver(1, run_of(2), a=[2])
    entry = target.sink().read_ledger()
    assert entry is not None
    assert (entry.batch, entry.generation, entry.run) == (1, 2, "run 2")


def test_several_sinks_append_to_one_table(target: Target) -> None:
    for name, query in (("first", "query 1"), ("second 'é", "query 2")):
        for batch in range(2):
            run = run_of(batch, query)
            target.deliver(batch, run, {"name": name}, a=[f"{name} {batch}"])
    assert len(target.rows()) == 4
    assert target.sink(name="first").read_ledger().query == "query 1"  # type: ignore[union-attr]
    assert target.sink().read_ledger() is None


def operations(path: str) -> list[str]:
    """The operations of all commits with rows, from the first."""
    return [entry["operation"] for entry in reversed(deltalake.DeltaTable(path).history())][1:]


INSTANTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    dt.datetime(2026, 1, 1, 1, tzinfo=dt.UTC),
]
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-3, 7, 9]),
    (pa.int8(), [-128, 0, 127]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 1, 1), dt.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [*INSTANTS, INSTANTS[1] + dt.timedelta(hours=1)]),
    (
        pa.timestamp("us"),
        [t.replace(tzinfo=None) for t in [*INSTANTS, dt.datetime(2026, 6, 1, tzinfo=dt.UTC)]],
    ),
    (pa.string(), ["", "b", "c"]),
    (pa.float64(), [-INF, 0.5, NAN]),
    (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")]),
]


@pytest.mark.parametrize(("dtype", "values"), KEYS, ids=str)
def test_rows_beside_the_changed_ones_stay(
    path: str, target: Target, way: str, dtype: pa.DataType, values: list[Any]
) -> None:
    """Also those whose key has a null, which no range includes."""
    keys = [(g, k) for g in (1, None, 3) for k in (*values, None)]
    groups = pa.array([g for g, _ in keys], pa.int64())
    rows = {"g": groups, "k": pa.array([k for _, k in keys], dtype)}
    v = list(range(len(keys)))
    given = {"key": ["g", "k"]}
    target.deliver(0, options=given, **rows, v=v, revision=[0] * len(v), _change_type=[I] * len(v))
    # An update and a delete in the middle of the first group, and a new key.
    part = {"g": [1, 1, 1, 2], "k": pa.array([values[1], values[1], values[0], values[1]], dtype)}
    change = ["update_preimage", "update_postimage", "delete", "insert"]
    target.deliver(
        1, options=given, **part, v=[1, 100, 0, 200], revision=[0, 1, 0, 0], _change_type=change
    )
    found = sorted(row["v"] for row in target.rows())
    assert found == sorted([*v[2:], 100, 200])
    newer = {"g": [1, 3], "k": pa.array([values[1], values[2]], dtype), "revision": [1, 2]}
    upserts = target.sink(key=["g", "k"])
    upserts._deliver_rows(pa.table({**newer, "v": [-1, 300]}), 2, RUN)
    found = sorted(row["v"] for row in target.rows())
    replaced = keys.index((3, values[2]))
    assert found == sorted([*(n for n in v[2:] if n != replaced), 100, 200, 300])
    assert operations(path)[1:] == (["MERGE"] * 2 if way == "merges" else ["WRITE"] * 2)


@pytest.mark.parametrize("by", ["k", "name"])
def test_rows_that_others_append_meanwhile_stay(
    path: str, target: Target, monkeypatch: pytest.MonkeyPatch, way: str, by: str
) -> None:
    """Also between the read and the commit, with a key that has a range and with one that has none."""
    target.deliver(0, options={"key": by}, k=[1, 9], name=["a", "z"], revision=[0, 0])
    names = {"rewrites rows": "_write", "merges": "_execute", "tasks": "commit_files"}
    owner: Any = delta_files if way == "tasks" else delta_commit.Commit
    write, appended = getattr(owner, names[way]), []

    def append_before(commit: Any, *arguments: Any, **options: Any) -> None:
        if not appended:
            appended.append(1)
            other = pa.table({"k": [5], "name": ["m"], "revision": [7]})
            deltalake.write_deltalake(path, other, mode="append")
        write(commit, *arguments, **options)

    monkeypatch.setattr(owner, names[way], append_before)
    target.deliver(1, options={"key": by}, k=[1, 9], name=["a", "z"], revision=[1, 1])
    assert appended
    assert target.content("k", "revision") == [(1, 1), (5, 7), (9, 1)]
    assert target.sink(key=by).read_ledger().batch == 1


def test_all_rows_are_deleted(path: str, target: Target) -> None:
    target.deliver(0, options={"key": "k"}, k=[1, 2], revision=[0, 0], _change_type=[I, I])
    target.deliver(1, options={"key": "k"}, k=[1, 2], revision=[0, 0], _change_type=[D, D])
    assert target.rows() == []
    assert target.sink(key="k").read_ledger().batch == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"partition_by": ["p"]},
        {"configuration": {"delta.enableChangeDataFeed": "true"}},
        {"configuration": {"delta.logRetentionDuration": "interval 7 days"}},
    ],
    ids=str,
)
def test_a_table_with_settings_is_merged_into(
    path: str, target: Target, way: str, settings: Any
) -> None:
    schema = pa.schema([("k", pa.int64()), ("p", pa.string()), ("revision", pa.int64())])
    deltalake.DeltaTable.create(path, schema, **settings)
    target.deliver(0, options={"key": "k"}, k=[1, 2], p=["a", "b"], revision=[0, 0])
    target.deliver(1, options={"key": "k"}, k=[1, 3], p=["a", "b"], revision=[1, 0])
    assert target.content("k", "revision") == [(1, 1), (2, 0), (3, 0)]
    by_tasks_of = way == "tasks" and "delta.enableChangeDataFeed" not in str(settings)
    assert operations(path)[-1] == ("WRITE" if by_tasks_of else "MERGE")


def test_files_can_be_compacted_meanwhile(path: str, target: Target) -> None:
    sink = target.sink(key="k")
    sink._deliver_rows(pa.table({"k": range(50), "v": [0] * 50}), 0, RUN)
    done = threading.Event()

    def compact() -> None:
        while not done.wait(0.05):
            with contextlib.suppress(deltalake.exceptions.DeltaError):
                deltalake.DeltaTable(path).optimize.compact()

    compacting = threading.Thread(target=compact)
    compacting.start()
    try:
        for batch in range(1, 15):
            rows = pa.table({"k": [batch, 100 + batch], "v": [batch] * 2})
            sink._deliver_rows(rows, batch, RUN)
    finally:
        done.set()
        compacting.join()
    values = {k: k if 0 < k < 15 else 0 for k in range(50)} | {100 + k: k for k in range(1, 15)}
    assert target.content("k", "v") == ordered(values.items())


@pytest.mark.parametrize("odd", [*ODD, "100%", "a=b", "#x", "?x=1", "file:x"])
def test_names_of_folders_are_taken_literally(tmp_path: Path, odd: str) -> None:
    path = str(tmp_path / odd)
    target = Target(lambda **options: sinks.delta(path, **options), lambda: read(path))
    for batch, values in enumerate(([1, 2], [2, 3])):
        rows = pa.table({"k": values, "v": [batch] * 2})
        target.sink(key="k", name=odd)._deliver_rows(rows, batch, run_of(batch))
    assert target.content("k", "v") == [(1, 0), (2, 1), (3, 1)]
    assert target.sink(name=odd).read_ledger().batch == 1  # type: ignore[union-attr]
    assert [found.name for found in tmp_path.iterdir()] == [odd]


SECRETS = {"AWS_SECRET_ACCESS_KEY": "very-secret-key", "AWS_REGION": "nowhere-1"}


def test_credentials_are_never_shown(path: str) -> None:
    sink = sinks.delta("s3://user:pass%20word@bucket/t?sig=hidden", storage_options=SECRETS)
    displayed = f"{sink!r} {sink.label}"
    assert "bucket" in displayed
    options = {**SECRETS, "AWS_ENDPOINT_URL": "http://very-secret-key.invalid:1"}
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sinks.delta("s3://bucket/t", storage_options=options)._deliver_rows(
            pa.table({"a": [1]}), 0, RUN
        )
    displayed += f"{error.value} {error.value.__cause__!r} {error.value.__context__!r}"
    assert not any(secret in displayed for secret in ("very-secret-key", "pass%20word", "hidden"))


@pytest.mark.parametrize(
    "options",
    [
        {"path": ""},
        {"path": 1},
        {"path": "/tmp/100%25"},
        {"name": ""},
        {"key": []},
        {"key": ["a", "a"]},
        {"columns": "any"},
        {"missing": "ignore"},
        {"new_checkpoint": "yes"},
        {"repeated": True},
        {"storage_options": {"a": 1}},
        {"storage_options": "a=b"},
    ],
)
def test_wrong_parameters(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        sinks.delta(**{"path": "/tmp/t", **options})


def test_a_large_table_is_read_in_parts(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_commit, "_ROWS_AT_A_TIME", 1)
    target.deliver(0, RUN, {"key": "k"}, k=[1, 2], v=[1, 2], revision=[0, 0], _change_type=[I, I])
    target.deliver(1, RUN, {"key": "k"}, k=[1, 3], v=[1, 3], revision=[0, 0], _change_type=[D, I])
    assert target.content("k", "v") == [(2, 2), (3, 3)]
