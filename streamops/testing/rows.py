"""Comparison of rows, with a table of both sides if they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from streamops.kernel.errors import RequirementError, SchemaError, SpecError
from streamops.testing.batches import canonical
from streamops.testing.results import records
from streamops.testing.values import comparable, same

__all__ = ["assert_rows", "missing_extra"]

Rows: TypeAlias = DataFrame | pa.Table | Sequence[Mapping[str, Any] | Row]


def assert_rows(actual: Rows, expected: Rows, *, ordered: bool = False) -> None:
    """Fail, with a table of both sides, if the rows differ.

    NaN equals NaN and 0.0 equals -0.0 at any depth; nullability does not matter. All other values must
    be exactly equal.

    Parameters
    ----------
    actual, expected : DataFrame, Table, or sequence of dict or Row
        Two frames or tables must also have the same columns, of the same types, in the same
        order. Lists have no types: compared with a DataFrame, they are converted to its schema, as by
        ``createDataFrame``. Otherwise, values are compared without conversion.
    ordered : bool, default False
        Whether the rows must be in the same order.

    Raises
    ------
    AssertionError
        The rows differ, or their columns do.
    SchemaError
        ``DUPLICATE_COLUMN``: one of the sides has two columns of one name.
    SpecError
        ``NOT_ROWS``: neither a frame nor a table nor a list of rows; for example, a
        :class:`~streamops.testing.BatchResult`.
    RequirementError
        ``TESTING_EXTRA_MISSING``: chispa is not installed.

    Examples
    --------
    >>> assert_rows([{"k": "a", "x": float("nan")}], [{"k": "a", "x": float("nan")}])
    """
    try:
        from chispa.rows_comparer import assert_generic_rows_equality
        from chispa.schema_comparer import SchemasNotEqualError, assert_schema_equality
    except ImportError as error:
        raise missing_extra("chispa", "assert_rows") from error

    for rows, side in ((actual, "actual"), (expected, "expected")):
        _require_rows(rows, side)
    (left, left_schema), (right, right_schema) = (
        _to_dicts(actual, "actual", expected),
        _to_dicts(expected, "expected", actual),
    )
    if left_schema is not None and right_schema is not None:
        try:
            assert_schema_equality(
                left_schema, right_schema, ignore_nullable=True, ignore_metadata=True
            )
        except SchemasNotEqualError as error:
            raise AssertionError(f"the columns differ:{error}") from None
    found, wanted = _sort(left, ordered), _sort(right, ordered)
    differing = [pair for pair in zip(found, wanted, strict=False) if not same(*pair)]
    if not differing and len(found) == len(wanted):
        return
    counts = f"{len(found)} rows, {len(wanted)} expected, {len(differing)} pairs differ"
    table = ""
    try:
        assert_generic_rows_equality(found, wanted, same, {})
    except Exception as error:  # chispa's own, of which only the table is used
        table = str(error)
    raise AssertionError(f"the rows differ: {counts} (df1 is actual, df2 expected){table}")


def _sort(dicts: list[dict[str, Any]], ordered: bool) -> list[Row]:
    # The same order of columns on both sides.
    rows = [dict(sorted(row.items())) for row in dicts]
    if not ordered:
        rows.sort(key=lambda row: comparable(list(row.values())))
    return [Row(**row) for row in rows]


def _to_dicts(rows: Rows, side: str, other: Rows) -> tuple[list[dict[str, Any]], StructType | None]:
    """The rows, and their schema if they have one."""
    if isinstance(rows, DataFrame | pa.Table):
        _refuse_duplicates(_names(rows), side)
        if isinstance(rows, DataFrame):
            return records(_collect(rows)), rows.schema
        return records(rows), from_arrow_schema(canonical(rows.schema), True)
    for row in rows:
        _refuse_duplicates(_names([row]), side)
    dicts = [row.asDict(recursive=True) if isinstance(row, Row) else dict(row) for row in rows]
    names = _names(other)
    has_names = isinstance(other, DataFrame | pa.Table) or len(other) > 0
    for row in dicts:
        if has_names and set(row) != set(names):
            raise AssertionError(
                f"the columns differ: a row of {side} has {', '.join(sorted(row))}; "
                f"the other side has {', '.join(sorted(names))}"
            )
    if isinstance(other, DataFrame) and dicts:
        schema = StructType([StructField(f.name, f.dataType) for f in other.schema.fields])
        values = [tuple(row[name] for name in other.columns) for row in dicts]
        dicts = records(_collect(other.sparkSession.createDataFrame(values, schema)))
    return dicts, None


def _names(rows: Rows) -> list[str]:
    """The columns; for a list, those of its first row."""
    if isinstance(rows, DataFrame):
        return rows.columns
    if isinstance(rows, pa.Table):
        return list(rows.column_names)
    return [name for row in rows[:1] for name in (row.__fields__ if isinstance(row, Row) else row)]


def _collect(frame: DataFrame) -> pa.Table:
    # By Arrow: collect() returns local times, which are ambiguous when clocks are set back.
    table = frame.toArrow()
    return table.cast(canonical(table.schema))


def _require_rows(rows: object, side: str) -> None:
    if isinstance(rows, DataFrame | pa.Table):
        return
    is_list = isinstance(rows, Sequence) and not isinstance(rows, str)
    other: object = rows
    if isinstance(rows, Sequence) and is_list:
        others = [row for row in rows if not isinstance(row, Mapping | Row)]
        if not others:
            return
        other = others[0]
    raise SpecError(
        "NOT_ROWS",
        "these are not rows",
        where=f"streamops.testing.assert_rows, {side}",
        got=f"{'a list with a' if is_list else 'a'} {type(other).__name__}",
        expected="a DataFrame, a Table, or a list of dicts or Rows",
        fix="the rows of a micro-batch are result.rows, those of all "
        "[row for result in results for row in result.rows]",
    )


def _refuse_duplicates(names: list[str], side: str) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise SchemaError(
            "DUPLICATE_COLUMN",
            "two columns have the same name",
            where=f"streamops.testing.assert_rows, {side}",
            got=", ".join(names),
            expected="unique column names",
            fix=f"rename or drop one of: {', '.join(duplicates)}",
        )


def missing_extra(package: str, name: str) -> RequirementError:
    """The error for a missing package of the extra ``testing``."""
    return RequirementError(
        "TESTING_EXTRA_MISSING",
        f"{package} is not installed",
        where=f"streamops.testing.{name}",
        got=f"no module of {package}",
        expected="the packages of the extra `testing`",
        fix='pip install "streamops[testing]"',
    )
