"""Writes to a store that orders the writes of a key by a version, whatever order they arrive in.

A version is twice the sequence of a row. The lowest bit tells a delete from a row with the same sequence:
a delete of an operator has the ``revision`` of the row that it retracts, and comes after it; a captured
delete with the sequence of a row comes before it, as in ``changes.fold``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import DELETE, is_change_type
from streamops.kernel.columns import combine_chunks, value_codes
from streamops.kernel.groups import Ints

KEY, SEQUENCE, CHANGE, IS_TEXT, DOCUMENT = "key", "sequence", "change", "is_text", "document"
VERSION, DELETES = "version", "deletes"
_TEXT = pa.large_string()
OLDER, WRITTEN = "older", "written"
HIGHEST = (1 << 62) - 1
"""The highest sequence: stores have signed versions of 64 bits."""


class Again(str):
    """Why a row was not taken, and may be taken later."""

    __slots__ = ()


class Refused(str):
    """Why the target takes no row."""

    __slots__ = ()


class Tie(str):
    """The row of the same key and version that the store has, as it has it."""

    __slots__ = ()


def rank(row: str | Mapping[str, Any]) -> str:
    """What orders the rows of one key and version: of two, the one with the higher rank stays in every store.

    Examples
    --------
    >>> rank('{"b": 1.50, "a": "é"}') == rank({"a": "é", "b": "1.50"})
    True
    """
    found = parse_exactly(row) if isinstance(row, str) else row
    return json.dumps({**found, "_version": 0}, sort_keys=True)  # Redis has it in the row


def parse_exactly(text: str) -> Any:
    """The value of a text in JSON, with the digits of its numbers that have a fraction or an exponent."""
    return json.loads(text, parse_float=str)


@dataclass(frozen=True, slots=True)
class Writes:
    """The writes of some rows, and the rows that cannot be written.

    Parameters
    ----------
    latest : Table
        The latest write of each key: ``key``, ``version``, ``deletes``, ``document``.
    invalid : Table
        The other rows: ``reason``, ``row``.
    """

    latest: pa.Table
    invalid: pa.Table


def find_writes(
    rows: pa.RecordBatch, *, by_revision: bool, key_bytes: tuple[int, int] | None = None
) -> Writes:
    """Return the latest write of each key, and the rows that cannot be written.

    Of different rows with one key and sequence, all but the one with the highest rank cannot.

    Parameters
    ----------
    rows : RecordBatch
        Text of the key, sequence, change type, whether all text is UTF-8, and the row in JSON.
    by_revision : bool
        Whether a delete has the sequence of the row that it retracts.
    key_bytes : pair of int, optional
        The shortest and the longest key that the store takes.
    """
    sequence = pc.fill_null(rows.column(SEQUENCE), -1).to_numpy(zero_copy_only=False)
    faults = {
        "invalid_text": ~np.asarray(rows.column(IS_TEXT)),
        "unknown_change": ~is_change_type(rows.column(CHANGE)),
        "null_key": np.asarray(rows.column(KEY).is_null()),
        "null_sequence": np.asarray(rows.column(SEQUENCE).is_null()),
        "sequence_out_of_range": (sequence < 0) | (sequence > HIGHEST),
    }
    if key_bytes is not None:
        length = pc.fill_null(pc.binary_length(rows.column(KEY)), key_bytes[0])
        lengths = np.asarray(length)
        faults["key_length"] = (lengths < key_bytes[0]) | (lengths > key_bytes[1])
    reason = np.select([*faults.values()], [*faults], default="")
    deletes = np.asarray(pc.equal(rows.column(CHANGE), DELETE).fill_null(False))
    version = 2 * np.where(reason == "", sequence, 0) + (deletes == by_revision)
    content = pc.if_else(pa.array(deletes), None, rows.column(DOCUMENT))
    at = np.flatnonzero(reason == "")
    key = value_codes(rows.column(KEY).take(pa.array(at)))
    order = np.lexsort((version[at], key))
    at, key = at[order], key[order]
    ranked = _outranked(key, version[at], content.take(pa.array(at)))
    reason[at[ranked]] = "conflicting_sequence"
    at, key = np.delete(at, ranked), np.delete(key, ranked)
    is_last = np.append(key[1:] != key[:-1], True)[: len(at)]
    chosen = np.sort(at[is_last])
    columns = {
        KEY: rows.column(KEY),
        VERSION: pa.array(version),
        DELETES: pa.array(deletes),
        DOCUMENT: rows.column(DOCUMENT),
    }
    latest = {name: of.take(pa.array(chosen)) for name, of in columns.items()}
    wrong = np.flatnonzero(reason != "")
    invalid = {
        "reason": pa.array(reason[wrong], pa.string()),
        "row": rows.column(DOCUMENT).take(pa.array(wrong)),
    }
    return Writes(pa.table(latest), pa.table(invalid))


def _outranked(key: Ints, version: Ints, content: pa.Array) -> Ints:
    """Which rows, in the order of key and version, are not the one that stays of those with their key and version."""
    is_same = (key[1:] == key[:-1]) & (version[1:] == version[:-1])
    after = np.flatnonzero(is_same)
    differs = pc.not_equal(content.take(pa.array(after)), content.take(pa.array(after + 1)))
    if not pc.any(differs).as_py():
        return np.zeros(0, np.int64)
    # Such rows are few: only they become Python objects.
    is_tied = np.append(is_same, False) | np.append(False, is_same)
    group, tied = np.cumsum(np.append(True, ~is_same))[is_tied], np.flatnonzero(is_tied)
    ranks = [text and rank(text) for text in content.take(pa.array(tied)).to_pylist()]
    ranked = list(zip(group.tolist(), ranks, strict=True))
    best = dict(sorted(ranked, key=lambda pair: (pair[0], pair[1] or "")))
    return tied[[best[number] != of for number, of in ranked]]


def join_text(*parts: pa.Array | pa.ChunkedArray | str) -> pa.Array:
    """Concatenate columns and texts, row by row.

    Examples
    --------
    >>> join_text("<", pa.array(["a", "b"]), ">").to_pylist()
    ['<a>', '<b>']
    """
    large = [pa.scalar(p, _TEXT) if isinstance(p, str) else p.cast(_TEXT) for p in parts]
    return combine_chunks(pc.binary_join_element_wise(*large, pa.scalar("", _TEXT)))


def cut(sizes: Ints, *, rows: int, size: int) -> Iterator[slice]:
    """Cut rows into requests of at most so many rows and so many bytes. A larger row is one by itself.

    Examples
    --------
    >>> [(part.start, part.stop) for part in cut(np.array([4, 4, 9, 1, 1, 1]), rows=2, size=8)]
    [(0, 2), (2, 3), (3, 5), (5, 6)]
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start] - sizes[start]
        fits = int(np.searchsorted(ends, before + size, side="right"))
        stop = max(start + 1, min(start + rows, fits))
        yield slice(start, stop)
        start = stop


_UNITS = {"nanos": 1e-9, "micros": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_seconds(text: str) -> float:
    """Return the seconds of a time as OpenSearch writes it.

    Examples
    --------
    >>> parse_seconds("60s"), parse_seconds("1.5h"), parse_seconds("-1")
    (60.0, 5400.0, inf)
    """
    if text == "-1":
        return float("inf")
    found = re.fullmatch(r"([0-9.]+) *([a-z]+)", text.strip().lower())
    return float(found[1]) * _UNITS[found[2]] if found else 0.0
