"""Theta sketches as the tests make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Groups
from streamops.kernel.hashing import xxhash64
from streamops.sketches.core.samples import Samples
from streamops.sketches.core.theta import Theta
from tests.oracles import theta as oracle

SCHEMA = pa.schema([("user", pa.int64())])


def one_group(rows: int) -> Groups:
    return Groups(np.zeros(rows, np.int64), 1)


def rows_of(users: Iterable[int | None]) -> pa.Table:
    return pa.table({"user": pa.array(list(users), pa.int64())})


def state(users: Iterable[int | None], k: int = 16) -> list[pa.Array]:
    rows = rows_of(users)
    return Theta("user", k).update(one_group(len(rows)), rows)


def states(*groups: Iterable[int], k: int = 16) -> list[pa.Array]:
    """One state per group of users."""
    return joined([state(users, k) for users in groups])


def joined(parts: Sequence[list[pa.Array]]) -> list[pa.Array]:
    return [pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True)]


def samples(*groups: Iterable[int], k: int = 16) -> Samples:
    return Samples.of(*states(*groups, k=k))


def sample(found: Samples, row: int = 0) -> oracle.Sample:
    """One of them, as the oracle has it."""
    ends = np.cumsum(found.sizes)
    hashes = found.hashes[ends[row] - found.sizes[row] : ends[row]].tolist()
    assert hashes == sorted(set(hashes))
    return oracle.Sample(frozenset(hashes), int(found.theta[row]))


def items(users: Iterable[int]) -> list[int]:
    """Users as the sketches of Apache and the oracle take them."""
    hashes: list[int] = xxhash64([pa.array(list(users), pa.int64())]).tolist()
    return hashes


def apache(users: Iterable[int], lg_k: int) -> Any:
    """Apache's sketch of the same users, cut to k hashes."""
    found = datasketches.update_theta_sketch(lg_k)
    for item in items(users):
        found.update(item)
    found.trim()
    return found.compact()
