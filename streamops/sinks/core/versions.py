"""Writes to a store that orders the writes of a key by a version, whatever order they arrive in.

A version is twice the sequence of a row. The lowest bit tells a delete from a row with the same sequence:
a delete of an operator has the ``revision`` of the row that it retracts, and comes after it; a captured
delete with the sequence of a row comes before it, as in ``changes.fold``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
    is_valid = reason == ""
    deletes = np.asarray(pc.equal(rows.column(CHANGE), DELETE).fill_null(False))
    version = 2 * np.where(is_valid, sequence, 0) + (deletes == by_revision)
    at = np.flatnonzero(is_valid)
    key = value_codes(rows.column(KEY).take(pa.array(at)))
    order = np.lexsort((version[at], key))
    is_last = np.append(key[order][1:] != key[order][:-1], True)[: len(at)]
    chosen = np.sort(at[order[is_last]])
    columns = {
        KEY: rows.column(KEY),
        VERSION: pa.array(version),
        DELETES: pa.array(deletes),
        DOCUMENT: rows.column(DOCUMENT),
    }
    latest = {name: of.take(pa.array(chosen)) for name, of in columns.items()}
    wrong = np.flatnonzero(~is_valid)
    invalid = {"reason": reason[wrong], "row": rows.column(DOCUMENT).take(pa.array(wrong))}
    return Writes(pa.table(latest), pa.table(invalid))


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
