"""Heavy hitters as payloads: what they keep, as bytes; all of them at once.

Normative description: ``docs/state-formats.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Ints
from streamops.sketches.core.itembytes import fits, measured, read, write
from streamops.sketches.core.layout import pieces, put, require, seen, whole
from streamops.sketches.core.sorting import ranges

__all__ = ["Parts", "read_payloads", "write_payloads"]

Parts = tuple[pa.Array, Ints, Ints, Ints, Ints]
"""The items of all states, how many each has, their counts; offset and count of each state."""

_HEAD = 20


def write_payloads(parts: Parts) -> pa.Array:
    """Count, offset, number of items; their counts; the items."""
    items, sizes, counts, offset, count = parts
    lengths = _HEAD + 8 * sizes + measured(items, sizes)
    data, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
    put(data, starts, count, "<i8")
    put(data, starts + 8, offset, "<i8")
    put(data, starts + 16, sizes, "<u4")
    put(data, ranges(starts + _HEAD, sizes, 8), counts, "<i8")
    write(data, starts + _HEAD + 8 * sizes, items, sizes)
    return pieces(data, lengths)


def read_payloads(payloads: pa.Array, kind: pa.DataType, counters: int, what: str) -> Parts:
    """The same again.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``: lengths do not fit.
    ArrowInvalid
        The items are no values of the type.
    """
    data, starts, lengths = whole(payloads)
    require(lengths >= _HEAD, what, f"at least {_HEAD} bytes")
    count, offset = seen(data, starts, "<i8"), seen(data, starts + 8, "<i8")
    sizes = seen(data, starts + 16, "<u4").astype(np.int64)
    require(sizes <= counters, what, f"at most {counters} items")
    require(lengths >= _HEAD + 8 * sizes, what, "a count for each item")
    counts = seen(data, ranges(starts + _HEAD, sizes, 8), "<i8")
    begin, room = starts + _HEAD + 8 * sizes, lengths - _HEAD - 8 * sizes
    require(fits(data, begin, room, sizes, kind), what, "items, and nothing else")
    return read(data, begin, sizes, kind), sizes, counts, offset, count
