"""Whether two tables are the same, and where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamops.changes.bounded import refuse_others, refuse_stream, require_columns
from streamops.kernel.errors import ChangeStreamError, SpecError
from streamops.spark.columns import arrow_schema, column, relax_nulls
from streamops.spark.comparing import comparable, refuse_incomparable
from streamops.spark.parameters import parse_distinct_names, require_frame

__all__ = ["Difference", "Differences", "differences"]

_WHERE = "changes.differences"
_KINDS = ("missing", "extra", "different")


@dataclass(frozen=True, slots=True)
class Difference:
    """One row with those equal to it, or the rows of one key, in which two tables differ.

    Parameters
    ----------
    kind : str
        "missing" (expected, and not there), "extra" (there, and not expected) or "different".
    columns : tuple of str
        Those that differ, of one row with one other.
    actual, expected : tuple of dict
        The rows of either side that the other does not have; of each side the first `show`.
    more : int
        How many there are beyond these.
    """

    kind: str
    columns: tuple[str, ...]
    actual: tuple[dict[str, Any], ...]
    expected: tuple[dict[str, Any], ...]
    more: int = 0

    def __str__(self) -> str:
        named = f" in {', '.join(self.columns)}" if self.columns else ""
        sides = [("actual", self.actual), ("expected", self.expected)]
        lines = [f"    {side}:  {row}" for side, rows in sides for row in rows]
        lines += [f"    and {self.more:,} more"] if self.more else []
        return "\n".join([f"  {self.kind}{named}", *lines])


@dataclass(frozen=True, slots=True, repr=False)
class Differences:
    """What two tables differ in.

    Parameters
    ----------
    missing, extra, different : int
        Keys, or without a key rows, of each kind.
    first : tuple of Difference
        The first of them, by key.
    """

    missing: int
    extra: int
    different: int
    first: tuple[Difference, ...]

    @property
    def total(self) -> int:
        """Of all kinds."""
        return self.missing + self.extra + self.different

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self.total > 0

    def raise_if_any(self) -> None:
        """Fail, and show the first differences, if there are any.

        Raises
        ------
        ChangeStreamError
            ``TABLES_DIFFER``.
        """
        if self.total:
            raise ChangeStreamError(
                "TABLES_DIFFER",
                "two tables are not the same",
                where=_WHERE,
                got=repr(self),
                expected="the same rows on both sides",
                fix="look at the first difference: which changes of this key were published?",
            )

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
    """Compare a folded change stream with the same table computed anew.

    Rows are compared by value, as many as there are: null equals null, NaN equals NaN, the order of
    rows and columns does not matter, nor that of a map's entries. Runs two queries.

    Parameters
    ----------
    actual, expected : DataFrame
        Batch frames with the same columns.
    key : str or sequence of str, optional
        Columns that identify a row: rows of the same key are shown side by side.
    show : int
        How many differences to show, and of each how many rows of either side.

    Returns
    -------
    Differences
        Counts, and the first ones. Its ``repr`` is for reading; ``raise_if_any()`` is for jobs.

    Raises
    ------
    SpecError
        ``NOT_A_NUMBER_OF_ROWS``: `show`; ``NOT_A_FRAME``; or `key` is no name.
    SchemaError, ColumnNotFound
        The columns differ (``COLUMNS_DIFFER``), or one does not exist; a frame is a stream; a type
        cannot be compared (``COLUMN_TYPE``) or handed to Python (``TYPE_NOT_CARRIED``).

    Examples
    --------
    >>> def check(batch, batch_id):  # doctest: +SKIP
    ...     table = batch.transform(fold("id", onto=before))
    ...     differences(table, spark.read.table("orders"), key="id").raise_if_any()

    See Also
    --------
    fold : the table that a change stream stands for.
    streamops.testing.assert_rows : the same in tests.
    """
    names = () if key is None else parse_distinct_names(key, parameter="key", where=_WHERE)
    if type(show) is not int or show < 0:
        raise SpecError(
            "NOT_A_NUMBER_OF_ROWS",
            "`show` is not a number of differences",
            where=_WHERE,
            got=f"show={show!r}",
            expected="an integer, 0 or more",
            fix="leave it out",
        )
    sides = ("`actual`", "`expected`")
    for frame, side in zip((actual, expected), sides, strict=True):
        refuse_stream(require_frame(frame, side, where=_WHERE), where=_WHERE)
    refuse_others(actual.schema, expected.schema, code="COLUMNS_DIFFER", sides=sides, where=_WHERE)
    require_columns(actual, names, role="key", where=_WHERE)
    refuse_incomparable(actual, actual.columns, where=_WHERE)
    arrow_schema(actual, where=_WHERE)  # as which rows are shown
    net = _net(relax_nulls(actual), relax_nulls(expected), names)
    # Without a key, equal rows are shown together, and counted one by one.
    copies = F.lit(1) if names else F.col("ours") + F.col("theirs")
    sides_of = net.groupBy("key").agg(*_counts())
    sums = sides_of.groupBy(_kind().alias("kind")).agg(F.sum(copies).alias("count"))
    counted = {row["kind"]: row["count"] for row in sums.collect()}
    order = ["key"] if names else ["kind", "key"]
    # As Arrow, which has values that Python's Row has not.
    rows = _shown(net, actual.columns, show).orderBy(*order).drop("key").limit(show)
    first = tuple(
        Difference(
            each["kind"],
            tuple(each["columns"] or ()),
            tuple(each["actual"]),
            tuple(each["expected"]),
            each["more"],
        )
        for each in rows.toArrow().to_pylist()
    )
    missing, extra, different = (counted.get(kind, 0) for kind in _KINDS)
    return Differences(missing, extra, different, first)


def _net(actual: DataFrame, expected: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows that one of them has more often: what they say, one of them, and by how often.

    With their key; without one each stands for itself.
    """
    fields = {each.name: each.dataType for each in actual.schema.fields}
    content = F.struct(*(comparable(column(n), kind).alias(n) for n, kind in fields.items()))
    key = F.struct(*(comparable(column(n), fields[n]).alias(n) for n in names))
    row = F.struct(*map(column, fields))
    both = [
        frame.select(
            (key if names else content).alias("key"),
            content.alias("content"),
            row.alias("row"),
            F.lit(sign).alias("sign"),
        )
        for frame, sign in ((actual, 1), (expected, -1))
    ]
    return (
        both[0]
        .unionByName(both[1])
        .groupBy("key", "content")
        .agg(F.first("row").alias("row"), F.sum("sign").alias("net"))
        .where("net <> 0")
    )


def _counts() -> list[Column]:
    """How many rows of each side the other does not have."""
    return [F.sum(F.greatest(n, F.lit(0))).alias(of) for of, n in _sides()]


def _sides() -> list[tuple[str, Column]]:
    return [("ours", F.col("net")), ("theirs", -F.col("net"))]


def _kind() -> Column:
    kind = F.when(F.col("ours") == 0, "missing").when(F.col("theirs") == 0, "extra")
    return kind.otherwise("different")


def _shown(net: DataFrame, fields: Sequence[str], most: int) -> DataFrame:
    """Keys, or rows, in which they differ, with so many rows of each side.

    One that is there a million times is not made a million rows, nor are all rows of a key, which
    may be a bad one, ever in one array.
    """
    above = Window.partitionBy("key").orderBy("content").rowsBetween(Window.unboundedPreceding, -1)
    for of, times in _sides():
        before = F.coalesce(F.sum(F.greatest(times, F.lit(0))).over(above), F.lit(0))
        left = F.greatest(F.least(times, F.lit(most) - before), F.lit(0))
        net = net.withColumn(f"{of}_left", left.cast("int"))
    entry = F.struct("content", "row")
    keys = net.groupBy("key").agg(
        *_counts(),
        *(
            # Of nulls no list is made.
            F.flatten(F.collect_list(F.when(times > 0, F.array_repeat(entry, times)))).alias(side)
            for side, times in (("actual", F.col("ours_left")), ("expected", F.col("theirs_left")))
        ),
    )
    pair = [F.get(side, F.lit(0))["content"] for side in ("actual", "expected")]
    differing = F.array_compact(
        F.array(*(F.when(~pair[0][n].eqNullSafe(pair[1][n]), F.lit(n)) for n in fields))
    )
    is_pair = (F.col("ours") == 1) & (F.col("theirs") == 1)
    shown = F.size("actual") + F.size("expected")
    return keys.select(
        "key",
        _kind().alias("kind"),
        F.when(is_pair, differing).alias("columns"),
        *(F.transform(n, lambda each: each["row"]).alias(n) for n in ("actual", "expected")),
        (F.col("ours") + F.col("theirs") - shown).alias("more"),
    )
