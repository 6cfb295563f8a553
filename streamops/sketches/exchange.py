"""Stored sketches as Apache DataSketches and Spark's own functions write and read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.errors import SpecError
from streamops.sketches.aggregation import SketchAggregate
from streamops.sketches.core.contract import Sketch
from streamops.sketches.core.stored import Sealed, revived
from streamops.sketches.expressions import expression
from streamops.spark.columns import require_name

__all__ = ["Exchanged", "from_datasketches", "to_datasketches"]


class Exchanged(Sketch, Protocol):
    """A sketch that Apache DataSketches has as well."""

    def to_datasketches(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as an image of theirs: ``binary``, without nulls."""

    def from_datasketches(self, images: pa.Array, *, where: str) -> list[pa.Array]:
        """The states of their images, which are without nulls.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: they are no such images, or not of these parameters.
        """


def to_datasketches(column: str, *, like: SketchAggregate) -> Column:
    """Stored sketches in the format of Apache DataSketches, which Spark's functions read: ``binary``.

    Spark's `theta_sketch_estimate`, `theta_union`, `hll_sketch_estimate` and so on take the result.
    They see the sketch that they would have made of ``xxhash64`` of the values.

    Parameters
    ----------
    column : str
        Sketches, as an aggregate that stores them made them: ``binary``. A null stays null.
    like : SketchAggregate
        The aggregate that made them, for their kind and parameters.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NO_EXCHANGE``: `like` is no aggregate of a kind that they have.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> theirs = to_datasketches("users", like=theta_sketch("user"))  # doctest: +SKIP
    >>> days.select(F.theta_sketch_estimate(theirs))  # doctest: +SKIP
    """
    sketch, place = _exchanged(column, like, "sketches.to_datasketches")

    def answer(blobs: pa.Array) -> pa.Array:
        return sketch.to_datasketches(revived(sketch, blobs, where=place))

    return expression(answer, pa.binary(), column)


def from_datasketches(column: str, *, like: SketchAggregate) -> Column:
    """Stored sketches of what Apache DataSketches or a function of Spark's has written: ``binary``.

    They are sketches like those of `like`, and merge with them, if they are sketches of the same
    items: of ``xxhash64`` of the values. Spark's of a column ``c`` is
    ``theta_sketch_agg(xxhash64(c))``, over rows in which it is not null.

    Parameters
    ----------
    column : str
        Their images: ``binary``. A null stays null.
    like : SketchAggregate
        The aggregate whose sketches they become.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NO_EXCHANGE``: `like` is no aggregate of a kind that they have.
    SketchFormatError
        While the query runs: bytes that are no image of such a sketch.

    Examples
    --------
    >>> theirs = days.agg(F.theta_sketch_agg(F.xxhash64("user")).alias("users"))  # doctest: +SKIP
    >>> theirs.select(from_datasketches("users", like=theta_sketch("user")))  # doctest: +SKIP
    """
    sketch, place = _exchanged(column, like, "sketches.from_datasketches")

    def answer(images: pa.Array) -> pa.Array:
        states = sketch.from_datasketches(images.cast(pa.binary()), where=place)
        return Sealed(sketch).estimate(states)

    return expression(answer, pa.binary(), column)


def _exchanged(column: object, like: object, where: str) -> tuple[Exchanged, str]:
    require_name(column, parameter="column", where=where)
    sketch: Any = like.sketch(None, where) if isinstance(like, SketchAggregate) else None
    if not hasattr(sketch, "to_datasketches"):
        raise SpecError(
            "NO_EXCHANGE",
            "`like` is not of a kind of sketch that Apache DataSketches has as well",
            where=where,
            got=f"like={like!r}",
            expected="an aggregate of such a kind: docs/sketches.md says which they are",
            fix="pass the aggregate that made the sketches, or whose sketches they become",
        )
    return sketch, f"{where}({column!r}, like={like!r})"
