"""A sketch that was written once is read for ever."""

from __future__ import annotations

import pytest

from streamops.kernel.codec import ipc_read
from streamops.sketches.core.hyperloglog import HyperLogLog
from tests.golden.hll_sketches import CASES, FILE, state, table

STORED = ipc_read(FILE.read_bytes())


def test_payloads_of_version_1_are_what_is_written_now() -> None:
    assert STORED.equals(table())


@pytest.mark.parametrize("row", range(len(CASES)))
def test_payloads_of_version_1_are_the_sketches_of_their_items(row: int) -> None:
    (p, distinct), sketch = CASES[row], HyperLogLog("v", CASES[row][0])
    revived = sketch.revive(STORED.column("payload").chunk(0)[row : row + 1])
    now = state(p, distinct)
    assert [item.to_pylist() for item in revived] == [item.to_pylist() for item in now]
