"""A ledger entry as a list of integers, for targets whose transactions carry numbered identifiers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, replace

from streamops.sinks.core.ledger import Entry

_BYTES = 7  # fewer than the eight of a signed integer, so that none is negative


def to_integers(entry: Entry) -> list[int]:
    """Return the entry as integers: the length of its text in bytes, then seven bytes each.

    Examples
    --------
    >>> numbers = to_integers(Entry("query", 1, "run", 0, rows=2, digest=-7))
    >>> numbers[0], from_integers(dict(enumerate(numbers)).get)
    (33, Entry(query='query', generation=1, run='run', batch=0, rows=2, digest=-7, target='', target_id='', former=()))
    """
    text = json.dumps(astuple(entry), separators=(",", ":"), ensure_ascii=False).encode()
    chunks = (text[at : at + _BYTES] for at in range(0, len(text), _BYTES))
    return [len(text), *(int.from_bytes(chunk, "big") for chunk in chunks)]


def from_integers(read: Callable[[int], int | None]) -> Entry | None:
    """Return the entry of which `read` returns the integers by position.

    None if the first one is missing. Integers beyond the length are of a longer, older entry.
    """
    length = read(0)
    if length is None:
        return None
    text = b""
    for position, start in enumerate(range(0, length, _BYTES), 1):
        number = read(position)
        if number is None:
            return None
        text += number.to_bytes(min(_BYTES, length - start), "big")
    *values, former = json.loads(text)
    return replace(Entry(*values), former=tuple(former))
