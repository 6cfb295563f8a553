"""Columns of stored sketches: estimates, and the images of Apache DataSketches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from streamops.kernel.errors import SketchFormatError, SpecError
from streamops.sketches.aggregation import SketchAggregate, require_like
from streamops.sketches.core.contract import Sketch
from streamops.sketches.core.stored import Framed, answers, revived
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name, spark_schema

__all__ = ["as_item", "estimate", "expression", "from_datasketches", "mapped", "to_datasketches"]


def as_item(column: Column, dtype: str) -> Column:
    """The value as one of this type, which is flat; null where it is none: 1.5 is no bigint."""
    value = column.try_cast(dtype)
    # Compared only where it could be cast: the comparison casts, too, and then fails the query.
    return F.when(value.isNotNull(), F.when(value == column, value))


def expression(answer: Callable[..., pa.Array], result: pa.DataType, *columns: str) -> Column:
    """The answers to the rows in which no column is null; null in the others.

    Parameters
    ----------
    answer : callable
        Takes the columns without nulls.
    result : DataType
        Of the answers.
    """

    # As many parameters as columns: Spark reads from their hints that it is called with columns.
    def of_one(column: pa.Array) -> pa.Array:
        return _answered(answer, column)

    def of_two(left: pa.Array, right: pa.Array) -> pa.Array:
        return _answered(answer, left, right)

    run: Callable[..., pa.Array] = of_one if len(columns) == 1 else of_two
    return mapped(run, result, *map(quoted, columns))


def mapped(
    run: Callable[..., pa.Array], result: pa.DataType, *columns: Column, name: str | None = None
) -> Column:
    """What a function makes of whole columns, as a column of this type.

    Parameters
    ----------
    run : callable
        With hints that all its parameters, and what it returns, are arrays.
    name : str, optional
        What the column is called until it is given a name.
    """
    if name is not None:
        run.__name__ = name
    dtype = spark_schema(pa.schema([("result", result)])).fields[0].dataType
    # Its stubs want the word for a scalar function, which it asks to leave to the type hints.
    make: Any = arrow_udf
    found: Column = make(run, dtype)(*columns)
    return found


def _answered(answer: Callable[..., pa.Array], *columns: pa.Array) -> pa.Array:
    there = np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns])
    if there.all():
        return answer(*columns)
    found = answer(*(column.filter(pa.array(there)) for column in columns))
    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


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
    >>> minutes.select(estimate("users", like=hll_sketch_agg("user")).alias("users"))  # doctest: +SKIP
    DataFrame[users: struct<estimate:bigint,lower:bigint,upper:bigint,relative_error:double>]
    """
    where = "sketches.estimate"
    require_name(column, parameter="column", where=where)
    require_like(like, where)
    sketch = like.sketch(None, where)
    answer, location = like.answer(sketch), f"{where}({column!r}, like={like!r})"

    def run(blobs: pa.Array) -> pa.Array:
        return answers(sketch, answer, blobs, where=location)

    return mapped(run, answer.result, quoted(column), name="estimate")


class _Exchanged(Sketch, Protocol):
    """A sketch that Apache has as well: its images out and in, for all at once."""

    def images(self, states: Sequence[pa.Array]) -> pa.Array: ...

    def from_images(self, images: pa.Array) -> list[pa.Array]: ...


def to_datasketches(column: str, *, like: SketchAggregate) -> Column:
    """The stored sketches of a column as Apache's images: ``binary``, without a frame.

    Spark's own functions take them. Of distinct values: ``hll_sketch_estimate``, ``hll_union``,
    ``hll_union_agg``; ``theta_sketch_estimate``, ``theta_union``, ``theta_intersection``,
    ``theta_difference``.

    Parameters
    ----------
    column : str
        Sketches, as an aggregate that stores them made them. A null stays null.
    like : SketchAggregate
        The aggregate that made them.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NO_APACHE_SKETCH``: Apache has no sketch of this kind.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> image = to_datasketches("users", like=hll_sketch_agg("user"))  # doctest: +SKIP
    >>> minutes.select(F.hll_sketch_estimate(image))  # doctest: +SKIP
    """
    where = "sketches.to_datasketches"
    require_name(column, parameter="column", where=where)
    sketch = _exchanged(like, where)
    location = f"{where}({column!r}, like={like!r})"

    def images(blobs: pa.Array) -> pa.Array:
        return sketch.images(revived(sketch, blobs, where=location))

    return expression(images, pa.binary(), column)


def from_datasketches(column: str, *, like: SketchAggregate) -> Column:
    """Apache's images in a column as stored sketches: to be merged with others, and asked.

    Spark's own sketches are such images: ``hll_sketch_agg(xxhash64(user), 12)`` has the items that
    ``hll_sketch_agg("user", p=12)`` has, and ``theta_sketch_agg(xxhash64(user), 12)`` those of
    ``theta_sketch_agg("user", k=4096)``. (It also counts a null, if it is not left out.) A sketch of
    ``user`` itself has other items, unless these are longs that are hashes: merged with ours it
    would count a value twice.

    Parameters
    ----------
    column : str
        Images: ``binary``. A null stays null.
    like : SketchAggregate
        The aggregate that would make such sketches: it says which parameters they must have.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NO_APACHE_SKETCH``: Apache has no sketch of this kind.
    SketchFormatError
        While the query runs: ``SKETCH_CORRUPT``, ``SKETCH_PARAMETERS``.
    """
    where = "sketches.from_datasketches"
    require_name(column, parameter="column", where=where)
    sketch = _exchanged(like, where)
    location = f"{where}({column!r}, like={like!r})"

    def stored(images: pa.Array) -> pa.Array:
        try:
            states = sketch.from_images(images.cast(pa.binary()))
        except SketchFormatError as error:  # an image does not know where it stands
            facts = {"got": error.got, "expected": error.expected, "fix": error.fix}
            raise SketchFormatError(error.code, error.what, where=location, **facts) from None
        return Framed(sketch).estimate(states)

    return expression(stored, pa.binary(), column)


def _exchanged(like: object, where: str) -> _Exchanged:
    sketch = like.sketch(None, where) if isinstance(like, SketchAggregate) else None
    if hasattr(sketch, "images"):
        return cast("_Exchanged", sketch)
    raise SpecError(
        "NO_APACHE_SKETCH",
        "Apache DataSketches has no sketch of this kind",
        where=where,
        got=f"like={like!r}",
        expected="hll_sketch_agg(...), theta_sketch_agg(...): an aggregate of which Apache has the sketch",
        fix="read the sketches in Python: sketches.read(blob)",
    )
