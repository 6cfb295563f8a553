"""A script: operators and the micro-batches for them, converted to tables of Spark's types."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from streamops.kernel.columns import column_not_found
from streamops.kernel.errors import SchemaError, SpecError, StreamopsError
from streamops.kernel.time import Duration
from streamops.kernel.values import Refused, UnsupportedType, keeps_values, to_column
from streamops.kernel.versions import in_utc
from streamops.spark.operator import Operator
from streamops.testing import conditions

if TYPE_CHECKING:
    import pandas as pd

    Batch: TypeAlias = pa.Table | pd.DataFrame | Sequence[Mapping[str, Any]]
    Inputs: TypeAlias = Batch | tuple[Batch | None, Batch | None]

Chain: TypeAlias = "Operator | Sequence[Operator]"
Delays: TypeAlias = "Duration | tuple[Duration | None, Duration | None] | None"
Schemas: TypeAlias = "pa.Schema | tuple[pa.Schema | None, ...] | None"

_CUTOFF = 0.8  # similarity of names: "amuont" is "amount", and "left_id" is not "right_id"

_ON_A_FRAME = re.compile(r"\b(df|left|right)\.\w")

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
"""Second 0 of :func:`at`: far from 1970, where Spark's watermark begins."""


def at(seconds: float = 0, micros: int = 0, *, since: dt.datetime = START) -> dt.datetime:
    """The instant this many seconds and microseconds after ``since``.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.

    Examples
    --------
    >>> at(10).isoformat(), at(10, -1).isoformat()
    ('2024-01-01T00:00:10+00:00', '2024-01-01T00:00:09.999999+00:00')
    """
    try:
        return since + dt.timedelta(seconds=seconds, microseconds=micros)
    except (TypeError, ValueError, OverflowError) as error:
        raise conditions.NOT_AN_INSTANT.error(got=f"at({seconds!r:.40}, {micros!r:.40})") from error


def expand(operator: Chain) -> list[Operator]:
    """The operators of a chain, follow-up operators included. Only the first may have two inputs."""
    chain: list[Any] = list(operator) if isinstance(operator, list | tuple) else [operator]
    operators: list[Operator] = []
    for position, item in enumerate(chain or [None]):
        is_operator = isinstance(item, Operator) and item.core is not None
        if not is_operator or (position and len(item.spec.times) > 1):
            raise conditions.NOT_A_CHAIN.error(got=repr(item))
        operators += item.steps
    return operators


@contextmanager
def remedies_for_a_script() -> Iterator[None]:
    """Let a remedy that changes a frame say what to change in a script, which has none."""
    try:
        yield
    except StreamopsError as error:
        if not _ON_A_FRAME.search(error.fix):
            raise
        instant = ", an instant as at(5)" if "timestamp" in str(error.expected) else ""
        rows = f"write the rows of the script as the operator reads them{instant}"
        if _ON_A_FRAME.match(error.fix.removeprefix("cast it: ")):
            raise error.replace(
                fix=f"{rows}; in a query, before the operator: {error.fix}"
            ) from None
        raise error.replace(fix=f"{error.fix}; or {rows}") from None


def require_batches(batches: Any) -> list[Any]:
    """The micro-batches of a script as a list.

    Raises
    ------
    SpecError
        ``INVALID_ROWS``: it is one value, such as an operator or one table.
    """
    is_one = isinstance(batches, str | bytes | Mapping | Operator) or hasattr(batches, "columns")
    if is_one or not isinstance(batches, Iterable):
        raise conditions.NOT_BATCHES.error(got=f"an object of type {type(batches).__name__}")
    return list(batches)


def per_input(operator: Operator, watermark: Delays) -> tuple[Duration | None, ...]:
    """The delay of the frame's watermark for each input: one, a pair, or one for both."""
    if isinstance(watermark, tuple) and len(operator.spec.times) > 1:
        if len(watermark) != 2:
            raise _not_a_pair("watermark", watermark, 'one delay, or a pair: ("5 seconds", None)')
        return watermark
    delay: Any = watermark
    return (delay,) * len(operator.spec.times)


def infer_schemas(
    operator: Operator, batches: Sequence[Any], schema: Schemas
) -> tuple[pa.Schema, ...]:
    """The columns of each input of a script, see :func:`infer_schema`."""
    if len(operator.spec.times) == 1:
        single: Any = schema
        return (infer_schema(batches, single),)
    given: Any = (None, None) if schema is None else schema
    if not isinstance(given, tuple) or len(given) != 2:
        raise _not_a_pair("schema", given, "a pair of schemas: schema=(left, right)")
    for batch in batches:
        _require_pair(batch)
    return tuple(
        infer_schema([batch[side] for batch in batches if batch[side] is not None], given[side])
        for side in (0, 1)
    )


def to_tables(batch: Any, schemas: tuple[pa.Schema, ...]) -> tuple[pa.Table, ...]:
    """Convert each input of a micro-batch, see :func:`to_table`. None is an input without rows."""
    if len(schemas) == 1:
        return (to_table(batch, schemas[0]),)
    _require_pair(batch)
    return tuple(
        schema.empty_table() if rows is None else to_table(rows, schema)
        for rows, schema in zip(batch, schemas, strict=True)
    )


def _require_pair(batch: Any) -> None:
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise _not_a_pair("a micro-batch", batch, "a pair: (rows of the left, rows of the right)")


def _not_a_pair(what: str, got: Any, expected: str) -> SpecError:
    return conditions.NOT_A_PAIR.error(thing=what, expected=expected, got=f"{got!r:.100}")


def canonical(schema: pa.Schema) -> pa.Schema:
    """The same columns with the types in which Spark passes them to Python.

    Timestamps are in UTC, and there are no large variants.
    """
    duplicates = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if duplicates:
        raise conditions.DUPLICATE_COLUMN.error(got=", ".join(duplicates))
    try:
        return to_arrow_schema(
            from_arrow_schema(schema, prefer_timestamp_ntz=True), **in_utc(to_arrow_schema)
        )
    except Exception as error:  # the class of this error differs between releases of PySpark
        raise conditions.TYPE_NOT_CARRIED.error(got=str(schema).replace("\n", ", ")) from error


def infer_schema(batches: Iterable[Batch], schema: pa.Schema | None) -> pa.Schema:
    """The columns of a script: the given ones, those of its first table, or those of its rows."""
    if schema is not None:
        return canonical(schema)
    rows: list[Mapping[str, Any]] = []
    for batch in batches:
        if not _is_rows(batch):
            return canonical(_to_arrow(batch).schema)
        rows.extend(batch)
    names = list(dict.fromkeys(name for row in rows for name in row))
    _refuse_misspelt(names, rows)
    if not names:
        raise conditions.NO_SCHEMA.error(got="micro-batches without rows")
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _wrong_type(f"{name!r}: {error}", "values of one type in each column") from error
    return canonical(pa.table(columns).schema)


def to_table(batch: Batch, schema: pa.Schema) -> pa.Table:
    """Convert a micro-batch to a table with exactly these columns.

    A row may omit columns (they are null), but must not have other columns.
    """
    rows = batch if _is_rows(batch) else []
    table = None if _is_rows(batch) else _to_arrow(batch)
    names = [name for row in rows for name in row] if table is None else table.column_names
    for name in dict.fromkeys(names):
        if name not in schema.names:
            raise column_not_found(name, schema.names, role="a column of a micro-batch")
    if table is None:
        columns = [_to_column([row.get(field.name) for row in rows], field) for field in schema]
        return pa.table(columns, schema=schema)
    for name in schema.names:
        if name not in table.column_names:
            raise column_not_found(name, table.column_names, role="schema")
    table = table.select(schema.names)
    for at_, (column, field) in enumerate(zip(table.columns, schema, strict=True)):
        if column.null_count == len(column):  # of pandas, without values: doubles or objects
            table = table.set_column(at_, field, pa.nulls(len(column), field.type))
        elif not keeps_values(column.type, field.type):
            raise _wrong_type(f"{field.name!r} of type {column.type}", str(field.type))
    try:
        return table.cast(schema).combine_chunks()
    except pa.ArrowException as error:
        raise _wrong_type(str(error), str(schema).replace("\n", ", ")) from error


def _to_column(values: list[Any], field: pa.Field) -> pa.Array:
    """The values of one column, each of which is taken exactly."""
    try:
        return to_column(values, field)
    except UnsupportedType as error:
        raise _wrong_type(f"{field.name!r} as dicts", f"a Table, for the type {error}") from None
    except Refused as error:
        raise _wrong_type(f"{field.name!r}: {error}", str(field.type)) from None


def _wrong_type(got: str, expected: str) -> SchemaError:
    return conditions.BATCH_TYPE.error(expected=expected, got=got)


def _refuse_misspelt(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a name that is similar to another one, if no row has both.

    It would be a column of its own, and the intended column would be null in these rows.
    """
    rows_with = {name: {at for at, row in enumerate(rows) if name in row} for name in names}
    # Names that differ in their numbers only are two columns: "price_1", "price_2".
    patterns = {name: re.sub(r"\d+", "#", name) for name in names}
    for name in sorted(reversed(names), key=lambda name: len(rows_with[name])):
        others = {
            other.casefold(): other
            for other in names
            if patterns[other] != patterns[name] and not rows_with[other] & rows_with[name]
        }
        for similar in difflib.get_close_matches(name.casefold(), others, n=1, cutoff=_CUTOFF):
            raise conditions.COLUMN_MISSPELT.error(
                column=name,
                other=others[similar],
                columns=", ".join(other for other in names if other != name),
                got=f"a row with {', '.join(rows[min(rows_with[name])])}",
            )


def _is_rows(batch: Any) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Whether the micro-batch is a list of dicts; False for a table. Everything else is refused."""
    if isinstance(batch, Sequence) and all(isinstance(row, Mapping) for row in batch):
        return True
    import pandas as pd

    if isinstance(batch, pa.Table | pd.DataFrame):
        return False
    condition = conditions.ONE_ROW if isinstance(batch, Mapping) else conditions.NOT_A_BATCH
    raise condition.error(got=f"{batch!r} of type {type(batch).__name__}")


def _to_arrow(batch: Any) -> pa.Table:
    if isinstance(batch, pa.Table):
        return batch
    try:
        table = pa.Table.from_pandas(batch, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _wrong_type(str(error), "values of one type in each column") from error
    return table.replace_schema_metadata(None)
