"""Change types, and operations on their columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamops.changelog import change_types as changes
from streamops.changelog.change_types import (
    CHANGE_TYPES,
    RETRACTIONS,
    change_weights,
    is_change_type,
)
from streamops.kernel.columns import key_codes
from streamops.testing import fold

TYPES = pa.array([*CHANGE_TYPES, None, "upsert", ""])


def test_each_change_type_adds_or_retracts_one_row() -> None:
    assert change_weights(TYPES).tolist() == [1, -1, 1, -1, 0, 0, 0]
    assert is_change_type(TYPES).tolist() == [True] * 4 + [False] * 3
    assert {
        w
        for w, n in zip(CHANGE_TYPES, change_weights(pa.array(CHANGE_TYPES)), strict=True)
        if n < 0
    } == set(RETRACTIONS)


def test_the_test_kit_folds_the_same_change_types() -> None:
    row = {"k": 1, "v": 1}
    pairs = [(changes.INSERT, 1), (changes.PREIMAGE, 1), (changes.POSTIMAGE, 2)]
    stream = [{**row, "v": value, "_change_type": word} for word, value in pairs]
    assert fold(stream, key="k") == [{"k": 1, "v": 2}]
    assert fold([*stream, {"k": 1, "v": 2, "_change_type": changes.DELETE}], key="k") == []


def test_additions_and_retractions_of_equal_rows_cancel_out() -> None:
    rows = pa.table({"k": ["a", "b", "a", "c", "b", "b"], "v": [1, 2, 1, None, 2, 2]})
    weight = np.array([1, 1, -1, -1, 1, 1])
    positions, net = changes.consolidate(key_codes(rows.columns, len(rows)), weight)
    assert (positions.tolist(), net.tolist()) == ([1, 3], [3, -1])


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string()])
def test_no_changes_consolidate_to_none(dtype: pa.DataType) -> None:
    none = np.array([], np.int64)
    positions, net = changes.consolidate(none, change_weights(pa.array([], dtype)))
    assert (len(positions), len(net)) == (0, 0)
