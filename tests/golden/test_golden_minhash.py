"""A sketch of a set that was written once is read for ever."""

from __future__ import annotations

import pytest

from streamops.kernel.codec import ipc_read
from streamops.sketches.core.minhash import MinHash
from tests.golden.minhash_sketches import CASES, FILE, state, table

STORED = ipc_read(FILE.read_bytes())


def test_payloads_of_version_1_are_what_is_written_now() -> None:
    assert STORED.equals(table())


@pytest.mark.parametrize("row", range(len(CASES)))
def test_payloads_of_version_1_are_the_sketches_of_their_items(row: int) -> None:
    case = CASES[row]
    revived = MinHash("v", *case[:3]).revive(STORED.column("payload").chunk(0)[row : row + 1])
    assert revived[0].to_pylist() == state(*case)[0].to_pylist()
