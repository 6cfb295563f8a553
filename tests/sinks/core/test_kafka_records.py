"""Records of a topic, and ledger entries in its records."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.sinks.core.kafka_records import (
    KEY,
    VALUE,
    decode_entry,
    encode_entry,
    make_records,
)
from streamops.sinks.core.ledger import Entry
from streamops.sinks.core.net import compute_net

TYPES = ["insert", "delete", "update_preimage", "update_postimage"]
SOURCE = '{"connector": "streamops"}'


def table(rows: list[dict[str, object]], key: bool) -> pa.Table:
    values = [{n: v for n, v in row.items() if n != "_change_type"} for row in rows]
    columns = {VALUE: [json.dumps(value) for value in values]}
    if key:
        columns[KEY] = [json.dumps({"k": row["k"]}) for row in rows]
    plain = {name: [row[name] for row in rows] for name in rows[0]}
    return pa.table({**plain, **columns})


def texts(values: list[str | None]) -> list[object]:
    return [None if value is None else json.loads(value) for value in values]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=3))
def test_envelopes_have_the_row_before_and_after(lives: list[list[int]]) -> None:
    """Keys with a row in the topic, which is updated along some values and then perhaps deleted."""
    rows: list[dict[str, object]] = []
    expected = {}
    for key, life in enumerate(lives):
        common = {"k": f"{key}"}
        for revision, (old, new) in enumerate(itertools.pairwise(life)):
            rows.append({**common, "v": old, "revision": revision, "_change_type": TYPES[2]})
            rows.append({**common, "v": new, "revision": revision + 1, "_change_type": TYPES[3]})
        first = {**common, "v": life[0], "revision": 0}
        last = {**common, "v": life[-1], "revision": len(life) - 1}
        if len(life) % 2:
            rows.append({**last, "_change_type": "delete"})
            expected[key] = (first, None, "d")
        else:
            expected[key] = (first, last, "u")
    net = compute_net(table(rows, True), key=["k"], sequence=["revision"])
    records = make_records(net, "changes", "debezium", SOURCE)
    found = {}
    tombstones = set()
    for key, value in zip(*(texts(c.to_pylist()) for c in records.columns), strict=True):
        number = int(key["k"])  # type: ignore[index]
        if value is None:
            assert found[number][2] == "d", "a tombstone follows its delete"
            tombstones.add(number)
        else:
            found[number] = (value["before"], value["after"], value["op"])  # type: ignore[index]
            assert value["source"] == json.loads(SOURCE)  # type: ignore[index]
    assert found == expected
    assert tombstones == {key for key, value in expected.items() if value[2] == "d"}
    plain = make_records(net, "changes", "json", SOURCE)
    pairs = zip(*(texts(c.to_pylist()) for c in plain.columns), strict=True)
    assert {int(k["k"]): v for k, v in pairs} == {k: v[1] for k, v in expected.items()}  # type: ignore[index]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=8))
def test_a_multiset_has_the_net_number_of_copies(changes: list[tuple[int, bool]]) -> None:
    rows: list[dict[str, object]] = [
        {"v": value, "_change_type": "insert" if added else "delete"} for value, added in changes
    ]
    net = compute_net(table(rows, False), key=None, sequence=())
    records = make_records(net, "multiset", "json", SOURCE)
    weights = np.zeros(3, int)
    for value in texts(records.column("value").to_pylist()):
        weights[value["v"]] += 1 if value["_change_type"] == "insert" else -1  # type: ignore[index]
    assert records.column("key").null_count == len(records)
    expected = np.zeros(3, int)
    for value, added in changes:
        expected[value] += 1 if added else -1
    assert (weights == expected).all()
    assert len(records) == abs(expected).sum()


ENTRY = Entry("query", 3, "run", 5, rows=7, digest=-(2**63), former=("first", "second"))


def test_an_entry_is_read_as_it_was_written() -> None:
    assert decode_entry(encode_entry(ENTRY, 3)) == (ENTRY, 3)


@pytest.mark.parametrize(
    "name", ["query", "generation", "run", "batch", "rows", "digest", "former"]
)
@pytest.mark.parametrize("value", [None, [1], 1.5, {"a": 1}])
def test_what_is_not_an_entry_is_refused(name: str, value: object) -> None:
    values = json.loads(encode_entry(ENTRY))
    for wrong in ({**values, name: value}, {n: v for n, v in values.items() if n != name}):
        with pytest.raises(ValueError, match="not an entry"):
            decode_entry(json.dumps(wrong).encode())


@pytest.mark.parametrize("text", [b"[]", b"1", b'"query"', b"null", b"\xff", b"{"])
def test_other_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own error is one
        decode_entry(text)
