"""A theta sketch that was written once is read for ever."""

from __future__ import annotations

import pytest

from streamops import sketches
from streamops.kernel.codec import ipc_read
from tests.golden.theta_sketches import CASES, FILE, state, table

STORED = ipc_read(FILE.read_bytes())


def test_sketches_of_version_1_are_what_is_written_now() -> None:
    assert STORED.equals(table())


@pytest.mark.parametrize("row", range(len(CASES)))
def test_sketches_of_version_1_are_those_of_their_items(row: int) -> None:
    stored = sketches.read(STORED.column("sketch")[row].as_py())
    assert stored.parameters == {"k": CASES[row][0]}
    now = state(*CASES[row])
    assert [item.to_pylist() for item in stored.states] == [item.to_pylist() for item in now]
