"""States of versions that a release does not know, older and newer, are refused by each operator."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from streamops.kernel.codec import decode, read_stored
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.state.operators import FORMATS

FOLDER = Path(__file__).parent


def newest() -> dict[str, bytes]:
    """A stored state of each operator, of the version that is written now."""
    found: dict[str, bytes] = {}
    for path in sorted(FOLDER.glob("*.bin")):
        blob = path.read_bytes()
        if blob[:4] == b"SOPS" and read_stored(blob, where="test").layout in FORMATS:
            stored = read_stored(blob, where="test")
            if stored.format == FORMATS[stored.layout]:
                found[stored.layout] = blob
    return found


STORED = newest()


def with_version(blob: bytes, version: int) -> bytes:
    """The frame as a release with another version of the format would have written it."""
    changed = blob[:6] + struct.pack("<H", version) + blob[8:]
    checksum = zlib.crc32(changed[32:], zlib.crc32(changed[:28]))
    return changed[:28] + struct.pack("<I", checksum) + changed[32:]


def test_there_is_a_state_of_every_operator() -> None:
    assert sorted(STORED) == sorted(FORMATS)


@pytest.mark.parametrize("operator", sorted(STORED))
def test_states_of_other_versions_are_refused(operator: str) -> None:
    blob, known = STORED[operator], FORMATS[operator]
    stored = read_stored(blob, where="test")
    assert decode(blob, known, stored.identity, stored.shards, where="test")
    for version in {*range(known.version), known.version + 1, 65_535} - {known.segmented}:
        other = with_version(blob, version)
        assert read_stored(other, where="test").format == StateFormat(operator, version)
        with pytest.raises(StateFormatError) as error:
            decode(other, known, stored.identity, stored.shards, where="test")
        assert error.value.code == "STATE_VERSION"
        assert error.value.got.endswith(f"{operator} version {version}")
        assert error.value.expected.endswith(f"{operator} version {known.version}")
        assert "start from a new checkpoint" in error.value.fix
