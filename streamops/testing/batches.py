"""Micro-batches as a test writes them, made into tables of Spark's types."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError

if TYPE_CHECKING:
    import pandas as pd

    Batch: TypeAlias = pa.Table | pd.DataFrame | Sequence[Mapping[str, Any]]

__all__ = ["START", "at", "canonical", "schema_of", "to_table"]

_NEAR = 0.8  # of 1: "amuont" is "amount", and "left_id" is not "right_id"

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
"""Second 0 of :func:`at`: far from 1970, where Spark's watermark begins."""


def at(seconds: float = 0, micros: int = 0, *, since: dt.datetime = START) -> dt.datetime:
    """The instant so many seconds, and microseconds, after ``since``.

    Examples
    --------
    >>> at(10).isoformat(), at(10, -1).isoformat()
    ('2024-01-01T00:00:10+00:00', '2024-01-01T00:00:09.999999+00:00')
    """
    return since + dt.timedelta(seconds=seconds, microseconds=micros)


def canonical(schema: pa.Schema) -> pa.Schema:
    """The same columns as Spark hands them to Python: instants in UTC, no large variants.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``, or ``TYPE_NOT_CARRIED``: a type that Spark does not have.
    """
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise SchemaError(
            "DUPLICATE_COLUMN",
            "a micro-batch has more than one column of the same name",
            where="streamops.testing",
            got=", ".join(twice),
            expected="unique column names",
            fix="rename one of them",
        )
    try:
        return to_arrow_schema(from_arrow_schema(schema, prefer_timestamp_ntz=True), timezone="UTC")
    except Exception as error:  # PySpark's own error type moved between releases
        raise SchemaError(
            "TYPE_NOT_CARRIED",
            "a column has a type that Spark does not have",
            where="streamops.testing",
            got=str(schema).replace("\n", ", "),
            expected="types that Spark carries as Arrow",
            fix="cast the column; unsigned integers to signed ones",
        ) from error


def schema_of(batches: Iterable[Batch], schema: pa.Schema | None) -> pa.Schema:
    """Columns of a script: as given, as of its first table, or as its rows suggest.

    Raises
    ------
    SpecError
        ``NO_SCHEMA``: nothing tells the columns. ``NOT_A_BATCH``: a row, say, that is in no list.
    SchemaError
        ``COLUMN_MISSPELT``: a name that is near to that of another column, which its rows leave out.
    """
    if schema is not None:
        return canonical(schema)
    rows: list[Mapping[str, Any]] = []
    for batch in batches:
        if not _is_rows(batch):
            return canonical(_arrow(batch, None).schema)
        rows.extend(batch)
    names = list(dict.fromkeys(name for row in rows for name in row))
    _refuse_misspelt(names, rows)
    if not names:
        raise SpecError(
            "NO_SCHEMA",
            "nothing tells the columns of these micro-batches",
            where="streamops.testing",
            got="micro-batches without rows",
            expected="a row, a table, or schema=...",
            fix='schema=pa.schema([("ts", pa.timestamp("us", tz="UTC")), ...])',
        )
    columns = {name: pa.array([row.get(name) for row in rows]) for name in names}
    return canonical(pa.table(columns).schema)


def to_table(batch: Batch, schema: pa.Schema) -> pa.Table:
    """One micro-batch with exactly these columns.

    A row may leave columns out (they are null), and may not bring others.

    Raises
    ------
    ColumnNotFound
        A column that the script does not have.
    SpecError
        ``NOT_A_BATCH``.
    SchemaError
        ``BATCH_TYPE``: a column that cannot be brought to its type without loss.
    """
    names = list(dict.fromkeys(name for row in batch for name in row)) if _is_rows(batch) else None
    try:
        table = _arrow(batch, schema)
        for name in table.column_names if names is None else names:
            if name not in schema.names:
                raise ColumnNotFound(
                    name, schema.names, where="streamops.testing", role="a column of a micro-batch"
                )
        missing = [name for name in schema.names if name not in table.column_names]
        if missing:
            raise ColumnNotFound(
                missing[0], table.column_names, where="streamops.testing", role="schema"
            )
        return table.select(schema.names).cast(schema).combine_chunks()
    except pa.ArrowException as error:
        raise SchemaError(
            "BATCH_TYPE",
            "a micro-batch does not have the types of the script",
            where="streamops.testing",
            got=str(error),
            expected=str(schema).replace("\n", ", "),
            fix="cast the column, or pass the schema that is meant: schema=...",
        ) from error


def _refuse_misspelt(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a name that is near to another one, and stands in other rows than that.

    It would be a column of its own, and the one that was meant a null in these rows.
    """
    having = {name: {at for at, row in enumerate(rows) if name in row} for name in names}
    # Names that differ in their numbers are two columns: "price_1", "price_2".
    words = {name: re.sub(r"\d+", "#", name) for name in names}
    for name in sorted(reversed(names), key=lambda name: len(having[name])):
        others = {
            other.casefold(): other
            for other in names
            if words[other] != words[name] and not having[other] & having[name]
        }
        for near in difflib.get_close_matches(name.casefold(), others, n=1, cutoff=_NEAR):
            raise SchemaError(
                "COLUMN_MISSPELT",
                f"no row that has {name!r} has {others[near]!r}: this looks like one column",
                where="streamops.testing",
                got=f"a row with {', '.join(rows[min(having[name])])}",
                expected=f"one of: {', '.join(each for each in names if each != name)}",
                fix=f"did you mean {others[near]!r}? Where both are columns, say so: schema=...",
            )


def _is_rows(batch: Any) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Whether it is a list of dicts, and no table; an error where it is neither."""
    if isinstance(batch, Sequence) and all(isinstance(row, Mapping) for row in batch):
        return True
    import pandas as pd

    if isinstance(batch, pa.Table | pd.DataFrame):
        return False
    is_row = isinstance(batch, Mapping)
    raise SpecError(
        "NOT_A_BATCH",
        "a row stands where a micro-batch should" if is_row else "this is no micro-batch",
        where="streamops.testing",
        got=f"{batch!r} of type {type(batch).__name__}",
        expected="a list of dicts, a Table or a pandas DataFrame for each micro-batch",
        fix="a list of lists of rows: [[{...}, {...}], [{...}]]",
    )


def _arrow(batch: Any, schema: pa.Schema | None) -> pa.Table:
    if isinstance(batch, pa.Table):
        return batch
    if _is_rows(batch):
        return pa.Table.from_pylist(list(batch), schema)
    return pa.Table.from_pandas(batch, preserve_index=False).replace_schema_metadata(None)
