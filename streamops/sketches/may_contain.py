"""Membership in a Bloom filter, as a condition of Spark's own."""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.errors import SpecError
from streamops.sketches.bloom import StoredBloom
from streamops.sketches.core.types import flat_type
from streamops.sketches.reading import StoredSketch, read
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name

__all__ = ["may_contain"]

_DIGITS = 7  # bits that a byte of ASCII has


def may_contain(filter: bytes | StoredSketch, column: Column | str) -> Column:
    """Whether a value may be in a Bloom filter: a condition that Spark computes by itself.

    For ``where`` and ``select``, in batch and stream: no Python takes part in it. Never null, and
    false where the value is.

    Parameters
    ----------
    filter : bytes or StoredBloom
        Of a ``bloom_filter``, at hand where the plan is built. Its bits become part of the plan: up
        to some megabytes.
    column : Column or str
        Values, or the name of their column. Cast to the type of the values in the filter: what cannot
        be cast is not in it. Where that type is nested, the column must have it.

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
    sketch = stored.core
    is_flat = flat_type(sketch.type) is not None
    value = column.try_cast(sketch.type) if is_flat else column
    # A byte of the filter is read as a character of ASCII: so with 7 bits, and without Python.
    spread = np.unpackbits(stored.filter.view(np.uint8), bitorder="little")
    spread.resize(-(-len(spread) // _DIGITS) * _DIGITS, refcheck=False)
    digits = np.packbits(spread.reshape(-1, _DIGITS), axis=1, bitorder="little")
    table, item, bits = F.lit(digits.tobytes()), F.xxhash64(value), F.lit(sketch.shape.bits)
    there = (_bit(table, item, bits, probe) for probe in range(sketch.shape.probes))
    return value.isNotNull() & reduce(and_, there)


def _bit(table: Column, item: Column, bits: Column, probe: int) -> Column:
    """Whether the bit of a probe is set: as ``positions`` says which. No product overflows."""
    word = F.xxhash64(F.lit(probe // 2), item)
    upper, lower = F.shiftrightunsigned(word, 32), word.bitwiseAND(F.lit(0xFFFFFFFF))
    half = lower if probe % 2 else upper
    at = F.shiftright(half * bits.cast("bigint"), 32)
    inside = at % F.lit(_DIGITS)
    place = ((at - inside) / F.lit(_DIGITS)).cast("int") + F.lit(1)
    byte = F.ascii(F.substring(table, place, F.lit(1)).cast("string"))
    return F.getbit(byte, inside.cast("int")) == F.lit(1)
