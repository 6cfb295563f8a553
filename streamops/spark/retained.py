"""Decoded state that a worker retains from one micro-batch to the next."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

Key = tuple[str, int, int]
"""The plan, the shard, and the number of a segment; 0 for the state itself."""

STATE = 0
"""In place of the number of a segment."""

_SECONDS = 600
"""How long something is retained that no step uses: that of queries that were stopped."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What was decoded, from what, the bytes of both, and when a step used it."""

    stored: str | int
    decoded: Any
    size: int
    used: float


_entries: OrderedDict[Key, _Entry] = OrderedDict()
"""The least recently used first."""


def recall(key: Key, stored: str | int) -> Any:
    """What was decoded, or None if this worker did not retain it.

    ``stored`` is the blob, or its checksum. Another worker may have processed the shard in between, or a
    micro-batch may have been repeated, so it is compared.
    """
    found = _entries.get(key)
    if found is None or found.stored != stored:
        return None
    _entries[key] = replace(found, used=time.monotonic())
    _entries.move_to_end(key)
    return found.decoded


def retain(key: Key, stored: str | int, decoded: Any, size: int, *, limit: int) -> None:
    """Retain something for the next step of its shard, within ``limit`` bytes per plan."""
    _entries.pop(key, None)
    plan, now = key[0], time.monotonic()
    # Of too many states some are retained. If the oldest one made room, none would be there in time.
    if size + sum(of.size for (of_plan, *_), of in _entries.items() if of_plan == plan) <= limit:
        _entries[key] = _Entry(stored, decoded, size, now)
    while _entries and next(iter(_entries.values())).used < now - _SECONDS:
        _entries.popitem(last=False)


def forget_segments(plan: str, shard: int, numbers: Collection[int]) -> None:
    """Release the segments of a shard but those of these numbers."""
    for key in [key for key in _entries if key[:2] == (plan, shard)]:
        if key[2] != STATE and key[2] not in numbers:
            del _entries[key]


def forget_all() -> None:
    """Release everything, as in a new worker."""
    _entries.clear()
