"""States and sketches of every operator and version, with random bits flipped: none is read."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from streamops.kernel.codec import read_stored
from streamops.kernel.errors import StateFormatError
from streamops.kernel.frame import MAGIC

FRAMES = [
    path
    for path in sorted(Path(__file__).parent.glob("*.bin"))
    if path.read_bytes().startswith(MAGIC)  # others are payloads without a frame
]
ALL = 1_000_000


def test_there_are_frames_of_every_operator() -> None:
    assert len(FRAMES) >= 40
    for path in FRAMES:
        assert read_stored(path.read_bytes()).body


@pytest.mark.parametrize(
    "flips", [10_000, pytest.param(ALL, marks=pytest.mark.exhaustive)], ids=["some", "a million"]
)
def test_no_damaged_frame_is_read(flips: int) -> None:
    """One to eight flipped bits, half of them in the header."""
    dice = random.Random(flips)
    codes: Counter[str] = Counter()
    blobs = [path.read_bytes() for path in FRAMES]
    for number in range(flips):
        blob = bytearray(blobs[number % len(blobs)])
        reach = 8 * (len(blob) if number % 2 else min(len(blob), 200))
        for bit in {dice.randrange(reach) for _ in range(dice.choice([1, 1, 2, 3, 8]))}:
            blob[bit // 8] ^= 1 << bit % 8
        try:
            read_stored(bytes(blob))
        except StateFormatError as error:
            codes[error.code] += 1
    assert codes.total() == flips, "a damaged frame was read"
    assert codes.keys() == {"STATE_CORRUPT"}
