"""The net effect of micro-batches, by example; its laws are in tests/laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops.errors import ChangeStreamError
from streamops.sinks.core.net import compute_net, digest, form_of

INSERT, PRE, POST, DELETE = "insert", "update_preimage", "update_postimage", "delete"
INT = pa.int32()


def changes(*rows: tuple[str, str, int, Any]) -> pa.Table:
    types, keys, revisions, values = zip(*rows, strict=True)
    return pa.table(
        {"k": keys, "v": values, "revision": pa.array(revisions, INT), "_change_type": types}
    )


def net(
    rows: pa.Table, key: Sequence[str] | None = ("k",), sequence: Sequence[str] = ("revision",)
) -> Any:
    return compute_net(rows, key=key, sequence=sequence)


def test_forms() -> None:
    assert form_of(["a"], None) == "append"
    assert form_of(["a"], ["a"]) == "upsert"
    assert form_of(["a", "_change_type"], ["a"]) == "changes"
    assert form_of(["a", "_change_type"], None) == "multiset"


def test_a_chain_of_changes_has_one_effect() -> None:
    rows = changes(
        (POST, "a", 3, 13),
        (PRE, "a", 2, 12),
        (INSERT, "b", 0, 20),
        (POST, "a", 2, 12),
        (PRE, "a", 1, 11),
    )
    result = net(rows)
    assert result.removed.to_pylist() == [{"k": "a", "v": 11, "revision": 1}]
    assert result.added.to_pylist() == [
        {"k": "a", "v": 13, "revision": 3},
        {"k": "b", "v": 20, "revision": 0},
    ]
    assert result.must_match.tolist() == [True]
    assert result.is_replaced.tolist() == [True]
    assert result.replaces.tolist() == [True, False]


def test_a_row_that_comes_and_goes_has_no_effect() -> None:
    result = net(changes((DELETE, "a", 0, 1), (INSERT, "a", 0, 1)))
    assert len(result.removed) == len(result.added) == 0


def test_a_deleted_row_that_comes_back_is_replaced() -> None:
    rows = pa.table({"k": [1, 1], "v": [5, 5], "at": [7, 8], "_change_type": [DELETE, INSERT]})
    result = net(rows, sequence=["at"])
    assert result.removed.to_pylist() == [{"k": 1, "v": 5, "at": 7}]
    assert result.added.to_pylist() == [{"k": 1, "v": 5, "at": 8}]
    assert result.must_match.tolist() == [False]  # a delete may have other values
    assert result.is_replaced.tolist() == result.replaces.tolist() == [True]


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("UNKNOWN_CHANGE", [("truncate", "a", 0, 1)]),
        ("INSERTED_TWICE", [(INSERT, "a", 0, 1), (INSERT, "a", 1, 2)]),
        ("PREIMAGE_NOT_PUBLISHED", [(INSERT, "a", 0, 1), (PRE, "a", 0, 2), (POST, "a", 1, 3)]),
        ("POSTIMAGE_ALONE", [(INSERT, "a", 0, 1), (POST, "a", 1, 2)]),
        ("POSTIMAGE_ALONE", [(POST, "a", 1, 2)]),
        ("DELETED_UNPUBLISHED", [(DELETE, "a", 0, 1), (DELETE, "a", 1, 1)]),
        ("PREIMAGE_ALONE", [(PRE, "a", 0, 1)]),
        ("NO_SEQUENCE", [(INSERT, "a", None, 1)]),
    ],
)
def test_contradictions(code: str, rows: list[Any]) -> None:
    with pytest.raises(ChangeStreamError) as error:
        net(changes(*rows))
    assert error.value.code == code
    assert "'a'" in error.value.got


def test_the_newest_revision_of_a_key_stays() -> None:
    rows = pa.table({"k": ["a", "b", "a"], "revision": [2, 0, 1], "v": [1.0, 2.0, 3.0]})
    assert net(rows).added.to_pylist() == rows.slice(0, 2).to_pylist()
    with pytest.raises(ChangeStreamError, match="REVISION_OUT_OF_STEP"):
        net(pa.table({"k": ["a", "a"], "revision": [2, 2]}))
    with pytest.raises(ChangeStreamError, match="REVISION_OUT_OF_STEP"):
        net(pa.table({"k": ["a", "a"], "v": [2, 3]}), sequence=())


@pytest.mark.parametrize(
    "wrong", [[1, None], None, [{"a": [None]}]], ids=["an item", "the list", "an item of an item"]
)
def test_a_sequence_has_no_null_at_any_depth(wrong: Any) -> None:
    is_nested = isinstance(wrong, list) and isinstance(wrong[0], dict)
    items = pa.struct([("a", pa.list_(pa.int64()))]) if is_nested else pa.int64()
    good: Any = [{"a": [1]}] if is_nested else [1, 2]
    for values, is_right in (([good, [], good], True), ([good, [], wrong], False)):
        rows = pa.table({"k": [1, 2, 3], "s": pa.array(values, pa.list_(items))})
        if is_right:
            assert len(compute_net(rows, key=["k"], sequence=["s"]).added) == 3
        else:
            with pytest.raises(ChangeStreamError, match="NO_SEQUENCE"):
                compute_net(rows, key=["k"], sequence=["s"])


def test_copies_of_a_multiset() -> None:
    nan = float("nan")
    rows = pa.table(
        {"x": [nan, nan, None, None, 1.0], "_change_type": [INSERT, INSERT, DELETE, POST, PRE]}
    )
    result = net(rows, key=None, sequence=())
    assert result.removed.to_pylist() == [{"x": 1.0}]
    assert result.removed_copies.tolist() == [1]
    assert len(result.added) == 1
    assert result.added_copies.tolist() == [2]


def test_rows_without_key_are_appended() -> None:
    rows = pa.table({"x": [1, 1]})
    assert net(rows, key=None, sequence=()).added is rows


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([[[("a", 1)]], None], pa.list_(pa.map_(pa.string(), pa.int64()))),
        pa.array([{"x": 1}, {"x": None}]),
        pa.array([None, None]),
        pa.array([float("nan"), 0.0]),
    ],
)
def test_a_digest_is_of_all_types(array: pa.Array) -> None:
    table = pa.table({"a": array, "n": [1, 2]})
    assert digest(table) == digest(table.take([1, 0]))
    assert digest(table) != digest(table.set_column(1, "n", pa.array([1, 3])))
    assert digest(table.slice(0, 0)) == (0, 0)
