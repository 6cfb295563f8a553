"""States of versions that a release does not know, older and newer, are refused by each operator."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from streamops.kernel.codec import decode, read_stored
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.kernel.frame import FRAME, MAGIC
from streamops.state.operators import FORMATS
from tests.golden.test_golden_frame import KNOWN

FRAMES = {
    path.stem: path.read_bytes()
    for path in sorted(Path(__file__).parent.glob("*.bin"))
    if path.read_bytes()[:4] == MAGIC  # others are payloads without a frame
}
NAMES = {"frame-v1": "frame", "sourcing.decide-v1": "sourcing.decide"}
"""Files that are not named like their layout: `sourcing.decide` has that of `process.per_key`."""

STORED = {read_stored(blob).layout: blob for blob in FRAMES.values()}
"""A stored state of each operator."""


def with_version(blob: bytes, version: int) -> bytes:
    """The frame as a release with another version of the format would have written it."""
    changed = blob[:6] + struct.pack("<H", version) + blob[8:]
    checksum = zlib.crc32(changed[32:], zlib.crc32(changed[:28]))
    return changed[:28] + struct.pack("<I", checksum) + changed[32:]


def test_there_is_a_state_of_every_operator() -> None:
    assert STORED.keys() == {*FORMATS, "doc.example"}


@pytest.mark.parametrize("name", FRAMES)
def test_every_stored_state_has_the_current_format_and_its_version_in_its_name(name: str) -> None:
    stored = read_stored(FRAMES[name])
    assert stored.frame == FRAME
    assert stored.format == FORMATS.get(stored.layout, KNOWN[0])
    assert name.split("-")[:2] == [NAMES.get(name, stored.layout), f"v{stored.version}"]


@pytest.mark.parametrize("operator", sorted(FORMATS))
def test_states_of_other_versions_are_refused(operator: str) -> None:
    blob, known = STORED[operator], FORMATS[operator]
    stored = read_stored(blob)
    assert decode(blob, known, stored.identity, stored.shards)
    for version in {*range(known.version), known.version + 1, 65_535}:
        other = with_version(blob, version)
        assert read_stored(other).format == StateFormat(operator, version)
        with pytest.raises(StateFormatError) as error:
            decode(other, known, stored.identity, stored.shards)
        assert error.value.code == "STATE_VERSION"
        assert error.value.got.endswith(f"{operator} version {version}")
        assert error.value.expected.endswith(f"{operator} version {known.version}")
        assert "start from a new checkpoint" in error.value.fix
