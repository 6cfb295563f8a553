"""Compare two tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamops.changes import conditions
from streamops.changes.fold import refuse_stream, require_same_columns
from streamops.kernel.formatted import python_rows
from streamops.kernel.parameters import parse_distinct_names, require_columns
from streamops.kernel.versions import to_arrow
from streamops.spark.columns import (
    arrow_schema,
    column,
    comparable,
    refuse_incomparable,
    relax_nulls,
    require_frame,
)

_TYPES = ("missing", "extra", "different")


@dataclass(frozen=True, slots=True)
class Difference:
    """A row and its copies, or the rows of a key, in which two tables differ.

    Parameters
    ----------
    type : str
        "missing" (expected, and not actual), "extra" (actual, and not expected) or "different".
    columns : tuple of str
        The columns that differ, if one row differs from one other.
    actual, expected : tuple of dict
        The rows of each table that the other does not have; of each the first `show`.
    more : int
        Number of further rows.
    """

    type: str
    columns: tuple[str, ...]
    actual: tuple[dict[str, Any], ...]
    expected: tuple[dict[str, Any], ...]
    more: int = 0

    def __str__(self) -> str:
        names = f" in {', '.join(self.columns)}" if self.columns else ""
        sides = [("actual", self.actual), ("expected", self.expected)]
        lines = [f"    {side}:  {row}" for side, rows in sides for row in rows]
        lines += [f"    and {self.more:,} more"] if self.more else []
        return "\n".join([f"  {self.type}{names}", *lines])


@dataclass(frozen=True, slots=True, repr=False)
class Differences:
    """The differences of two tables.

    Parameters
    ----------
    missing, extra, different : int
        Number of keys, or without a key of rows, of each type.
    first : tuple of Difference
        The first differences, by key.
    """

    missing: int
    extra: int
    different: int
    first: tuple[Difference, ...]

    @property
    def total(self) -> int:
        """Number of differences."""
        return self.missing + self.extra + self.different

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self.total > 0

    def raise_if_any(self) -> None:
        """Raise an error with the first differences, if there are any.

        Raises
        ------
        ChangeStreamError
            ``TABLES_DIFFER``.
        """
        if self.total:
            raise conditions.TABLES_DIFFER.error(where="changes.differences", got=repr(self))

    def __repr__(self) -> str:
        if not self.total:
            return "no differences"
        counted = f"{self.missing} missing, {self.extra} extra, {self.different} different"
        return "\n".join([counted, *map(str, self.first)])


def differences(
    actual: DataFrame,
    expected: DataFrame,
    *,
    key: str | Sequence[str] | None = None,
    show: int = 10,
) -> Differences:
    """Compare a folded change stream with the same table computed from scratch.

    Rows are compared by value, as a multiset: null equals null, NaN equals NaN, and the order of rows,
    columns and map entries does not matter. The function runs two queries.

    Parameters
    ----------
    actual, expected : DataFrame
        Batch frames with the same columns.
    key : str or sequence of str, optional
        Columns that identify a row: rows of the same key are shown side by side.
    show : int
        Number of differences to show, and of rows of each table in each of them.

    Returns
    -------
    Differences
        Counts, and the first differences. Use its ``repr`` interactively, and ``raise_if_any()`` in jobs.

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``: `show`; ``NOT_A_FRAME``; or `key` is not a name.
    SchemaError, ColumnNotFound
        The columns differ (``COLUMNS_DIFFER``), or one does not exist; a frame is a stream; a type
        cannot be compared (``COLUMN_TYPE``) or converted to Python (``TYPE_UNSUPPORTED``).

    Examples
    --------
    >>> def check(batch, batch_id):
    ...     table = batch.transform(fold("id", onto=before))
    ...     differences(table, spark.read.table("orders"), key="id").raise_if_any()

    See Also
    --------
    fold : fold a change stream to its table.
    streamops.testing.assert_rows : the same in tests.
    """
    names = () if key is None else parse_distinct_names(key, parameter="key")
    if type(show) is not int or show < 0:
        raise conditions.NOT_A_NUMBER_OF_ROWS.error(got=f"show={show!r}")
    sides = ("`actual`", "`expected`")
    for frame, side in zip((actual, expected), sides, strict=True):
        refuse_stream(require_frame(frame, side))
    require_same_columns(actual.schema, expected.schema, sides=sides)
    require_columns(actual.columns, {"key": names})
    refuse_incomparable(actual, actual.columns)
    arrow_schema(actual)  # the rows are collected as Arrow
    net = _net_rows(relax_nulls(actual), relax_nulls(expected), names)
    # Without a key, equal rows are one difference, and counted by their number.
    copies = F.lit(1) if names else F.col("ours") + F.col("theirs")
    keys = net.groupBy("key").agg(*_counts())
    sums = keys.groupBy(_type().alias("type")).agg(F.sum(copies).alias("count"))
    counted = {row["type"]: row["count"] for row in sums.collect()}
    order = ["key"] if names else ["type", "key"]
    rows = _first_rows(net, actual.columns, show).orderBy(*order).drop("key").limit(show)
    first = tuple(
        Difference(
            row["type"],
            tuple(row["columns"] or ()),
            tuple(row["actual"]),
            tuple(row["expected"]),
            row["more"],
        )
        # As Arrow, whose values Python's Row does not all have.
        for row in python_rows(to_arrow(rows))
    )
    missing, extra, different = (counted.get(name, 0) for name in _TYPES)
    return Differences(missing, extra, different, first)


def _net_rows(actual: DataFrame, expected: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows that one table has more often, with the difference. Without a key, the content is the key."""
    fields = {part.name: part.dataType for part in actual.schema.fields}
    content = F.struct(*(comparable(column(n), dtype).alias(n) for n, dtype in fields.items()))
    key = F.struct(*(comparable(column(n), fields[n]).alias(n) for n in names))
    row = F.struct(*map(column, fields))
    tables = [
        frame.select(
            (key if names else content).alias("key"),
            content.alias("content"),
            row.alias("row"),
            F.lit(sign).alias("sign"),
        )
        for frame, sign in ((actual, 1), (expected, -1))
    ]
    return (
        tables[0]
        .unionByName(tables[1])
        .groupBy("key", "content")
        .agg(F.first("row").alias("row"), F.sum("sign").alias("net"))
        .where("net <> 0")
    )


def _counts() -> list[Column]:
    """Number of rows of each table that the other does not have."""
    return [F.sum(F.greatest(net, F.lit(0))).alias(table) for table, net in _tables()]


def _tables() -> list[tuple[str, Column]]:
    return [("ours", F.col("net")), ("theirs", -F.col("net"))]


def _type() -> Column:
    missing = F.when(F.col("ours") == 0, "missing")
    return missing.when(F.col("theirs") == 0, "extra").otherwise("different")


def _first_rows(net: DataFrame, fields: Sequence[str], limit: int) -> DataFrame:
    """The differences, each with at most `limit` rows of each table.

    The limit is applied before rows are repeated or collected, as a row may have a million copies.
    """
    above = Window.partitionBy("key").orderBy("content").rowsBetween(Window.unboundedPreceding, -1)
    for table, copies in _tables():
        before = F.coalesce(F.sum(F.greatest(copies, F.lit(0))).over(above), F.lit(0))
        left = F.greatest(F.least(copies, F.lit(limit) - before), F.lit(0))
        net = net.withColumn(f"{table}_left", left.cast("int"))
    entry = F.struct("content", "row")
    sides = (("actual", F.col("ours_left")), ("expected", F.col("theirs_left")))
    keys = net.groupBy("key").agg(
        *_counts(),
        *(  # collect_list skips nulls
            F.flatten(F.collect_list(F.when(copies > 0, F.array_repeat(entry, copies)))).alias(side)
            for side, copies in sides
        ),
    )
    pair = [F.get(side, F.lit(0))["content"] for side in ("actual", "expected")]
    differing = F.array_compact(
        F.array(*(F.when(~pair[0][n].eqNullSafe(pair[1][n]), F.lit(n)) for n in fields))
    )
    is_pair = (F.col("ours") == 1) & (F.col("theirs") == 1)
    collected = F.size("actual") + F.size("expected")
    return keys.select(
        "key",
        _type().alias("type"),
        F.when(is_pair, differing).alias("columns"),
        *(F.transform(n, lambda item: item["row"]).alias(n) for n in ("actual", "expected")),
        (F.col("ours") + F.col("theirs") - collected).alias("more"),
    )
