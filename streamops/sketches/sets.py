"""Theta sketches in two columns of a frame, set against each other row by row."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.errors import SpecError
from streamops.sketches.core.overlap import PARTS, measured
from streamops.sketches.core.samples import Samples, beside
from streamops.sketches.core.stored import Sealed, revived
from streamops.sketches.core.theta import Theta
from streamops.sketches.expressions import expression
from streamops.sketches.theta import ThetaAggregate
from streamops.spark.columns import require_name

__all__ = ["difference", "intersection", "overlap_of", "union"]

Answer = Callable[[Theta, Samples, Samples], pa.Array]


def union(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """Theta sketches of what either of two has seen, row by row: ``binary``.

    Parameters
    ----------
    left, right : str
        Columns with theta sketches, as an aggregate that stores them made them. Where one is null
        the result is null: it is not known what it would have seen.
    like : SketchAggregate
        The aggregate that made them: :func:`theta_sketch` or :func:`theta_distinct`, for its `k`.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NOT_A_THETA_SKETCH``: `like` is another aggregate.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> days.select(union("mobile", "web", like=theta_sketch("user")).alias("all"))  # doctest: +SKIP
    """

    def answer(sketch: Theta, a: Samples, b: Samples) -> pa.Array:
        return _sealed(sketch, beside(a, b).either(sketch.k))

    return _expression("union", pa.binary(), answer, left, right, like)


def intersection(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """Theta sketches of what both of two have seen, row by row: ``binary``.

    Parameters
    ----------
    left, right, like
        See :func:`union`.

    Raises
    ------
    SpecError, SketchFormatError
        See :func:`union`.

    Examples
    --------
    >>> both = intersection("mobile", "web", like=theta_sketch("user"))  # doctest: +SKIP
    >>> days.select(both.alias("both"))  # doctest: +SKIP
    """

    def answer(sketch: Theta, a: Samples, b: Samples) -> pa.Array:
        return _sealed(sketch, beside(a, b).where([0, 1]))

    return _expression("intersection", pa.binary(), answer, left, right, like)


def difference(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """Theta sketches of what the left one has seen and the right one has not: ``binary``.

    It takes a *set* away from a set. Of items that were taken back it is right if none of them
    came again afterwards: a sketch does not know what came last.

    Parameters
    ----------
    left, right, like
        See :func:`union`.

    Raises
    ------
    SpecError, SketchFormatError
        See :func:`union`.

    Examples
    --------
    >>> new = difference("today", "before", like=theta_sketch("user"))  # doctest: +SKIP
    >>> days.select(new.alias("new"))  # doctest: +SKIP
    """

    def answer(sketch: Theta, a: Samples, b: Samples) -> pa.Array:
        return _sealed(sketch, beside(a, b).where([0], [1]))

    return _expression("difference", pa.binary(), answer, left, right, like)


def overlap_of(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """What theta sketches of two columns have in common, row by row.

    ``struct<both, only_left, only_right, either, jaccard>``, each with its bounds: as in the pairs
    of :func:`approx_overlap`.

    Parameters
    ----------
    left, right, like
        See :func:`union`.

    Raises
    ------
    SpecError, SketchFormatError
        See :func:`union`.

    Examples
    --------
    >>> shared = overlap_of("mobile", "web", like=theta_sketch("user"))  # doctest: +SKIP
    >>> days.select(shared["both"]["estimate"], shared["jaccard"]["estimate"])  # doctest: +SKIP
    """

    def answer(sketch: Theta, a: Samples, b: Samples) -> pa.Array:
        return measured(a, b)

    return _expression("overlap_of", pa.struct(PARTS), answer, left, right, like)


def _sealed(sketch: Theta, samples: Samples) -> pa.Array:
    return Sealed(sketch).estimate(samples.columns())


def _expression(
    name: str, result: pa.DataType, answer: Answer, left: str, right: str, like: object
) -> Column:
    where = f"sketches.{name}"
    for parameter, column in (("left", left), ("right", right)):
        require_name(column, parameter=parameter, where=where)
    if not isinstance(like, ThetaAggregate):
        raise SpecError(
            "NOT_A_THETA_SKETCH",
            "`like` does not say which theta sketches these are",
            where=where,
            got=f"like={like!r}",
            expected="the aggregate that made them: theta_sketch(...)",
            fix="pass the same aggregate that stands in the `agg` of the windows before; other "
            "kinds of sketches can be merged, and nothing more",
        )
    sketch = like.sketch(None, where)
    place = f"{where}({left!r}, {right!r}, like={like!r})"

    def run(*columns: pa.Array) -> pa.Array:
        a, b = (Samples.of(*revived(sketch, blobs, where=place)) for blobs in columns)
        return answer(sketch, a, b)

    return expression(run, result, left, right)
