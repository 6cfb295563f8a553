"""Comparison of rows, with a line for each cell that differs."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from streamops.kernel.errors import RequirementError
from streamops.kernel.values import comparable, same
from streamops.kernel.versions import to_arrow
from streamops.testing import conditions
from streamops.testing.batches import canonical
from streamops.testing.results import records

__tracebackhide__ = True  # pytest shows the line of the test
_MOST_LINES = 20
_MOST_PAIRED = 100  # rows of each side

Rows: TypeAlias = DataFrame | pa.Table | Sequence[Mapping[str, Any] | Row]
_Record: TypeAlias = dict[str, Any]


def assert_rows(actual: Rows, expected: Rows, *, ordered: bool = False) -> None:
    """Fail if the rows differ, and name each cell that does.

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
        The rows differ, or their columns do. The message has a line for each cell that differs, with
        the row, the column and both values, and for each row that only one side has; 20 lines at most.
    SchemaError
        ``DUPLICATE_COLUMN``: one of the sides has two columns of one name.
    SpecError
        ``INVALID_ROWS``: neither a frame nor a table nor a list of rows; for example, a
        :class:`~streamops.testing.BatchResult`.
    RequirementError
        ``PACKAGE_MISSING``: chispa is not installed.

    Examples
    --------
    >>> assert_rows([{"k": "a", "x": float("nan")}], [{"k": "a", "x": float("nan")}])
    """
    try:
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
    lines = _in_order(left, right) if ordered else _in_any_order(left, right)
    if not lines:
        return
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES:,} more differences"]
    counts = f"{len(left):,} rows, {len(right):,} expected"
    raise AssertionError("\n  ".join([f"the rows differ: {counts}", *lines]))


def _in_order(found: list[_Record], wanted: list[_Record]) -> list[str]:
    """The differences of rows at the same positions."""
    pairs = enumerate(zip(found, wanted, strict=False), start=1)
    lines = [line for at, pair in pairs for line in _cells(*pair, f"row {at}")]
    return [*lines, *_one_sided(found[len(wanted) :], wanted[len(found) :])]


def _in_any_order(found: list[_Record], wanted: list[_Record]) -> list[str]:
    """The differences of rows that no row of the other side equals, most similar rows side by side."""
    extra, missing = _without(found, wanted), _without(wanted, found)
    scored = []
    for at, row in enumerate(extra[:_MOST_PAIRED]):
        for other, expected in enumerate(missing[:_MOST_PAIRED]):
            equal = [same(value, expected[name]) for name, value in row.items()]
            # Keys come first: a pair has an equal first column, or is equal in most of the columns.
            if equal[0] or 2 * sum(equal) > len(equal):
                scored.append((sum(equal), equal, -at, -other))
    pairs: dict[int, int] = {}
    for *_, at, other in sorted(scored, reverse=True):
        if -at not in pairs and -other not in pairs.values():
            pairs[-at] = -other
    lines: list[str] = []
    for at, other in sorted(pairs.items()):
        row, expected = extra[at], missing[other]
        is_printed = len(lines) < _MOST_LINES
        which = _identity(row, expected, [*found, *wanted]) if is_printed else ""
        lines += _cells(row, expected, which)
    alone = [row for at, row in enumerate(extra) if at not in pairs]
    others = [row for at, row in enumerate(missing) if at not in pairs.values()]
    return [*lines, *_one_sided(alone, others)]


def _without(rows: list[_Record], others: list[_Record]) -> list[_Record]:
    """The difference of two multisets."""
    left, rest = Counter(map(comparable, others)), []
    for row in rows:
        key = comparable(row)
        left[key] -= 1
        if left[key] < 0:
            rest.append(row)
    return rest


def _cells(row: _Record, expected: _Record, which: str) -> Iterator[str]:
    for name, value in row.items():
        if not same(value, expected[name]):
            yield f"{which}: {name} is {_show(value)}, expected {_show(expected[name])}"


def _one_sided(extra: list[_Record], missing: list[_Record]) -> list[str]:
    sides = (("not expected", extra), ("missing", missing))
    return [f"{side}: {_describe(row, list(row))}" for side, rows in sides for row in rows]


def _identity(row: _Record, expected: _Record, rows: list[_Record]) -> str:
    """The first of the columns that both rows have in common, as many as tell them from other rows."""
    common = [name for name in row if same(row[name], expected[name])]
    for count in range(1, len(common)):
        alike = [one for one in rows if all(same(one[n], row[n]) for n in common[:count])]
        if len(alike) <= 2:
            return _describe(row, common[:count])
    return _describe(row, common)


def _describe(row: _Record, names: list[str]) -> str:
    return ", ".join(f"{name}={_show(row[name])}" for name in names) or "a row without columns"


def _show(value: Any) -> str:
    return str(value) if isinstance(value, dt.date | dt.time) else repr(value)


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
    table = to_arrow(frame)
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
    raise conditions.NOT_ROWS.error(
        where=f"streamops.testing.assert_rows, {side}",
        got=f"{'a list with a' if is_list else 'a'} {type(other).__name__}",
    )


def _refuse_duplicates(names: list[str], side: str) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise conditions.TWO_COLUMNS_OF_A_NAME.error(
            where=f"streamops.testing.assert_rows, {side}",
            duplicates=", ".join(duplicates),
            got=", ".join(names),
        )


def missing_extra(package: str, name: str) -> RequirementError:
    """The error for a missing package of the extra ``testing``."""
    return conditions.TESTING_EXTRA_MISSING.error(
        where=f"streamops.testing.{name}", package=package, got=f"no module of {package}"
    )
