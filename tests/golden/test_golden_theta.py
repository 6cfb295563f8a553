"""A theta sketch that was written once is read for ever."""

from __future__ import annotations

import pytest

from streamops import sketches
from streamops.kernel.codec import ipc_read
from streamops.kernel.errors import SketchFormatError
from tests.golden.theta_sketches import CASES, FILE, OLD_FRAMES, state, table

STORED = ipc_read(FILE.read_bytes())


def test_sketches_of_version_1_are_what_is_written_now() -> None:
    assert STORED.equals(table())


@pytest.mark.parametrize("row", range(len(CASES)))
def test_sketches_of_version_1_are_those_of_their_items(row: int) -> None:
    stored = sketches.read(STORED.column("sketch")[row].as_py())
    assert stored.parameters == {"k": CASES[row][0]}
    now = state(*CASES[row])
    assert [item.to_pylist() for item in stored.states] == [item.to_pylist() for item in now]


@pytest.mark.parametrize("row", range(len(CASES)))
def test_payloads_are_those_of_the_first_frame_which_is_refused(row: int) -> None:
    old = ipc_read(OLD_FRAMES.read_bytes()).column("sketch")[row].as_py()
    with pytest.raises(SketchFormatError, match="SKETCH_CORRUPT"):
        sketches.read(old)
    # Its header had 12 bytes, kind, parameters, and 12 more bytes.
    begin = 24 + int.from_bytes(old[8:10], "little") + int.from_bytes(old[10:12], "little")
    assert STORED.column("sketch")[row].as_py().endswith(old[begin:])
