"""Laws of shredding: it is what the oracle computes, row by row, however rows are divided and ordered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.erasure.core.values import ValueType
from tests.erasure.samples import Entries, columns_of, key_of, reasons, shred, unshred
from tests.oracles import erasure as oracle

pytestmark = pytest.mark.laws

SPEC = columns_of(email=pa.string(), age=pa.int64())
NAMES = {"email": "string", "age": "bigint"}
SUBJECTS = ("ann", "bob", "cid", "dan")

Row = tuple[str | None, str | None, int | None]

values = st.one_of(st.none(), st.text(max_size=8), st.sampled_from(["", "same"]))
numbers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1]))
rows = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from(SUBJECTS)), values, numbers), max_size=12
)
versions = st.dictionaries(st.integers(0, 2**32 - 1), st.booleans(), max_size=3)
tables = st.dictionaries(st.sampled_from(SUBJECTS), versions)


def entries_of(drawn: dict[str, dict[int, bool]]) -> Entries:
    return {
        subject: [(v, key_of(subject, v) if usable else None) for v, usable in versions.items()]
        for subject, versions in drawn.items()
    }


def run(rows: Sequence[Row], entries: Entries) -> tuple[list[list[Any]], list[Any]]:
    subjects, emails, ages = zip(*rows, strict=True) if rows else ((), (), ())
    found, rejected = shred(SPEC, subjects, entries, email=list(emails), age=list(ages))
    return [column.to_pylist() for column in found], rejected


def expected(row: Row, entries: Entries) -> tuple[list[bytes | None], str | None]:
    """The shredded values of a row, and the reason why one was rejected, by the oracle."""
    subject, *plain = row
    given_versions = dict(entries.get(subject or "", []))
    reason = None
    if subject is None:
        reason = "no_subject"
    elif not given_versions:
        reason = "no_key"
    elif None in given_versions.values():
        reason = "erased"
    cells: list[bytes | None] = []
    for name, value in zip(NAMES, plain, strict=True):
        if value is None or reason is not None:
            cells.append(None)
            continue
        version = max(given_versions)
        raw = value.encode() if isinstance(value, str) else value.to_bytes(8, "little", signed=True)  # type: ignore[attr-defined]
        assert subject is not None
        key = given_versions[version]
        assert key is not None
        cells.append(oracle.shred(raw, key, oracle.header(NAMES[name], version), name, subject))
    return cells, None if all(value is None for value in plain) else reason


@given(rows, tables)
def test_shredding_equals_the_oracle(rows: list[Row], drawn: dict[str, dict[int, bool]]) -> None:
    entries = entries_of(drawn)
    columns, rejected = run(rows, entries)
    for at, row in enumerate(rows):
        cells, reason = expected(row, entries)
        assert [column[at] for column in columns] == cells
        assert reasons([rejected[at]]) == [reason]


@given(rows, tables, st.data())
def test_any_division_and_any_order_gives_the_same_bytes(
    rows: list[Row], drawn: dict[str, dict[int, bool]], data: st.DataObject
) -> None:
    entries = entries_of(drawn)
    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(0, len(rows)))
    (emails, ages), rejected = run(rows, entries)
    parts = [run([rows[at] for at in part], entries) for part in (order[:cut], order[cut:])]
    for at, whole in enumerate((emails, ages)):
        assert [*parts[0][0][at], *parts[1][0][at]] == [whole[i] for i in order]
    assert [*parts[0][1], *parts[1][1]] == [rejected[i] for i in order]


@given(rows, tables, tables)
def test_values_are_restored_exactly_while_their_key_exists(
    rows: list[Row], drawn: dict[str, dict[int, bool]], later: dict[str, dict[int, bool]]
) -> None:
    before, after = entries_of(drawn), entries_of(later)
    (emails, ages), _ = run(rows, before)
    subjects = [row[0] for row in rows]
    restored, rejected = unshred(SPEC, subjects, after, email=emails, age=ages)
    for at, (subject, *plain) in enumerate(rows):
        stored = (emails[at], ages[at])
        versions = {int.from_bytes(cell[6:10], "little") for cell in stored if cell is not None}
        has_key = all(dict(after.get(subject or "", [])).get(v) is not None for v in versions)
        found = [column[at].as_py() for column in restored]
        if has_key:
            assert found == [
                p if s is not None else None for p, s in zip(plain, stored, strict=True)
            ]
            assert rejected[at] is None
        else:
            assert found == [None, None]
            assert rejected[at] is not None


@given(
    st.sampled_from(SUBJECTS), st.sampled_from(SUBJECTS), st.text(max_size=4), st.text(max_size=4)
)
def test_bytes_are_equal_exactly_if_subject_and_value_are(
    one: str, other: str, left: str, right: str
) -> None:
    entries = entries_of({subject: {1: True} for subject in SUBJECTS})
    (emails, _), _ = run([(one, left, 1), (other, right, 1)], entries)
    assert (emails[0] == emails[1]) == ((one, left) == (other, right))


@given(
    st.text(max_size=20),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 255)), min_size=1, max_size=3),
)
def test_damaged_bytes_never_give_another_value(value: str, changes: list[tuple[int, int]]) -> None:
    entries = entries_of({"ann": {1: True}})
    (emails, _), _ = run([("ann", value, None)], entries)
    damaged = bytearray(emails[0])
    for position, flip in changes:
        damaged[position % len(damaged)] ^= flip
    (restored, _), rejected = unshred(SPEC, ["ann"], entries, email=[bytes(damaged)], age=[None])
    same = bytes(damaged) == emails[0]  # two changes may cancel
    assert restored.to_pylist() == [value if same else None]
    assert (rejected == [None]) == same


@given(st.lists(st.one_of(st.none(), st.floats(width=64)), max_size=5))
def test_doubles_are_restored_bit_by_bit(drawn: list[float | None]) -> None:
    spec = columns_of(v=pa.float64())
    entries = entries_of({"ann": {1: True}})
    array = pa.array(drawn, pa.float64())
    (stored,), _ = shred(spec, ["ann"] * len(drawn), entries, v=array)
    (restored,), _ = unshred(spec, ["ann"] * len(drawn), entries, v=stored)
    of = ValueType.of(pa.float64())
    assert of is not None
    assert of.to_bytes(restored) == of.to_bytes(array)
