"""Rows that Spark stores for a shard, and rows that it passes to its step. Workers import it early.

It imports nothing itself: see :mod:`streamops.spark.shard_processor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

StoredRow = tuple[int, int | None, int | None, int, str]
"""The fields of a stored state."""

Begin = Callable[[StoredRow | None, list[bytes]], StoredRow]
"""Put packs that were there before the first micro-batch into the stored state, if there is any."""

STATE_SCHEMA = "fingerprint bigint, watermark bigint, deadline bigint, entries bigint, blob string"
"""Flat types only; the blob is a frame of the kernel's codec, in base64.

The blob is text because Spark hands binary state to Python by appending it to a string builder byte
by byte: with 14 MB of state that was an eighth of the Java samples of a profile.
"""

SEGMENTS = "segments"
"""Name of the map state with the segments of a shard."""

SEGMENT_SCHEMAS = "number bigint", "blob string"
"""Its key and its value."""


def read_group(frames: Iterator[pd.DataFrame]) -> list[bytes]:
    """The packs of a group, empty ones included."""
    return [bytes(pack) for frame in frames for pack in frame["packed"]]
