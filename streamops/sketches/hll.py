"""HyperLogLog sketches: the number of distinct values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.parameters import require_package
from streamops.sketches import conditions
from streamops.sketches.aggregation import (
    SketchAggregate,
    require_item,
    require_range,
    spark_items,
)
from streamops.sketches.core.hyperloglog import HyperLogLog, from_serialized
from streamops.sketches.minhash import datasketch_hash
from streamops.sketches.stored import SketchType, StoredSketch, make_by

_LEAST, _MOST = 4, 16


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Hll(SketchAggregate):
    """Distinct values by ``2**p`` registers."""

    p: int = 12

    instead: ClassVar[str] = "aggregates.count_distinct(column, at_most=...)"

    def __post_init__(self) -> None:
        example = "12, the default (4 KB per key, 1.6 % standard error)"
        require_range(self.p, "p", _LEAST, _MOST, example=example)

    def sketch(self, dtype: pa.DataType | None) -> HyperLogLog:
        """The sketch over a column of this type."""
        require_item(dtype, column=self.column)
        return HyperLogLog(self.column, self.p)

    def hash_of(self, first: int, second: int) -> int:
        """The hash of an item for datasketch, from the halves of its MurmurHash3."""
        return (second >> self.p << self.p) | (first & ((1 << self.p) - 1))

    def to_spark(self, *, time: str | None = None) -> Column:
        """Spark's sketch of the same values, or its estimate: a ``bigint``, without bounds.

        The sketch is the same, but its bytes have no frame: see ``from_datasketches``. The estimate may
        differ: Spark's can depend on the order of arrival. So windows never use this expression.
        """
        found = F.hll_sketch_agg(spark_items(self.column), F.lit(self.p))
        return found if self.is_stored else F.hll_sketch_estimate(found)


def approx_count_distinct(column: str, *, p: int = 12) -> Hll:
    """Approximate number of distinct values; nulls are not counted.

    ``struct<estimate: bigint, lower: bigint, upper: bigint, relative_error: double>``: the bounds are two
    standard errors away (95 % confidence), the relative error is the standard error. Up to ``3 * 2**(p - 5)`` distinct values (7 for ``p < 8``)
    the estimate is almost exact. Beyond that the standard error is ``1.04 / sqrt(2**p)``.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    p : int
        From 4 to 16. The state of a group takes at most ``2**p`` bytes, and 4 bytes per value while
        the estimate is almost exact. 12: 4 KB, 1.6 %. 14: 16 KB, 0.8 %.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> approx_count_distinct("user_id")
    approx_count_distinct('user_id', p=12)

    See Also
    --------
    hll_sketch_agg : the sketch itself, to be stored and merged.

    References
    ----------
    Flajolet, Fusy, Gandouet, Meunier: "HyperLogLog: the analysis of a near-optimal cardinality
    estimation algorithm", 2007. Ertl: "New cardinality estimation algorithms for
    HyperLogLog sketches", 2017.
    """
    return Hll(function="approx_count_distinct", column=column, is_stored=False, p=p)


def hll_sketch_agg(column: str, *, p: int = 12) -> Hll:
    """The sketch of :func:`approx_count_distinct` as bytes: to be stored and merged.

    Examples
    --------
    >>> hll_sketch_agg("user_id", p=14)
    hll_sketch_agg('user_id', p=14)
    """
    return Hll(function="hll_sketch_agg", column=column, is_stored=True, p=p)


class StoredHll(StoredSketch):
    """A stored HyperLogLog sketch, as :func:`~streamops.sketches.read` returns it.

    Examples
    --------
    >>> from datasketch import HyperLogLogPlusPlus
    >>> hashfunc = datasketch_hash(hll_sketch_agg("user", p=12))
    >>> theirs = HyperLogLogPlusPlus(12, hashfunc=hashfunc)
    >>> for user in ("ann", "bob", "ann"):
    ...     theirs.update(user)
    >>> StoredHll.from_datasketch(theirs).estimate()["estimate"]
    2
    """

    __slots__ = ()

    @classmethod
    def from_datasketches(cls, image: bytes) -> StoredHll:
        """Read an image of Apache DataSketches, of any type, compact or not.

        Its items are those of streamops if they were longs: values of Spark's ``xxhash64``. A sketch of
        other values, such as strings, has other items; merged, both would count a value twice.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: the bytes are not a DataSketches image. ``SKETCH_PARAMETERS``: its p is not from 4 to 16.
        """
        image = bytes(image)
        p = image[3] if len(image) > 3 else _MOST
        if not _LEAST <= p <= _MOST:
            raise conditions.PRECISION_UNSUPPORTED.error(
                where="StoredHll.from_datasketches", least=_LEAST, most=_MOST, got=f"p={p}"
            )
        sketch = HyperLogLog("", p)
        return cls.of(sketch, sketch.from_images(pa.array([image], pa.binary())))

    def to_datasketch(self) -> Any:
        """A ``datasketch.HyperLogLogPlusPlus`` of the same items, which can be updated."""
        theirs = require_package("datasketch", package="datasketch", extra="datasketch")

        sketch = self.sketch
        assert isinstance(sketch, HyperLogLog)
        (registers,) = sketch.registers(self.states).astype(np.int8)
        hashfunc = datasketch_hash(hll_sketch_agg("items", p=sketch.p))
        return theirs.HyperLogLogPlusPlus(reg=registers, hashfunc=hashfunc)

    @classmethod
    def from_datasketch(cls, source: Any) -> StoredHll:
        """Read a ``HyperLogLogPlusPlus``, or the bytes of its ``serialize``.

        Its hash must be :func:`datasketch_hash` to be merged with sketches of streamops. It has no
        coupons, so small numbers are counted less exactly.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: a register is out of range, which datasketch does not check, the
            length is wrong, or it is something else, for instance a ``HyperLogLog``, whose hash is
            too short.
        """
        theirs = require_package("datasketch", package="datasketch", extra="datasketch")

        if isinstance(source, theirs.HyperLogLogPlusPlus):
            registers = source.reg.astype(np.int64)
            one_byte = np.where((registers >= 0) & (registers < 255), registers, 255)
            source = bytes([source.p, *one_byte.tolist()])
        if not isinstance(source, bytes | bytearray | memoryview):
            raise conditions.SKETCH_FOREIGN.error(
                where="StoredHll.from_datasketch", got=type(source).__name__
            )
        blob = bytes(source)
        p = blob[0] if blob and _LEAST <= blob[0] <= _MOST else _MOST
        return cls.of(HyperLogLog("", p), from_serialized(pa.array([blob], pa.binary()), p))


SKETCH_TYPE = SketchType(HyperLogLog.format, make_by(Hll), StoredHll)
