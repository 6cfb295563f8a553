"""A sketch as an aggregate: its estimate, or the sketch itself as bytes.

A kind of sketch has a module of its own, with a small class below :class:`SketchAggregate` that
says how its core is made, and two functions that make it, for instance::

    @dataclass(frozen=True, slots=True, repr=False, kw_only=True)
    class Hll(SketchAggregate):
        p: int = 12
        instead: ClassVar[str] = "aggregates.count_distinct(column, at_most=...)"

        def __post_init__(self) -> None:
            SketchAggregate.__post_init__(self)
            refuse_p(self.p)

        def sketch(self, kind: pa.DataType | None, where: str) -> Sketch:
            if kind is not None:
                require_item(kind, column=self.column, where=where)
            return HllCore(self.column, self.p)

    def approx_count_distinct(column: str, *, p: int = 12) -> Hll:
        return Hll(function="approx_count_distinct", column=column, is_stored=False, p=p)

    def hll_sketch_agg(column: str, *, p: int = 12) -> Hll:
        return Hll(function="hll_sketch_agg", column=column, is_stored=True, p=p)

A kind that Spark has as well may say so by ``native`` and ``to_spark``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.aggregation import Aggregation, Summary
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.parameters import require_hashable
from streamops.sketches.core.contract import Sketch
from streamops.sketches.core.stored import Framed, Merged
from streamops.spark.columns import require_name, type_name

__all__ = [
    "MergedSketches",
    "SketchAggregate",
    "merge",
    "no_spark",
    "refuse_changes",
    "require_column",
    "require_item",
    "require_like",
]

_OWN = ("function", "column", "is_stored")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class SketchAggregate(Aggregation, ABC):
    """A sketch of a column, not yet bound to a schema; what a kind adds are its parameters.

    Parameters
    ----------
    function : str
        Its name, such as "hll_sketch_agg".
    column : str
        The column it reads.
    is_stored : bool
        Whether the result is the sketch itself, as framed bytes, instead of its estimate.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``: a column is given otherwise than by its name.
    """

    function: str
    column: str
    is_stored: bool

    native: ClassVar[bool] = False
    instead: ClassVar[str] = "an aggregate of streamops.aggregates"
    """What answers the same question exactly, for the error of a change stream."""
    counts: ClassVar[bool] = False
    """Whether what is merged twice counts twice."""

    def __post_init__(self) -> None:
        require_name(self.column, parameter="column", where=self.where)

    def __repr__(self) -> str:
        own = [field.name for field in fields(self) if field.name not in _OWN]
        arguments = [repr(self.column), *(f"{name}={getattr(self, name)!r}" for name in own)]
        return f"{self.function}({', '.join(arguments)})"

    @property
    def where(self) -> str:
        """Its public name, for errors: estimates are aggregates."""
        return f"{'sketches' if self.is_stored else 'aggregates'}.{self.function}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        return (self.column,)

    @abstractmethod
    def sketch(self, dtype: pa.DataType | None, where: str) -> Sketch:
        """The sketch over a column of this type, or an error that says which types would do.

        None: it will read no column, only sketches that are stored.
        """

    def answer(self, sketch: Sketch) -> Summary:
        """The same sketch with the result that an estimate is: here, its own."""
        return sketch

    def result(self, sketch: Sketch) -> Summary:
        """The same sketch with the result of this aggregate."""
        return Framed(sketch) if self.is_stored else self.answer(sketch)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        require_column(self.column, schema, repr(self), self.instead, where)
        return self.result(self.sketch(schema.field(self.column).type, where))

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same as a Spark expression, where Spark has the sketch: not here."""
        raise no_spark(self.where, repr(self))


def refuse_changes(schema: pa.Schema, *, text: str, instead: str, where: str) -> None:
    """Refuse a change stream: what it takes back, a sketch cannot forget.

    Raises
    ------
    SchemaError
        ``SKETCH_CANNOT_FORGET``.
    """
    if CHANGE_TYPE in schema.names:
        raise SchemaError(
            "SKETCH_CANNOT_FORGET",
            f"{text} would count what the change stream takes back",
            where=where,
            got=f"a frame with the column {CHANGE_TYPE!r}",
            expected="rows that are only ever added",
            fix=f"fold the changes to a table and take {instead} of it, which is exact; or make "
            "one theta sketch of what came and one of what was taken back, and subtract; or drop "
            f"{CHANGE_TYPE!r} where all rows are inserts",
        )


def require_item(dtype: pa.DataType, *, column: str, where: str) -> None:
    """Refuse a type that has no hash.

    Raises
    ------
    SchemaError
        ``KEY_NOT_HASHABLE``.
    """
    what = "a sketch of values of a type that Spark does not hash"
    require_hashable(dtype, where=f"{where}, column {column!r}", what=what)


def require_column(column: str, schema: pa.Schema, text: str, instead: str, where: str) -> None:
    """Refuse a schema without the column, or one of a change stream."""
    if column not in schema.names:
        raise ColumnNotFound(column, schema.names, where=where, role=f"agg: {text}")
    refuse_changes(schema, text=text, instead=instead, where=where)


def no_spark(where: str, text: str) -> SpecError:
    """The error for an aggregate that is ours alone."""
    return SpecError(
        "NO_SPARK_SKETCH",
        "Spark has no such sketch",
        where=where,
        got=f"{text}.to_spark()",
        expected="an aggregate whose `native` is true",
        fix="use it in windows, on streams and batches alike",
    )


@dataclass(frozen=True, slots=True, repr=False)
class MergedSketches:
    """Stored sketches of a column, merged. Made by :func:`merge`."""

    column: str
    like: SketchAggregate

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_name(self.column, parameter="column", where="sketches.merge")
        require_like(self.like, "sketches.merge")

    def __repr__(self) -> str:
        return f"merge({self.column!r}, like={self.like!r})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        return (self.column,)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        require_column(self.column, schema, repr(self), self.like.instead, where)
        dtype = schema.field(self.column).type
        if not (pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype)):
            raise SchemaError(
                "AGGREGATE_TYPE",
                f"{self!r} cannot be computed over this type",
                where=where,
                got=f"column {self.column!r} of type {type_name(dtype)}",
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
        raise no_spark("sketches.merge", repr(self))


def merge(column: str, *, like: SketchAggregate) -> MergedSketches:
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
    >>> per_minute = {"users": hll_sketch_agg("user")}  # doctest: +SKIP
    >>> per_hour = {"users": merge("users", like=hll_sketch_agg("user"))}  # doctest: +SKIP
    >>> per_day = {"users": merge("users", like=approx_count_distinct("user"))}  # doctest: +SKIP
    """
    return MergedSketches(column, like)


def require_like(like: object, where: str) -> None:
    """Refuse anything but an aggregate of sketches as ``like``.

    Raises
    ------
    SpecError
        ``NOT_A_SKETCH``.
    """
    if not isinstance(like, SketchAggregate):
        raise SpecError(
            "NOT_A_SKETCH",
            "`like` does not say which sketches these are",
            where=where,
            got=f"like={like!r}",
            expected="the aggregate that made them, of streamops.sketches",
            fix="pass the same aggregate that stands in the `agg` of the windows before",
        )
