"""The SQLAlchemy sink on SQLite and on PostgreSQL, without Spark."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SchemaError, SinkError, SpecError
from streamops.sinks.sink import JSON
from tests.sinks.contract import ODD, RUN, TYPES, Contract, D, I, Target, round_trip, run_of

sa = pytest.importorskip("sqlalchemy")
_NUMBERS = itertools.count()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/database"


def make_target(url: str, table: str) -> Target:
    """A target, and its rows in the types that the database has."""

    def rows() -> list[dict[str, Any]]:
        engine = sa.create_engine(url)
        try:
            with engine.connect() as connection:
                if not sa.inspect(connection).has_table(table):
                    return []
                found = sa.Table(table, sa.MetaData(), autoload_with=connection)
                return [dict(row) for row in connection.execute(sa.select(found)).mappings()]
        finally:
            engine.dispose()

    return Target(lambda **options: sinks.sqlalchemy(url, table, **options), rows)


class OfDatabases(Contract):
    frozen_at = 2  # the first decision is taken before the transaction

    def test_a_key_of_doubles_has_one_zero_and_one_nan(self, target: Target) -> None:
        with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
            target.deliver(0, RUN, {"key": "k"}, k=[0.0])

    def test_a_change_stream_without_key_is_a_multiset(self, target: Target) -> None:
        x, y = ["a", "a", None, "b", "b"], [1.0, 1.0, 0.5, None, 2.0]
        target.deliver(0, x=x, y=y, _change_type=[I] * 5)
        target.deliver(
            1, x=["a", None, "c", "c"], y=[1.0, 0.5, 1.5, 1.5], _change_type=[D, D, I, I]
        )
        expected = [("a", 1.0), ("b", 2.0), ("b", None), ("c", 1.5), ("c", 1.5)]
        assert target.content("x", "y") == expected
        with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
            target.deliver(2, x=["a", "a"], y=[1.0, 1.0], _change_type=[D, D])
        assert target.content("x", "y") == expected


class TestSqlite(OfDatabases):
    @pytest.fixture
    def target(self, url: str) -> Target:
        return make_target(url, "a table")

    @pytest.mark.parametrize(("dtype", "values"), TYPES, ids=lambda value: str(value)[:24])
    def test_types_are_stored_without_loss(
        self, target: Target, dtype: pa.DataType, values: list[Any]
    ) -> None:
        values = [value for value in values if value == value]  # without NaN
        if pa.types.is_decimal(dtype):  # text, which is compared below
            target.deliver(0, v=pa.array(values, dtype))
            assert sorted(Decimal(v) for (v,) in target.content("v")) == sorted(values)
            return
        if getattr(dtype, "tz", None):  # in UTC, without a zone
            target.deliver(0, v=pa.array(values, dtype))
            assert target.content("v") == [(v.replace(tzinfo=None),) for v in values]
            return
        round_trip(target, dtype, values)

    @pytest.mark.parametrize(
        ("old", "new"), [(t, pa.int64()) for t in (pa.string(), pa.date32(), pa.float64())], ids=str
    )
    def test_types_that_do_not_fit_are_refused(
        self, target: Target, old: pa.DataType, new: pa.DataType
    ) -> None:
        super().test_types_that_do_not_fit_are_refused(target, old, new)

    def test_numbers_of_any_size_fit(self, target: Target) -> None:
        types = [pa.int32(), pa.int64()], [pa.decimal128(10, 1), pa.decimal128(12, 3)]
        for batch, (a, b) in enumerate(zip(*types, strict=True)):
            rows = pa.table({"a": pa.array([2], a), "b": pa.array([Decimal("1.5")], b)})
            change = rows.append_column("_change_type", pa.array([D if batch else I]))
            target.sink()._deliver_rows(change, batch, run_of(batch))
        assert target.rows() == []

    def test_nan_is_refused(self, target: Target) -> None:
        with pytest.raises(SinkError, match="TARGET_REFUSED"):
            target.deliver(0, a=[1.0, float("nan")])
        target.deliver(0, a=[1.0, None])
        assert len(target.rows()) == 2

    def test_decimals_and_instants_are_compared(self, target: Target) -> None:
        values = {
            "n": pa.array([Decimal("0E-10"), Decimal("1.5")], pa.decimal128(38, 10)),
            "t": pa.array([0, 1], pa.timestamp("us", "Europe/Berlin")),
        }
        for key in (None, ["n", "t"]):
            sink = target.sink(key=key, name=repr(key))
            row = {**values, "revision": [0, 0]}
            sink._deliver_rows(pa.table({**row, "_change_type": [I, I]}), 0, RUN)
            sink._deliver_rows(pa.table({**row, "_change_type": [D, D]}), 1, RUN)
            assert target.rows() == []

    def test_a_key_that_the_database_takes_for_another_is_refused(
        self, url: str, target: Target
    ) -> None:
        engine = sa.create_engine(url)
        table = sa.Table("a table", sa.MetaData(), sa.Column("k", sa.Text(collation="NOCASE")))
        table.create(engine)
        engine.dispose()
        target.deliver(0, RUN, {"key": "k"}, k=["a", "A"])
        with pytest.raises(SinkError, match="TARGET_KEY"):
            target.deliver(1, run_of(2), {"key": "k"}, k=["a"])


@pytest.mark.parametrize("odd", ODD)
def test_names_of_tables_are_quoted(url: str, odd: str) -> None:
    target = make_target(url, odd)
    for batch, values in enumerate(([1, 2], [2, 3])):
        rows = pa.table({"k": values, odd: [f"{odd} {batch}"] * 2})
        target.sink(key="k", name=odd)._deliver_rows(rows, batch, run_of(batch))
    assert target.content("k", odd) == [(1, f"{odd} 0"), (2, f"{odd} 1"), (3, f"{odd} 1")]
    assert target.sink(name=odd).read_ledger().batch == 1  # type: ignore[union-attr]
    (tables,) = (make_target(url, "sqlite_master"),)
    names = {row["name"] for row in tables.rows() if row["type"] == "table"}
    assert names == {odd, "streamops_entries"}


@pytest.mark.postgres
class TestPostgres(OfDatabases):
    @pytest.fixture
    def target(self, postgres: str) -> Target:
        folder = postgres.split()[0].partition("=")[2]
        name = f"table {next(_NUMBERS)}"
        return make_target(f"postgresql+psycopg://postgres@/postgres?host={folder}", name)

    def test_an_infinite_multiset(self, target: Target) -> None:
        values = [float("nan"), float("inf"), -0.0, 0.0]
        target.deliver(0, x=values, _change_type=[I] * 4)
        target.deliver(1, run_of(2), x=[-0.0, values[0]], _change_type=[D, D])
        assert len(target.rows()) == 2


def test_columns_of_the_table_that_the_rows_do_not_have_stay(url: str) -> None:
    target = make_target(url, "t")
    for options in ({"key": "k"}, {"name": "multiset"}):
        target.deliver(0, RUN, {"columns": "add", **options}, k=[1, 1][: len(options)], extra=["x"])
    target.deliver(1, run_of(2), {"key": "k"}, k=[1])
    target.deliver(1, run_of(2), {"name": "multiset"}, k=[1], _change_type=[D])
    assert target.content("k", "extra") == [(1, "x")]


def test_nested_columns_are_text(url: str) -> None:
    schema = pa.schema([pa.field("v", pa.string()).with_metadata(JSON)])
    target = make_target(url, "t")
    target.sink()._deliver_rows(pa.table([['{"b": [1, null]}']], schema=schema), 0, RUN)
    assert target.rows() == [{"v": '{"b": [1, null]}'}]


def test_values_that_the_table_refuses_change_nothing(url: str) -> None:
    engine = sa.create_engine(url)
    n = sa.Column("n", sa.Integer, sa.CheckConstraint("n < 10"), nullable=False)
    sa.Table("t", sa.MetaData(), n, sa.Column("b", sa.Text)).create(engine)
    engine.dispose()
    target = make_target(url, "t")
    for value in (None, 10):
        with pytest.raises(SinkError, match="TARGET_REFUSED"):
            target.deliver(0, n=pa.array([1, value], pa.int32()))
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        target.deliver(0, b=["x"])
    target.deliver(0, n=pa.array([1], pa.int32()))
    assert target.content("n") == [(1,)]


def test_many_keys(url: str) -> None:
    target = make_target(url, "t")
    sink = target.sink(key=["a", "b"])
    keys = {
        "a": [n // 50 if n % 7 else None for n in range(2_000)],
        "b": [str(n) for n in range(2_000)],
    }
    for batch in range(2):
        sink._deliver_rows(pa.table({**keys, "v": [batch] * 2_000}), batch, RUN)
    assert {row["v"] for row in target.rows()} == {1}
    assert len(target.rows()) == 2_000


def test_credentials_are_never_displayed(tmp_path: Path) -> None:
    url = "postgresql+psycopg://user:secret%20word@127.0.0.1:1/nowhere?application_name=hidden-name"
    sink = sinks.sqlalchemy(url, "t")
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    text = f"{sink!r}{error.value}{error.value.__cause__!r}"
    assert "user" in text
    assert not any(secret in text for secret in ("secret", "hidden-name"))


@pytest.mark.parametrize(
    "options",
    [
        {"url": 1},
        {"url": "no url"},
        {"table": ""},
        {"key": []},
        {"columns": "any"},
        {"missing": "ignore"},
        {"new_checkpoint": "yes"},
        {"repeated": True},
        {"schema": ""},
        {"name": ""},
    ],
)
def test_wrong_parameters(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        sinks.sqlalchemy(**{"url": "sqlite://", "table": "t", **options})
