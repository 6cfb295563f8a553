"""Columns of sketches as Apache DataSketches, and Spark's own functions with it, have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.errors import SketchFormatError, SpecError
from streamops.sketches.aggregation import SketchAggregate
from streamops.sketches.core.contract import Sketch
from streamops.sketches.core.stored import Sealed, revived
from streamops.sketches.expressions import expression
from streamops.spark.columns import require_name

__all__ = ["from_datasketches", "to_datasketches"]


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
    >>> image = to_datasketches("users", like=hll_sketch("user"))  # doctest: +SKIP
    >>> minutes.select(F.hll_sketch_estimate(image))  # doctest: +SKIP
    """
    where = "sketches.to_datasketches"
    require_name(column, parameter="column", where=where)
    sketch = _exchanged(like, where)
    place = f"{where}({column!r}, like={like!r})"

    def images(blobs: pa.Array) -> pa.Array:
        return sketch.images(revived(sketch, blobs, where=place))

    return expression(images, pa.binary(), column)


def from_datasketches(column: str, *, like: SketchAggregate) -> Column:
    """Apache's images in a column as stored sketches: to be merged with others, and asked.

    Spark's own sketches are such images: ``hll_sketch_agg(xxhash64(user), 12)`` has the items that
    ``hll_sketch("user", p=12)`` has, and ``theta_sketch_agg(xxhash64(user), 12)`` those of
    ``theta_sketch("user", k=4096)``. (It also counts a null, if it is not left out.) A sketch of
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
    place = f"{where}({column!r}, like={like!r})"

    def stored(images: pa.Array) -> pa.Array:
        try:
            states = sketch.from_images(images.cast(pa.binary()))
        except SketchFormatError as error:  # an image does not know where it stands
            facts = {"got": error.got, "expected": error.expected, "fix": error.fix}
            raise SketchFormatError(error.code, error.what, where=place, **facts) from None
        return Sealed(sketch).estimate(states)

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
        expected="hll_sketch(...), theta_sketch(...): an aggregate of which Apache has the sketch",
        fix="read the sketches in Python: sketches.read(blob)",
    )
