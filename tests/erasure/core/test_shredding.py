"""Shredded values: what they are, what is rejected, and that they are equal exactly where values are."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamops.erasure.core.shredding import OVERHEAD, UNSHRED_REASONS
from streamops.errors import StreamopsError
from tests.erasure.samples import columns_of, entries_of, key_of, reasons, shred, unshred
from tests.oracles import erasure as oracle

TEXT = columns_of(email=pa.string())
ANN = entries_of("ann")
STORED = shred(TEXT, ["ann"], ANN, email=["a@x"])[0][0][0].as_py()

SAMPLES: list[tuple[pa.DataType, str, list[Any], tuple[int, int]]] = [
    (pa.bool_(), "boolean", [True, False], (0, 0)),
    (pa.int8(), "tinyint", [-128, 127], (0, 0)),
    (pa.int16(), "smallint", [-32768, 5], (0, 0)),
    (pa.int32(), "int", [-(2**31), 7], (0, 0)),
    (pa.int64(), "bigint", [-(2**63), 2**63 - 1], (0, 0)),
    (pa.float32(), "float", [1.5, float("inf")], (0, 0)),
    (pa.float64(), "double", [-0.0, 1e308], (0, 0)),
    (pa.decimal128(10, 2), "decimal", [Decimal("-1.25"), Decimal("99999999.99")], (10, 2)),
    (pa.string(), "string", ["", "Ünïcode \0 text"], (0, 0)),
    (pa.binary(), "binary", [b"", b"\0\xff"], (0, 0)),
    (pa.date32(), "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31)], (0, 0)),
    (
        pa.timestamp("us", "UTC"),
        "timestamp",
        [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC)],
        (0, 0),
    ),
    (
        pa.timestamp("us"),
        "timestamp_ntz",
        [dt.datetime.fromisoformat(day) for day in ("1960-01-01", "2024-02-29")],
        (0, 0),
    ),
]


@pytest.mark.parametrize(("dtype", "name", "values", "size"), SAMPLES, ids=[s[1] for s in SAMPLES])
def test_values_of_every_type_are_restored(
    dtype: pa.DataType, name: str, values: list[Any], size: tuple[int, int]
) -> None:
    spec = columns_of(v=dtype)
    array = pa.array([None, *values, None], dtype)[1:]  # a slice, whose buffers begin elsewhere
    subjects = ["ann"] * len(array)
    (stored,), rejected = shred(spec, subjects, ANN, v=array)
    assert stored.null_count == 1
    assert reasons(rejected) == [None] * len(array)
    assert all(cell[:10] == oracle.header(name, 1, *size) for cell in stored.to_pylist()[:-1])
    (restored,), rejected = unshred(spec, subjects, ANN, v=stored)
    assert restored.equals(array)
    assert rejected == [None] * len(array)


def test_a_shredded_value_is_that_of_the_documented_format() -> None:
    expected = oracle.shred(b"a@x", key_of("ann"), oracle.header("string", 1), "email", "ann")
    assert expected == STORED
    assert len(STORED) == len(b"a@x") + OVERHEAD
    assert oracle.unshred(STORED, key_of("ann"), "email", "ann") == b"a@x"


def test_values_are_equal_bytes_exactly_if_subject_column_and_value_are_equal() -> None:
    spec = columns_of(email=pa.string(), name=pa.string())
    subjects, entries = ["ann", "ann", "bob", "ann"], entries_of("ann", "bob")
    same = ["x", "x", "x", "y"]
    (email, name), _ = shred(spec, subjects, entries, email=same, name=same)
    assert email[0] == email[1]
    assert len({*email.to_pylist(), *name.to_pylist()}) == 6


def test_two_columns_that_are_bound_to_one_name_can_be_compared() -> None:
    one, other = columns_of(email=pa.string()), columns_of(mail=pa.string())
    (of,) = other.columns
    bound = type(other)(
        other.where, (type(of)(of.name, "email", of.type),), other.rejected, other.wrapping_key
    )
    (left,), _ = shred(one, ["ann"], ANN, email=["a@x"])
    assert shred(bound, ["ann"], ANN, mail=["a@x"])[0][0] == left
    assert shred(other, ["ann"], ANN, mail=["a@x"])[0][0] != left


@pytest.mark.parametrize(
    ("subject", "entries", "reason"),
    [
        (None, {}, "no_subject"),
        ("bob", {}, "no_key"),
        ("bob", {"bob": []}, "no_key"),
        ("bob", {"bob": [(1, None)]}, "erased"),
        ("bob", {"bob": [(1, None), (2, key_of("bob"))]}, "erased"),
        ("bob", {"bob": [(1, b"short")]}, "unusable_key"),
        ("bob", {"bob": [(1, key_of("bob")), (1, key_of("ann"))]}, "unusable_key"),
    ],
)
def test_a_value_without_a_key_becomes_null_with_the_reason(
    subject: str | None, entries: Any, reason: str
) -> None:
    subjects, entries = ["ann", subject, subject], {**ANN, **entries}
    (stored,), rejected = shred(TEXT, subjects, entries, email=["a", "secret", None])
    assert [cell is None for cell in stored.to_pylist()] == [False, True, True]
    # A null loses nothing.
    assert rejected == [None, {"reason": reason, "columns": ["email"]}, None]
    (restored,), rejected = unshred(TEXT, subjects, entries, email=[STORED] * 3)
    assert reasons(rejected)[1:] == [reason] * 2
    assert restored.to_pylist()[1:] == [None, None]


def test_an_equal_entry_of_a_key_table_may_repeat() -> None:
    twice = {"ann": [(1, key_of("ann"))] * 2}
    assert unshred(TEXT, ["ann"], twice, email=[STORED])[0][0].to_pylist() == ["a@x"]


def test_routed_rows_have_the_readable_values() -> None:
    spec = columns_of("route", email=pa.string(), age=pa.int32())
    values = {"email": ["a", "b"], "age": [None, 9]}
    (email, age), rejected = shred(spec, [None, "ann"], ANN, **values)
    assert (email[0].as_py(), age[0].as_py()) == (None, None)
    row = {"email": "a", "age": None}
    assert rejected == [{"reason": "no_subject", "columns": ["email"], "row": row}, None]


def test_a_failure_has_neither_values_nor_subjects() -> None:
    spec = columns_of("fail", email=pa.string())
    with pytest.raises(StreamopsError, match="ROW_REJECTED") as caught:
        shred(spec, ["secret-subject", None], {}, email=["secret-value", "b"])
    assert all(f"{reason}: 1" in str(caught.value) for reason in ("no_subject", "no_key"))
    assert "secret" not in str(caught.value)


def change(position: int) -> bytes:
    changed = bytearray(STORED)
    changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("position", range(len(STORED)))
def test_a_changed_byte_is_detected(position: int) -> None:
    expected = "not_authentic"
    if position < 2:
        expected = "not_shredded"
    elif position == 2:
        expected = "other_format"
    elif position < 6:
        expected = "other_type"
    elif position < 10:
        expected = "no_key_version"
    stored = [change(position), STORED]
    (restored,), rejected = unshred(TEXT, ["ann"] * 2, ANN, email=stored)
    assert restored.to_pylist() == [None, "a@x"]
    assert reasons(rejected) == [expected, None]


@pytest.mark.parametrize("stored", [b"", b"S", b"a@x", b"SE", STORED[:-20], b"\0" * 60])
def test_bytes_that_were_never_shredded_are_rejected(stored: bytes) -> None:
    assert reasons(unshred(TEXT, ["ann"], ANN, email=[stored])[1]) == ["not_shredded"]


def test_a_shortened_value_is_rejected() -> None:
    assert reasons(unshred(TEXT, ["ann"], ANN, email=[STORED[:-1]])[1])[0] in UNSHRED_REASONS


def test_a_value_that_was_moved_is_rejected() -> None:
    entries = entries_of("ann", "bob")
    swapped = {**entries, "bob": entries["ann"]}  # even with the same key
    assert reasons(unshred(TEXT, ["bob"], swapped, email=[STORED])[1]) == ["not_authentic"]
    other = columns_of(name=pa.string())
    assert reasons(unshred(other, ["ann"], ANN, name=[STORED])[1]) == ["not_authentic"]


def test_a_wrong_key_is_rejected() -> None:
    wrong = {"ann": [(1, key_of("bob"))]}
    assert reasons(unshred(TEXT, ["ann"], wrong, email=[STORED])[1]) == ["not_authentic"]


@pytest.mark.parametrize("dtype", [pa.binary(), pa.int64(), pa.decimal128(10, 2)])
def test_another_type_is_rejected(dtype: pa.DataType) -> None:
    assert reasons(unshred(columns_of(email=dtype), ["ann"], ANN, email=[STORED])[1]) == [
        "other_type"
    ]


@pytest.mark.parametrize("stated", [(10, 3), (12, 2)])
def test_a_decimal_of_another_precision_or_scale_is_rejected(stated: tuple[int, int]) -> None:
    stored, _ = shred(columns_of(v=pa.decimal128(10, 2)), ["ann"], ANN, v=[Decimal("1.25")])
    spec = columns_of(v=pa.decimal128(*stated))
    (restored,), rejected = unshred(spec, ["ann"], ANN, v=stored[0])
    assert restored.to_pylist() == [None]
    assert reasons(rejected) == ["other_type"]


def test_an_authentic_value_of_the_wrong_size_is_rejected() -> None:
    head = oracle.header("bigint", 1)
    stored = oracle.shred(b"four", key_of("ann"), head, "email", "ann")
    spec = columns_of(email=pa.int64())
    assert reasons(unshred(spec, ["ann"], ANN, email=[stored])[1]) == ["other_type"]


def test_the_highest_version_encrypts_and_all_versions_decrypt() -> None:
    two = {"ann": [*entries_of("ann", version=2)["ann"], *ANN["ann"]]}
    (stored,), _ = shred(TEXT, ["ann"], two, email=["a@x"])
    assert stored[0].as_py()[6:10] == b"\2\0\0\0"
    (restored,), _ = unshred(TEXT, ["ann"] * 2, two, email=[STORED, stored[0].as_py()])
    assert restored.to_pylist() == ["a@x"] * 2
    assert reasons(unshred(TEXT, ["ann"], ANN, email=stored)[1]) == ["no_key_version"]
    erased = {"ann": [(1, None)]}
    assert reasons(unshred(TEXT, ["ann"], erased, email=stored)[1]) == ["erased"]


def test_the_reason_is_that_of_the_first_column_and_all_columns_are_listed() -> None:
    spec = columns_of(a=pa.string(), b=pa.string(), c=pa.string())
    (a, *_), _ = shred(spec, ["ann"], ANN, a=["1"], b=[None], c=[None])
    _, rejected = unshred(spec, ["ann"], ANN, a=a, b=[b"junk"], c=a)
    assert rejected == [{"reason": "not_shredded", "columns": ["b", "c"]}]


def test_no_rows_give_no_rows() -> None:
    (stored,), rejected = shred(TEXT, [], ANN, email=[])
    assert (len(stored), rejected) == (0, [])
    (restored,), rejected = unshred(TEXT, [], ANN, email=[])
    assert (restored.type, rejected) == (pa.string(), [])


def test_text_that_is_not_utf_8_is_restored_as_it_was() -> None:
    raw = pa.array([b"\xff\xfe"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
    (stored,), _ = shred(TEXT, ["ann"], ANN, email=text)
    (restored,), _ = unshred(TEXT, ["ann"], ANN, email=stored)
    assert restored.cast(pa.binary())[0].as_py() == b"\xff\xfe"


@pytest.mark.parametrize("version", [-1, 2**32])
def test_a_version_that_the_header_cannot_hold_is_unusable(version: int) -> None:
    entries = {"ann": [(version, key_of("ann"))]}
    assert reasons(shred(TEXT, ["ann"], entries, email=["a"])[1]) == ["unusable_key"]
