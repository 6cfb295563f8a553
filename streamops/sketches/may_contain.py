"""Membership in a Bloom filter, as a condition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.errors import SpecError
from streamops.sketches.bloom import StoredBloom
from streamops.sketches.core.filters import contained, positions
from streamops.sketches.core.types import flat_type
from streamops.sketches.expressions import as_item, mapped
from streamops.sketches.reading import StoredSketch, read
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name

__all__ = ["may_contain"]


def may_contain(filter: bytes | StoredSketch, column: Column | str) -> Column:
    """Whether a value may be in a Bloom filter: a condition for ``where`` and ``select``.

    In batch and stream; never null, and false where the value is. Spark hashes the values, and only
    their hashes pass through Python.

    Parameters
    ----------
    filter : bytes or StoredBloom
        Of a ``bloom_filter``, at hand where the plan is built. It is sent to the tasks once.
    column : Column or str
        Values, or the name of their column. Cast to the type of the values in the filter: what is none
        of that type, such as 1.5 of a ``bigint``, is not in it. Where that type is nested, the column must have it.

    Raises
    ------
    SketchFormatError
        The bytes are no sketch.
    SpecError
        ``NOT_A_BLOOM_FILTER``: it is another sketch; ``NOT_A_NAME``.

    Examples
    --------
    >>> blob = days.where("day = '2026-11-21'").first()["users"]  # doctest: +SKIP
    >>> events.where(~may_contain(blob, "user_id"))  # certainly new users  # doctest: +SKIP
    """
    where = "sketches.may_contain"
    stored = filter if isinstance(filter, StoredSketch) else read(filter)
    if not isinstance(stored, StoredBloom):
        raise SpecError(
            "NOT_A_BLOOM_FILTER",
            "`filter` does not tell which values are in it",
            where=where,
            got=f"a sketch of the kind {stored.kind!r}",
            expected="a Bloom filter",
            fix="make it by sketches.bloom_filter(...)",
        )
    if not isinstance(column, Column):
        require_name(column, parameter="column", where=where)
        column = quoted(column)
    shape, words = stored.core.shape, stored.filter
    kind = stored.core.type
    value = column if flat_type(kind) is None else as_item(column, kind)

    def run(items: pa.Array) -> pa.Array:
        asked = np.asarray(items)
        result = np.zeros(len(asked), np.bool_)
        result[contained(words, positions(shape, asked), np.arange(len(asked)))] = True
        return pa.array(result)

    return value.isNotNull() & mapped(run, pa.bool_(), F.xxhash64(value))
