"""The words of change streams, and what is done with them on columns."""

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

WORDS = pa.array([*CHANGE_TYPES, None, "upsert", ""])


def test_each_word_adds_or_takes_back_one_row_and_no_other_word_does() -> None:
    assert change_weights(WORDS).tolist() == [1, -1, 1, -1, 0, 0, 0]
    assert is_change_type(WORDS).tolist() == [True] * 4 + [False] * 3
    assert {
        w
        for w, n in zip(CHANGE_TYPES, change_weights(pa.array(CHANGE_TYPES)), strict=True)
        if n < 0
    } == set(RETRACTIONS)


def test_the_referee_knows_the_same_words() -> None:
    row = {"k": 1, "v": 1}
    pairs = [(changes.INSERT, 1), (changes.PREIMAGE, 1), (changes.POSTIMAGE, 2)]
    said = [{**row, "v": value, "_change_type": word} for word, value in pairs]
    assert fold(said, key="k") == [{"k": 1, "v": 2}]
    assert fold([*said, {"k": 1, "v": 2, "_change_type": changes.DELETE}], key="k") == []


def test_equal_rows_that_come_and_go_cancel_out() -> None:
    rows = pa.table({"k": ["a", "b", "a", "c", "b", "b"], "v": [1, 2, 1, None, 2, 2]})
    weight = np.array([1, 1, -1, -1, 1, 1])
    positions, net = changes.consolidate(key_codes(rows.columns, len(rows)), weight)
    assert (positions.tolist(), net.tolist()) == ([1, 3], [3, -1])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_nothing_changes_nothing(kind: pa.DataType) -> None:
    none = np.array([], np.int64)
    positions, net = changes.consolidate(none, change_weights(pa.array([], kind)))
    assert (len(positions), len(net)) == (0, 0)
