"""Running values replayed without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.contract import Counts
from streamops.testing import assert_rows, replay
from tests.sketches.operators import counted


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("shards", [None, 1, 5])
def test_a_script_is_replayed_over_any_number_of_shards(restart: bool, shards: Any) -> None:
    script = [
        [{"k": "a", "v": 1}, {"k": "b", "v": None}],
        [],
        [{"k": "b", "v": None}, {"k": "a", "v": 4}, {"k": "c", "v": 4}],
    ]
    first, nothing, last = replay(counted(by="k"), script, restart=restart, shards=shards)
    assert [(row["k"], row["n"]["estimate"]) for row in sorted(first.rows, key=str)] == [
        ("a", 1),
        ("b", 0),
    ]
    assert (nothing.rows, nothing.late_rows, nothing.counts) == ([], [], Counts())
    assert (nothing.state_rows, nothing.state_bytes) == (first.state_rows, first.state_bytes)
    one, two = ({"estimate": n, "lower": n, "upper": n} for n in (1, 2))
    assert_rows(
        last.rows, [{"k": "a", "n": two, "revision": 1}, {"k": "c", "n": one, "revision": 0}]
    )
    assert last.counts == Counts(rows=3, results=1, corrections=1)
    assert (last.batch, last.state_rows, last.watermark) == (2, 3, None)


def test_what_is_ignored_is_counted_as_rejected() -> None:
    only_one = counted(by="k", max_keys=1, shards=1, when_full="ignore_new")
    table = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    (result,) = replay(only_one, [table])
    assert result.counts is not None
    assert (len(result.rows), result.counts.rejected + result.counts.rows) in {(1, 4), (1, 5)}
