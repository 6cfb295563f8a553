"""The key table on SQLite and on PostgreSQL, without Spark."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamops.erasure import KeyTable
from streamops.erasure.core.shredding import KEY_SIZE, WRAPPED_SIZE, Wrapping
from streamops.errors import SpecError, StreamopsError

sa = pytest.importorskip("sqlalchemy")
_NUMBERS = itertools.count()


def entries(table: KeyTable) -> dict[tuple[str, int], bytes | None]:
    """All rows of the table."""
    with table._transaction() as (connection, rows):
        found = connection.execute(sa.select(rows.c.subject, rows.c.version, rows.c.key))
        return {(s, v): None if k is None else bytes(k) for s, v, k in found}


class OfBoth:
    """Tests that each database passes."""

    def test_keys_are_created_once(self, table: KeyTable) -> None:
        first = table._create(["b", "a", None, "a"])
        assert [(s, v) for s, v, _ in sorted(first)] == [("a", 1), ("b", 1)]
        assert len({k for _, _, k in first}) == 2
        assert {len(k or b"") for _, _, k in first} == {KEY_SIZE}
        second = table._create(["c", "a"])
        assert {(s, bytes(k or b"")) for s, _, k in second if s == "a"} == {
            (s, bytes(k or b"")) for s, _, k in first if s == "a"
        }
        assert len(entries(table)) == 3

    @pytest.mark.parametrize("wrong", [[None], [17.0], [True], [b"17"], [("17",)], None, 17.0])
    def test_a_subject_is_text_or_an_integer(self, table: KeyTable, wrong: Any) -> None:
        table._create(["17", "None", "True", "b'17'", "('17',)"])
        for change in (table.erase, table.rotate):
            with pytest.raises(SpecError, match="nothing was changed") as caught:
                change(["17", *wrong] if isinstance(wrong, list) else wrong)
            assert caught.value.code == "PARAMETER_TYPE"
        assert None not in entries(table).values()
        assert table.erase([np.int64(17), np.str_("None")]) == 2

    def test_concurrent_writers_get_the_same_keys(self, table: KeyTable) -> None:
        subjects = [f"s{n}" for n in range(50)]
        with ThreadPoolExecutor(8) as pool:
            # In different orders, and on a table that none of them has created yet.
            orders = [subjects[n:] + subjects[:n] for n in range(8)]
            found = list(pool.map(lambda order: sorted(table._create(order)), orders))
        assert all(len(rows) == 50 for rows in found)
        assert all(
            [bytes(k or b"") for *_, k in rows] == [bytes(k or b"") for *_, k in found[0]]
            for rows in found
        )
        assert len(entries(table)) == 50

    def test_more_subjects_than_fit_a_condition(self, table: KeyTable) -> None:
        assert len(table._create(f"s{n}" for n in range(2_500))) == 2_500
        assert len(table._create(f"s{n}" for n in range(2_600))) == 2_600

    def test_an_erased_subject_stays_without_a_key(self, table: KeyTable) -> None:
        table._create(["a", "b"])
        table.rotate(["a"])
        assert table.erase(["a", "unknown"]) == 1
        assert table.erase(["a"]) == 0
        found = entries(table)
        assert found.keys() == {("a", 1), ("a", 2), ("b", 1), ("unknown", 1)}
        assert [key for (s, _), key in found.items() if s != "b"] == [None] * 3
        # None of them gets another key.
        created = table._create(["a", "b", "unknown"])
        assert {s for s, _, key in created if key is not None} == {"b"}
        assert table.rotate(["a", "unknown"]) == 0

    def test_numbers_are_subjects_in_their_form_as_text(self, table: KeyTable) -> None:
        table._create(["17", "18"])
        assert table.erase([17]) == 1
        assert table.erase(18) == 1

    def test_one_subject_is_not_a_list_of_letters(self, table: KeyTable) -> None:
        table._create(["ann", "a", "n"])
        assert table.rotate("ann") == 1
        assert table.erase("ann") == 1
        assert {s for (s, _), key in entries(table).items() if key is None} == {"ann"}

    def test_rotation_adds_a_version(self, table: KeyTable) -> None:
        table._create(["a", "b"])
        before = entries(table)
        assert table.rotate(["a", "nobody"]) == 1
        after = entries(table)
        assert after.keys() == {("a", 1), ("a", 2), ("b", 1)}
        assert after[("a", 1)] == before[("a", 1)] != after[("a", 2)]
        assert len(table._create(["a"])) == 2

    def test_a_subject_with_a_zero_byte_gets_no_key(self, table: KeyTable) -> None:
        assert table._create(["a\0b"]) == []
        assert table.erase(["a\0b"]) == 0

    def test_subjects_are_compared_byte_by_byte(self, table: KeyTable) -> None:
        created = table._create(["ann", "Ann", "ann ", "änn", "a'; drop table x; --"])
        assert len(created) == len({k for *_, k in created}) == 5

    def test_keys_are_wrapped_and_wrapped_again(self, table: KeyTable) -> None:
        readable = {s: k for s, _, k in table._create(["a", "b"])}
        table.erase(["b"])
        old, new = b"o" * 32, b"n" * 32
        wrapped = table.rewrap(lambda: old)
        stored = entries(wrapped)[("a", 1)]
        assert len(stored or b"") == WRAPPED_SIZE
        again = wrapped.rewrap(lambda: new)
        found = entries(again)
        assert found[("b", 1)] is None
        wrapping = Wrapping.of(lambda: new)
        assert wrapping is not None
        assert wrapping.unwrap("a", found[("a", 1)] or b"") == bytes(readable["a"] or b"")
        assert len(again._create(["c"])[0][2] or b"") == WRAPPED_SIZE
        with pytest.raises(StreamopsError, match="KEY_NOT_UNWRAPPED"):
            wrapped.rewrap(lambda: new)  # the table is wrapped by the new key already
        assert entries(again)[("a", 1)] == found[("a", 1)]


class TestSqlite(OfBoth):
    @pytest.fixture
    def table(self, tmp_path: Path) -> KeyTable:
        return KeyTable(url=f"sqlite:///{tmp_path}/keys.db")

    @pytest.mark.parametrize("journal", ["delete", "wal"])
    def test_the_bytes_of_an_erased_key_are_in_no_file(
        self, table: KeyTable, tmp_path: Path, journal: str
    ) -> None:
        table._create([f"s{n}" for n in range(100)])
        with table._engine().connect() as connection:
            connection.connection.driver_connection.execute(f"PRAGMA journal_mode={journal}")
        created = {s: bytes(k or b"") for s, _, k in table._create([f"s{n}" for n in range(200)])}

        def files() -> bytes:
            return b"".join(path.read_bytes() for path in tmp_path.iterdir())

        assert created["s50"] in files()
        assert created["s150"] in files()
        table.erase(["s50", "s150"])
        assert created["s50"] not in files()
        assert created["s150"] not in files()
        assert created["s51"] in files()

    def test_a_database_that_cannot_be_opened_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(StreamopsError, match="KEY_TABLE_UNAVAILABLE"):
            KeyTable(url=f"sqlite:///{tmp_path}/missing/keys.db").erase(["secret-subject"])

    def test_a_failed_statement_shows_no_parameters(self, table: KeyTable) -> None:
        table._create(["a"])
        with table._transaction() as (connection, _):
            connection.exec_driver_sql("drop table streamops_keys")
            connection.exec_driver_sql("create table streamops_keys (subject text)")
        with pytest.raises(StreamopsError, match="KEY_TABLE_UNAVAILABLE") as caught:
            table.erase(["secret-subject"])
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__


class TestPostgres(OfBoth):
    @pytest.fixture
    def table(self, postgres: str) -> KeyTable:
        pytest.importorskip("psycopg")
        folder = postgres.partition("host=")[2].split()[0]
        url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        return KeyTable(url=url, table=f"keys_{next(_NUMBERS)}")

    def test_a_table_of_another_schema(self, table: KeyTable) -> None:
        with table._transaction() as (connection, _):
            connection.exec_driver_sql('create schema if not exists "Other"')
        other = KeyTable(url=table.url, table=table.table, schema="Other")
        other._create(["a"])
        assert entries(other).keys() == {("a", 1)}
        assert entries(table) == {}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"url": ""}, "PARAMETER_TYPE"),
        ({"url": "no url"}, "NOT_A_URL"),
        ({"url": "mysql+pymysql://h/d"}, "INVALID_PARAMETER"),
        ({"url": "sqlite://"}, "INVALID_PARAMETER"),
        ({"url": "sqlite:///:memory:"}, "INVALID_PARAMETER"),
        ({"url": "sqlite:///x", "table": ""}, "PARAMETER_TYPE"),
        ({"url": "sqlite:///x", "schema": 3}, "PARAMETER_TYPE"),
    ],
)
def test_wrong_parameters_are_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as caught:
        KeyTable(**arguments)
    assert caught.value.code == code


def test_neither_url_nor_wrapping_key_is_in_the_repr() -> None:
    table = KeyTable(url="postgresql://app:hunter2@host/keys", wrapping_key=lambda: b"w" * 32)
    assert repr(table) == "KeyTable(table='streamops_keys', schema=None)"


def test_the_password_is_not_in_errors() -> None:
    pytest.importorskip("psycopg")
    table = KeyTable(url="postgresql+psycopg://app:hunter2@127.0.0.1:1/keys")
    with pytest.raises(StreamopsError, match="KEY_TABLE_UNAVAILABLE") as caught:
        table.erase(["a"])
    assert "hunter2" not in str(caught.value)
