"""Whether two tables are the same, and where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.changes.bounded import refuse_others, refuse_stream, require_columns
from streamops.kernel.errors import ChangeStreamError, SpecError
from streamops.spark.columns import column
from streamops.spark.comparing import comparable
from streamops.spark.parameters import distinct_names

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
        The rows of either side that the other does not have.
    """

    kind: str
    columns: tuple[str, ...]
    actual: tuple[dict[str, Any], ...]
    expected: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        named = f" in {', '.join(self.columns)}" if self.columns else ""
        sides = [("actual", self.actual), ("expected", self.expected)]
        lines = [f"    {side}:  {row}" for side, rows in sides for row in rows]
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
        How many differences to show.

    Returns
    -------
    Differences
        Counts, and the first ones. Its ``repr`` is for reading; ``raise_if_any()`` is for jobs.

    Raises
    ------
    SpecError
        ``NOT_A_NUMBER_OF_ROWS``: `show`; or `key` is no name.
    SchemaError, ColumnNotFound
        The columns differ (``COLUMNS_DIFFER``), or one does not exist; a frame is a stream.

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
    names = () if key is None else distinct_names(key, parameter="key", where=_WHERE)
    if type(show) is not int or show < 0:
        raise SpecError(
            "NOT_A_NUMBER_OF_ROWS",
            "`show` is not a number of differences",
            where=_WHERE,
            got=f"show={show!r}",
            expected="an integer, 0 or more",
            fix="leave it out",
        )
    for frame in (actual, expected):
        refuse_stream(frame, where=_WHERE)
    sides = ("`actual`", "`expected`")
    refuse_others(actual.schema, expected.schema, code="COLUMNS_DIFFER", sides=sides, where=_WHERE)
    require_columns(actual, names, role="key", where=_WHERE)
    found = _found(actual, expected, names)
    # Equal rows are shown together, and counted one by one.
    copies = F.lit(1) if names else F.size("actual") + F.size("expected")
    sums = found.groupBy("kind").agg(F.sum(copies).alias("count"))
    counted = {row["kind"]: row["count"] for row in sums.collect()}
    order = [F.col("key")] if names else [F.col("kind"), F.to_json(F.col("actual"))]
    # As Arrow, which has values that Python's Row has not.
    rows = found.orderBy(*order).drop("key").limit(show).toArrow().to_pylist()
    first = tuple(
        Difference(
            each["kind"],
            tuple(each["columns"] or ()),
            tuple(each["actual"]),
            tuple(each["expected"]),
        )
        for each in rows
    )
    missing, extra, different = (counted.get(kind, 0) for kind in _KINDS)
    return Differences(missing, extra, different, first)


def _found(actual: DataFrame, expected: DataFrame, names: Sequence[str]) -> DataFrame:
    """Keys, or rows, in which they differ."""
    fields = {each.name: each.dataType for each in actual.schema.fields}
    content = F.struct(*(comparable(column(n), kind).alias(n) for n, kind in fields.items()))
    key = F.struct(*(comparable(column(n), fields[n]).alias(n) for n in names))
    row = F.struct(*map(column, fields))
    both = [
        frame.select(
            key.alias("key"), content.alias("content"), row.alias("row"), F.lit(sign).alias("sign")
        )
        for frame, sign in ((actual, 1), (expected, -1))
    ]
    net = (
        both[0]
        .unionByName(both[1])
        .groupBy("key", "content")
        .agg(F.first("row").alias("row"), F.sum("sign").alias("net"))
        .where("net <> 0")
    )
    if not names:
        net = net.withColumn("key", F.struct(F.col("content"), F.col("net")))
    copies = F.array_repeat(F.struct("content", "row"), F.abs("net").cast("int"))
    paired = net.groupBy("key").agg(
        *(
            F.flatten(F.collect_list(F.when(F.col("net") * sign > 0, copies))).alias(side)
            for side, sign in (("actual", 1), ("expected", -1))
        )
    )
    ours, theirs = F.col("actual"), F.col("expected")
    kind = F.when(F.size(ours) == 0, "missing").when(F.size(theirs) == 0, "extra")
    pair = [F.get(side, F.lit(0))["content"] for side in (ours, theirs)]
    differing = F.array_compact(
        F.array(*(F.when(~pair[0][n].eqNullSafe(pair[1][n]), F.lit(n)) for n in fields))
    )
    is_pair = (F.size(ours) == 1) & (F.size(theirs) == 1)
    return paired.select(
        "key",
        kind.otherwise("different").alias("kind"),
        F.when(is_pair, differing).alias("columns"),
        *(
            F.transform(side, lambda each: each["row"]).alias(n)
            for side, n in ((ours, "actual"), (theirs, "expected"))
        ),
    )
