"""Key tables and columns for the tests of shredding, without Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamops.erasure.core.shredding import (
    Columns,
    Rejected,
    ShreddedColumn,
    WrappingKey,
    shred_columns,
    unshred_columns,
)
from streamops.erasure.core.values import ValueType

ENTRY = pa.struct([("version", pa.int64()), ("key", pa.binary())])
Entries = Mapping[str, Sequence[tuple[int, bytes | None]]]


def key_of(subject: str, version: int = 1) -> bytes:
    """A key that is the same in each run."""
    return hashlib.sha256(f"{subject} {version}".encode()).digest()


def entries_of(*subjects: str, version: int = 1) -> Entries:
    return {subject: [(version, key_of(subject, version))] for subject in subjects}


def columns_of(
    rejected: Rejected = "null", wrapping_key: WrappingKey | None = None, **dtypes: pa.DataType
) -> Columns:
    columns = []
    for name, dtype in dtypes.items():
        of = ValueType.of(dtype)
        assert of is not None
        columns.append(ShreddedColumn(name, name, of))
    return Columns("erasure.test", tuple(columns), rejected, wrapping_key)


def joined(subjects: Sequence[str | None], entries: Entries) -> tuple[pa.Array, pa.Array]:
    """The subjects, and their entries in the key table, as the join on Spark returns them."""
    versions = [
        None
        if subject is None or subject not in entries
        else [{"version": version, "key": key} for version, key in entries[subject]]
        for subject in subjects
    ]
    return pa.array(subjects, pa.string()), pa.array(versions, pa.list_(ENTRY))


def shred(
    spec: Columns, subjects: Sequence[str | None], entries: Entries, **values: Any
) -> tuple[list[pa.Array], list[Any]]:
    """Shredded columns, and what was rejected of each row."""
    arrays = [
        values[c.name]
        if isinstance(values[c.name], pa.Array)
        else pa.array(values[c.name], c.type.dtype)
        for c in spec.columns
    ]
    found, rejected = shred_columns(spec, *joined(subjects, entries), arrays)
    return found, rejected.to_pylist()


def unshred(
    spec: Columns, subjects: Sequence[str | None], entries: Entries, **values: Any
) -> tuple[list[pa.Array], list[Any]]:
    arrays = [
        values[c.name]
        if isinstance(values[c.name], pa.Array)
        else pa.array(values[c.name], pa.binary())
        for c in spec.columns
    ]
    found, rejected = unshred_columns(spec, *joined(subjects, entries), arrays)
    return found, rejected.to_pylist()


def reasons(rejected: Sequence[Any]) -> list[str | None]:
    return [None if entry is None else entry["reason"] for entry in rejected]
