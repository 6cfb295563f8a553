"""What a Delta table that others created requires of its rows, and which features deltalake does not write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WRITTEN = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
}
"""Features that deltalake writes, or that can be switched off without being removed."""

_LEGACY_IDENTITY = 6
"""The version of the protocol whose writers fill identity columns."""

_NULLS = pa.array(["", "__HIVE_DEFAULT_PARTITION__"])
"""Texts that are null as the value of a partition."""

_CHARS = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata of Spark: the type of a text column that was declared with a length."""


def unsupported_features(
    protocol: Any, settings: Mapping[str, str], has_deletion_vectors: bool
) -> list[str]:
    """Return the features of a table that this sink does not write.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> protocol = SimpleNamespace(min_writer_version=7, writer_features=["rowTracking"])
    >>> unsupported_features(protocol, {"delta.columnMapping.mode": "name"}, False)
    ['columnMapping', 'rowTracking']
    """
    features = protocol.writer_features
    if features is None:
        features = ["identityColumns"] if protocol.min_writer_version >= _LEGACY_IDENTITY else []
    found = set(features) - _WRITTEN
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.add("columnMapping")
    if has_deletion_vectors or settings.get("delta.enableDeletionVectors", "false") == "true":
        found.add("deletionVectors")
    return sorted(found)


def remedies(features: Iterable[str]) -> str:
    """How to remove features that are not written, each after "; or ". Empty if none is known."""
    texts = {
        "deletionVectors": "ALTER TABLE ... SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'), then "
        "REORG TABLE ... APPLY (PURGE)"
    }
    drop = "ALTER TABLE ... DROP FEATURE {}, after SET TBLPROPERTIES has switched it off"
    return "".join(f"; or {texts.get(name, drop.format(name))}" for name in features)


def must_be_given(fields: Iterable[Any]) -> list[str]:
    """Columns that rows must have: the ones that cannot be null, or that deltalake does not compute."""
    return [
        field.name
        for field in fields
        if not field.nullable or "delta.generationExpression" in (field.metadata or {})
    ]


def find_unfit(
    rows: pa.Table, fields: Iterable[Any], partitions: Iterable[str]
) -> tuple[str, str, str] | None:
    """Return a column whose values the table does not take, what they are, and what it takes.

    Parameters
    ----------
    rows : Table
        Rows in the types of the table.
    fields : iterable of Field
        The columns of the table.
    partitions : iterable of str
        The columns by which its files are partitioned.
    """
    for field in fields:
        declared = (field.metadata or {}).get(_CHARS)
        if declared is None or field.name not in rows.column_names:
            continue
        length = re.fullmatch(r"varchar\((\d+)\)", str(declared))
        if length is None:
            return field.name, "text", f"{declared}, which Spark fills with blanks or checks"
        longest = pc.max(pc.utf8_length(rows.column(field.name))).as_py() or 0
        if longest > int(length[1]):
            return field.name, f"text of {longest} characters", str(declared)
    for name in partitions:
        if name not in rows.column_names:
            continue
        values = rows.column(name)
        if not _is_exact_in_a_path(values.type):
            expected = "a partition by an integer, date, boolean, timestamp_ntz or text"
            return name, f"a partition by {values.type}, whose values have no exact text", expected
        if pa.types.is_string(values.type) and pc.any(pc.is_in(values, _NULLS)).as_py():
            return name, "a text that stands for null as the value of a partition", "other text"
    return None


def _is_exact_in_a_path(dtype: pa.DataType) -> bool:
    """Whether deltalake writes values of partitions so that every reader finds the same ones.

    It writes escapes for bytes and does not read them, and two signs in negative decimals. A timestamp has no
    time zone there, and Spark reads it in that of the session. Floats have names of files of any length.
    """
    return bool(
        pa.types.is_integer(dtype)
        or pa.types.is_boolean(dtype)
        or pa.types.is_date32(dtype)
        or pa.types.is_string(dtype)
        or (pa.types.is_decimal(dtype) and dtype.scale == 0)
        or dtype == pa.timestamp("us")
    )
