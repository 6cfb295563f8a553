"""Sketches that are stored in a column: merged by an aggregate, read by an expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column

from streamops.changelog.change_types import REVISION
from streamops.kernel.contract import Summary
from streamops.kernel.errors import SchemaError, SpecError
from streamops.sketches.aggregation import SketchAggregate, no_spark, require_column
from streamops.sketches.core.stored import Merged, answers
from streamops.sketches.expressions import mapped
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name, type_name

__all__ = ["MergedSketches", "estimate", "merged"]


@dataclass(frozen=True, slots=True, repr=False)
class MergedSketches:
    """Stored sketches of a column, merged. Made by :func:`merged`."""

    column: str
    like: SketchAggregate

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_name(self.column, parameter="column", where="sketches.merged")
        _require_like(self.like, "sketches.merged")

    def __repr__(self) -> str:
        return f"merged({self.column!r}, like={self.like!r})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        return (self.column,)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        require_column(self.column, schema, repr(self), self.like.instead, where)
        kind = schema.field(self.column).type
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise SchemaError(
                "AGGREGATE_TYPE",
                f"{self!r} cannot be computed over this type",
                where=where,
                got=f"column {self.column!r} of type {type_name(kind)}",
                expected="binary: sketches as an aggregate of sketches made them",
                fix="name the column that has them, or sketch this one instead of merging it",
            )
        if self.like.counts and REVISION in schema.names:
            raise SchemaError(
                "SKETCH_REVISED",
                f"{self!r} would count what was published before it was revised",
                where=where,
                got=f"results with a column {REVISION!r}",
                expected="each result once, as it is in the end",
                fix="windows before that publish once (stragglers='drop' or 'route', early='never'); "
                f"or keep the last revision of each, and drop the column {REVISION!r}",
            )
        sketch = self.like.sketch(None, where)
        return Merged(self.column, sketch, self.like.result(sketch), f"{where}, {self!r}")

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same as a Spark expression, where Spark has the sketch: not here."""
        raise no_spark("merged", repr(self))


def merged(column: str, *, like: SketchAggregate) -> MergedSketches:
    """Sketches that are stored in a column, merged: of minutes to hours, of hours to days.

    The result is that of `like` over all the rows that the sketches were made of: the same to the
    last bit where a sketch depends on its items alone, within the stated error where it also
    depends on how it came about. ``docs/sketches.md`` says which do. A null is no sketch.

    Parameters
    ----------
    column : str
        Sketches, as an aggregate that stores them made them: ``binary``.
    like : SketchAggregate
        The aggregate that made them, for their kind and parameters; with the result that is wanted.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NOT_A_SKETCH``: `like` is no aggregate of this module.
    SchemaError
        ``SKETCH_CANNOT_FORGET``: they are a change stream; ``SKETCH_REVISED``: they have revisions,
        and what is merged twice counts twice (quantiles, heavy hitters, frequencies).
    SketchFormatError
        While the query runs: bytes that are no sketch, are damaged, or are a sketch of another
        kind, version or with other parameters.

    Examples
    --------
    >>> per_minute = {"users": hll_sketch("user")}  # doctest: +SKIP
    >>> per_hour = {"users": merged("users", like=hll_sketch("user"))}  # doctest: +SKIP
    >>> per_day = {"users": merged("users", like=approx_distinct("user"))}  # doctest: +SKIP
    """
    return MergedSketches(column, like)


def estimate(column: str, *, like: SketchAggregate) -> Column:
    """What the sketches in a column say, as a column: for ``select`` and ``withColumn``.

    Parameters
    ----------
    column : str
        Sketches, as an aggregate that stores them made them: ``binary``. A null stays null.
    like : SketchAggregate
        The aggregate that made them, for their kind and parameters.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NOT_A_SKETCH``: `like` is no aggregate of this module.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> minutes.select(estimate("users", like=hll_sketch("user")).alias("users"))  # doctest: +SKIP
    DataFrame[users: struct<estimate:bigint,lower:bigint,upper:bigint,relative_error:double>]
    """
    where = "sketches.estimate"
    require_name(column, parameter="column", where=where)
    _require_like(like, where)
    sketch = like.sketch(None, where)
    answer, place = like.answer(sketch), f"{where}({column!r}, like={like!r})"

    def run(blobs: pa.Array) -> pa.Array:
        return answers(sketch, answer, blobs, where=place)

    return mapped(run, answer.result, quoted(column), name="estimate")


def _require_like(like: object, where: str) -> None:
    if not isinstance(like, SketchAggregate):
        raise SpecError(
            "NOT_A_SKETCH",
            "`like` does not say which sketches these are",
            where=where,
            got=f"like={like!r}",
            expected="the aggregate that made them, of streamops.sketches",
            fix="pass the same aggregate that stands in the `agg` of the windows before",
        )
