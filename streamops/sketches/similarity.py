"""How alike the sets of two columns of sketches are."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.errors import SpecError
from streamops.sketches.core.stored import revived
from streamops.sketches.expressions import expression
from streamops.sketches.minhash import MinHashSketch
from streamops.spark.columns import require_name

__all__ = ["similarity"]


def similarity(left: str, right: str, *, like: MinHashSketch) -> Column:
    """How alike the sets of two columns of sketches are, row by row: ``double``, 0 to 1.

    Parameters
    ----------
    left, right : str
        Sketches, as :func:`minhash_sketch` made them. Where one is null the result is null; where
        both are empty it is NaN.
    like : MinHashSketch
        The aggregate that made them.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NOT_A_MINHASH_SKETCH``: `like` is another aggregate.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> alike = similarity("today", "yesterday", like=minhash_sketch("user"))  # doctest: +SKIP
    >>> pages.select("page", alike.alias("alike"))  # doctest: +SKIP
    """
    where = "sketches.similarity"
    for name, column in (("left", left), ("right", right)):
        require_name(column, parameter=name, where=where)
    if not isinstance(like, MinHashSketch):
        raise SpecError(
            "NOT_A_MINHASH_SKETCH",
            "`like` does not say which sketches of sets these are",
            where=where,
            got=f"like={like!r}",
            expected="the minhash_sketch(...) that made them",
            fix="pass the same aggregate that stands in the `agg` of the windows before",
        )
    sketch, place = like.sketch(None, where), f"{where}({left!r}, {right!r}, like={like!r})"

    def answer(one: pa.Array, other: pa.Array) -> pa.Array:
        states = (revived(sketch, blobs, where=place)[0] for blobs in (one, other))
        return pa.array(sketch.similarities(*states))

    return expression(answer, pa.float64(), left, right)
