"""Heavy hitters and count-min sketches that were written once are read for ever."""

from __future__ import annotations

import pytest

from streamops.kernel.codec import ipc_read
from tests.golden.frequency_sketches import SKETCHES, file_of, state, table


@pytest.mark.parametrize("name", SKETCHES)
def test_payloads_of_version_1_are_what_is_written_now(name: str) -> None:
    assert ipc_read(file_of(name).read_bytes()).equals(table(name))


@pytest.mark.parametrize("name", SKETCHES)
def test_payloads_of_version_1_are_the_sketches_of_their_items(name: str) -> None:
    stored = ipc_read(file_of(name).read_bytes()).column("payload").chunk(0)
    for row, (_, sketch, values) in enumerate(SKETCHES[name]()):
        assert (sketch.format.kind, sketch.format.version) == (name, 1)
        now, revived = state(sketch, values), sketch.revive(stored[row : row + 1])
        assert [item.to_pylist() for item in revived] == [item.to_pylist() for item in now]
