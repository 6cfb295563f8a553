"""One checksum for each of many byte strings, of any length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.groups import Ints
from streamops.kernel.hashing import xxhash64
from streamops.sketches.core.buffers import binary_of, bytes_of, lengths_of

__all__ = ["checksums", "seed_of"]

# Longer ones are hashed in pieces: many of them at once, instead of one word after another.
_PIECE = 1024

# Pieces at a time: what is computed of them stays in the processor's cache, twice as fast.
_AT_ONCE = 1 << 12


def seed_of(header: bytes) -> int:
    """The hash of a header, which seeds that of what stands behind it."""
    return int(xxhash64([pa.array([header], pa.binary())])[0])


def checksums(payloads: pa.Array, seed: int) -> npt.NDArray[np.uint64]:
    """XXH64 of each; of a long one, of the hashes of its pieces, until these are short."""
    lengths = lengths_of(payloads)
    long = lengths > _PIECE
    if not long.any():
        return xxhash64([payloads], seed=seed).view(np.uint64)
    result = np.empty(len(payloads), np.uint64)
    short = payloads.filter(pa.array(~long))
    result[~long] = xxhash64([short], seed=seed).view(np.uint64)
    hashes = _digests(payloads.filter(pa.array(long)), lengths[long], seed)
    result[long] = checksums(hashes, seed)
    return result


def _digests(payloads: pa.Array, lengths: Ints, seed: int) -> pa.Array:
    """The hashes of the pieces of each, one behind another."""
    counts = -(-lengths // _PIECE)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(np.cumsum(lengths) - lengths, counts) + _PIECE * within
    pieces = binary_of(np.append(starts, lengths.sum()), bytes_of(payloads)[1])
    hashes = np.concatenate(
        [
            xxhash64([pieces[at : at + _AT_ONCE]], seed=seed)
            for at in range(0, len(pieces), _AT_ONCE)
        ]
    ).astype("<i8")
    return binary_of(8 * np.append(0, np.cumsum(counts)), hashes.view(np.uint8))
