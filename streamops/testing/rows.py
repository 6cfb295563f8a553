"""Rows compared with rows, with a table of both where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from streamops.kernel.errors import RequirementError, SchemaError, SpecError
from streamops.testing.batches import canonical
from streamops.testing.results import records
from streamops.testing.values import comparable

__all__ = ["assert_rows", "missing_extra"]

Rows: TypeAlias = DataFrame | pa.Table | Sequence[Mapping[str, Any] | Row]


def assert_rows(actual: Rows, expected: Rows, *, ordered: bool = False) -> None:
    """Fail, with a table of both sides, where the rows differ.

    NaN equals NaN and 0.0 equals -0.0 at any depth; nullability does not matter. Values must be
    equal exactly.

    Parameters
    ----------
    actual, expected : DataFrame, Table, or sequence of dict or Row
        Two frames or tables must also have the same columns, of the same types, in the same
        order. Lists have no types: beside a DataFrame they are read with its schema, as
        ``createDataFrame`` reads them; beside anything else, values are compared as they are.
    ordered : bool, default False
        Whether rows must come in the same order.

    Raises
    ------
    AssertionError
        The rows differ, or their columns do.
    SchemaError
        ``DUPLICATE_COLUMN``: one of the sides has two columns of one name, of which a
        comparison by name would see one.
    SpecError
        ``NOT_ROWS``: neither a frame nor a table nor a list of rows, such as a whole
        :class:`~streamops.testing.BatchResult`.
    RequirementError
        ``TESTING_EXTRA_MISSING``: chispa, which prints the table, is not installed.

    Examples
    --------
    >>> assert_rows([{"k": "a", "x": float("nan")}], [{"k": "a", "x": float("nan")}])
    """
    try:
        from chispa.rows_comparer import assert_generic_rows_equality
        from chispa.schema_comparer import SchemasNotEqualError, assert_schema_equality
    except ImportError as error:
        raise missing_extra("chispa", "assert_rows") from error

    for rows, which in ((actual, "actual"), (expected, "expected")):
        _refuse_others(rows, which)
    left, right = _side(actual, "actual", expected), _side(expected, "expected", actual)
    if left.schema is not None and right.schema is not None:
        try:
            assert_schema_equality(
                left.schema, right.schema, ignore_nullable=True, ignore_metadata=True
            )
        except SchemasNotEqualError as error:
            raise AssertionError(f"the columns differ:{error}") from None
    found, wanted = left.sorted(ordered), right.sorted(ordered)
    differing = [one for one in zip(found, wanted, strict=False) if not _equal(*one)]
    if not differing and len(found) == len(wanted):
        return
    counted = f"{len(found)} rows, {len(wanted)} expected, {len(differing)} pairs differ"
    table = ""
    try:
        assert_generic_rows_equality(found, wanted, _equal, {})
    except Exception as error:  # chispa's own, whose only use here is the table in it
        table = str(error)
    raise AssertionError(f"the rows differ: {counted} (df1 is actual, df2 expected){table}")


@dataclass(frozen=True, slots=True)
class _Side:
    rows: list[dict[str, Any]]
    schema: StructType | None

    def sorted(self, ordered: bool) -> list[Row]:
        # Columns in one order on both sides: a dict has none to speak of.
        rows = [dict(sorted(row.items())) for row in self.rows]
        if not ordered:
            rows = sorted(rows, key=lambda row: comparable(list(row.values())))
        return [Row(**row) for row in rows]


def _side(rows: Rows, which: str, other: Rows) -> _Side:
    if isinstance(rows, DataFrame):
        _refuse_twins(rows.columns, which)
        return _Side(records(_collected(rows)), rows.schema)
    if isinstance(rows, pa.Table):
        _refuse_twins(rows.column_names, which)
        return _Side(records(rows), from_arrow_schema(canonical(rows.schema), True))
    for row in rows:
        _refuse_twins(list(row.__fields__ if isinstance(row, Row) else row), which)
    listed = [row.asDict(recursive=True) if isinstance(row, Row) else dict(row) for row in rows]
    names = other.columns if isinstance(other, DataFrame) else _names(other)
    for row in listed:
        if names is not None and set(row) != set(names):
            raise AssertionError(
                f"the columns differ: a row of {which} has {', '.join(sorted(row))}; "
                f"the other side has {', '.join(sorted(names))}"
            )
    if isinstance(other, DataFrame) and listed:
        schema = StructType([StructField(f.name, f.dataType) for f in other.schema.fields])
        values = [tuple(row[name] for name in other.columns) for row in listed]
        frame = other.sparkSession.createDataFrame(values, schema)
        listed = records(_collected(frame))
    return _Side(listed, None)


def _names(rows: Any) -> list[str] | None:
    if isinstance(rows, pa.Table):
        return list(rows.column_names)
    for row in rows:
        return list(row.__fields__ if isinstance(row, Row) else row)
    return None


def _collected(frame: DataFrame) -> pa.Table:
    # Through Arrow, so that instants stay instants: collect() shows them on the clock of the
    # process, where an hour of autumn comes twice.
    table = frame.toArrow()
    return table.cast(canonical(table.schema))


def _equal(one: Row | None, other: Row | None) -> bool:
    return comparable(one) == comparable(other)


def _refuse_others(rows: object, which: str) -> None:
    if isinstance(rows, DataFrame | pa.Table):
        return
    listed = isinstance(rows, Sequence) and not isinstance(rows, str)
    other: object = rows
    if isinstance(rows, Sequence) and listed:
        others = [row for row in rows if not isinstance(row, Mapping | Row)]
        if not others:
            return
        other = others[0]
    raise SpecError(
        "NOT_ROWS",
        "these are no rows to compare",
        where=f"streamops.testing.assert_rows, {which}",
        got=f"{'a list with a' if listed else 'a'} {type(other).__name__}",
        expected="a DataFrame, a Table, or a list of dicts or Rows",
        fix="the rows of a micro-batch are result.rows, those of all "
        "[row for result in results for row in result.rows]",
    )


def _refuse_twins(names: list[str], which: str) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise SchemaError(
            "DUPLICATE_COLUMN",
            "two columns have one name, and a comparison would see one of them",
            where=f"streamops.testing.assert_rows, {which}",
            got=", ".join(names),
            expected="unique column names",
            fix=f"rename or drop one of: {', '.join(twins)}",
        )


def missing_extra(package: str, who: str) -> RequirementError:
    """The error for a package that only the test kit needs."""
    return RequirementError(
        "TESTING_EXTRA_MISSING",
        f"{package} is not installed",
        where=f"streamops.testing.{who}",
        got=f"no module of {package}",
        expected="the packages of the extra `testing`",
        fix='pip install "streamops[testing]"',
    )
