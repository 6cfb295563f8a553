"""Heavy hitters and count-min sketches that were written once are read for ever."""

from __future__ import annotations

import pytest

from streamops.kernel.codec import ipc_read
from tests.golden.frequency_sketches import KINDS, file_of, state, table


@pytest.mark.parametrize("kind", KINDS)
def test_payloads_of_version_1_are_what_is_written_now(kind: str) -> None:
    assert ipc_read(file_of(kind).read_bytes()).equals(table(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_payloads_of_version_1_are_the_sketches_of_their_items(kind: str) -> None:
    stored = ipc_read(file_of(kind).read_bytes()).column("payload").chunk(0)
    for row, (_, sketch, values) in enumerate(KINDS[kind]()):
        assert (sketch.format.kind, sketch.format.version) == (kind, 1)
        now, revived = state(sketch, values), sketch.revive(stored[row : row + 1])
        assert [each.to_pylist() for each in revived] == [each.to_pylist() for each in now]
