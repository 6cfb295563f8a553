"""Emit the difference between two sets of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamops.changelog.emit import EmittedChanges, emit_changes, order_changes
from streamops.kernel.groups import Ids


def codes(*keys: int) -> Ids:
    return np.array(keys, np.int64)


def rows(
    changes: EmittedChanges, before: Sequence[object], after: Sequence[object]
) -> list[tuple[object, object, int]]:
    """Change type, value and revision of each emitted row."""
    (values,) = changes.take([pa.array(before, pa.int64())], [pa.array(after, pa.int64())])
    types, revisions = changes.change_type.to_pylist(), changes.revision.tolist()
    return list(zip(types, values.to_pylist(), revisions, strict=True))


def test_rows_are_deleted_updated_and_inserted_and_equal_rows_are_not_emitted() -> None:
    before, after = [1, 2, 3], [2, 5, 9]
    changes = emit_changes(
        [pa.array(before)],
        [pa.array(after)],
        (codes(7, 8, 9), codes(8, 9, 10)),
        (codes(4, 4, 4), codes(0, 0, 1)),
    )
    assert rows(changes, before, after) == [
        ("delete", 1, 4),
        ("update_preimage", 3, 4),
        ("update_postimage", 5, 5),
        ("insert", 9, 1),
    ]
    assert changes.is_emitted.tolist() == [False, True, True]
    assert changes.after.tolist() == [4, 5, 1]
    assert (changes.inserts, changes.updates, changes.deletes) == (1, 1, 1)


def test_null_equals_null_and_a_value_differs_from_null() -> None:
    before, after = pa.array([None, None], pa.int64()), pa.array([None, 1], pa.int64())
    changes = emit_changes([before], [after], (codes(1, 2), codes(1, 2)))
    assert changes.is_emitted.tolist() == [False, True]


def test_an_equal_row_can_be_emitted_again() -> None:
    value = pa.array([1, 2])
    again = np.array([True, False])
    changes = emit_changes([value], [value], (codes(1, 2), codes(1, 2)), reemit=again)
    assert changes.change_type.to_pylist() == ["update_preimage", "update_postimage"]


def test_a_row_without_predecessor_is_an_insert_though_it_is_to_be_emitted_again() -> None:
    changes = emit_changes([], [], (codes(), codes(1)), reemit=np.array([True]))
    assert changes.change_type.to_pylist() == ["insert"]


def test_preimages_can_be_left_out_and_the_revision_is_raised_in_any_case() -> None:
    before, after = [1, 1], [2, 1]
    changes = emit_changes(
        [pa.array(before)], [pa.array(after)], (codes(1, 2), codes(1, 2)), preimages=False
    )
    assert rows(changes, before, after) == [("update_postimage", 2, 1)]


def test_the_order_can_be_given() -> None:
    before, after = [1, 2], [3, 4]
    changes = emit_changes(
        [pa.array(before)],
        [pa.array(after)],
        (codes(1, 2), codes(1, 2)),
        order=(codes(2, 0), codes(3, 1)),
    )
    assert [value for _, value, _ in rows(changes, before, after)] == [2, 4, 1, 3]


def test_nothing_is_emitted_for_no_rows() -> None:
    changes = emit_changes([], [], (codes(), codes()))
    assert len(changes.row) == len(changes.change_type) == 0


def test_the_changes_of_a_multiset_are_ordered_by_type_and_repeated_by_weight() -> None:
    row, change_type = order_changes(codes(2, -1, 1, -2), np.array([False, True, True, False]))
    assert row.tolist() == [3, 3, 1, 2, 0, 0]
    assert change_type.to_pylist() == [
        "delete",
        "delete",
        "update_preimage",
        "update_postimage",
        "insert",
        "insert",
    ]
