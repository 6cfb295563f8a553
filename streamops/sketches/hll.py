"""HyperLogLog for users: how many distinct values, as an aggregate and as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.errors import SketchFormatError, SpecError
from streamops.kernel.hashing import xxhash64
from streamops.sketches.aggregation import SketchAggregate, require_item
from streamops.sketches.core.contract import Parameter
from streamops.sketches.core.hashes import murmur3
from streamops.sketches.core.hyperloglog import HyperLogLog, from_serialized
from streamops.sketches.stored import SketchType, StoredSketch
from streamops.spark.columns import column as quoted

__all__ = [
    "SKETCH_TYPE",
    "Hll",
    "StoredHll",
    "approx_count_distinct",
    "datasketch_hash",
    "hll_sketch_agg",
]

_LEAST, _MOST = 4, 16


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Hll(SketchAggregate):
    """Distinct values by HyperLogLog. Made by :func:`approx_count_distinct` and :func:`hll_sketch_agg`.

    Parameters
    ----------
    p : int
        Its ``2**p`` registers.

    Raises
    ------
    SpecError
        ``PRECISION_OUT_OF_RANGE``.
    """

    p: int = 12

    instead: ClassVar[str] = "aggregates.count_distinct(column, at_most=...)"

    def __post_init__(self) -> None:
        SketchAggregate.__post_init__(self)
        if not _is_precision(self.p):
            _refuse_precision(self.p, self.where)

    def sketch(self, dtype: pa.DataType | None, where: str) -> HyperLogLog:
        """The sketch over a column of this type."""
        if dtype is not None:
            require_item(dtype, column=self.column, where=where)
        return HyperLogLog(self.column, self.p)

    def to_spark(self, *, time: str | None = None) -> Column:
        """Spark's own sketch of the same values, or its estimate: a ``bigint``, without bounds.

        The sketch is the same, but not its bytes: it has no frame. See ``from_datasketches``. The
        estimate may be another: Spark's depends on the order of arrival where it can. So this
        aggregate is not native, and windows never replace it.
        """
        # To Spark's hash a null is a number like others.
        item = F.when(quoted(self.column).isNotNull(), F.xxhash64(quoted(self.column)))
        found = F.hll_sketch_agg(item, F.lit(self.p))
        return found if self.is_stored else F.hll_sketch_estimate(found)


def approx_count_distinct(column: str, *, p: int = 12) -> Hll:
    """About how many distinct values; nulls are not counted.

    A struct: ``estimate``, its bounds ``lower`` and ``upper`` at two standard errors (19 of 20
    estimates are less far off), and ``relative_error``, the standard error. Up to ``3 * 2**(p - 5)``
    distinct values (7, where ``p < 8``) are counted, all but exactly; beyond that the standard
    error is ``1.04 / sqrt(2**p)``.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    p : int
        From 4 to 16. The state of a group takes ``2**p`` bytes at most, and 4 bytes per value while
        these are counted. 12: 4 KB, 1.6 %. 14: 16 KB, 0.8 %.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``PRECISION_OUT_OF_RANGE``.

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
    estimation algorithm", 2007. Heule, Nunkesser, Hall: "HyperLogLog in Practice", 2013.
    """
    return Hll(function="approx_count_distinct", column=column, is_stored=False, p=p)


def hll_sketch_agg(column: str, *, p: int = 12) -> Hll:
    """The sketch of :func:`approx_count_distinct` itself, as framed bytes: to be stored and merged.

    Examples
    --------
    >>> hll_sketch_agg("user_id", p=14)
    hll_sketch_agg('user_id', p=14)
    """
    return Hll(function="hll_sketch_agg", column=column, is_stored=True, p=p)


class StoredHll(StoredSketch):
    """A sketch of distinct values, as :func:`~streamops.sketches.read` returns it.

    Examples
    --------
    >>> from datasketch import HyperLogLogPlusPlus
    >>> theirs = HyperLogLogPlusPlus(12, hashfunc=datasketch_hash(12))
    >>> for user in ("ann", "bob", "ann"):
    ...     theirs.update(user)
    >>> StoredHll.from_datasketch(theirs).estimate()["estimate"]
    2
    """

    __slots__ = ()

    def to_datasketches(self) -> bytes:
        """The image that Apache DataSketches reads, and Spark's ``hll_*`` functions with it."""
        (image,) = self._core.images(self.states).to_pylist()
        return bytes(image)

    @classmethod
    def from_datasketches(cls, image: bytes) -> StoredHll:
        """The sketch of such an image: of any type, compact or not.

        Their items are ours where they were longs: values of Spark's ``xxhash64``. Sketches of
        other things, of strings for instance, have other items; merged, the two would count a
        value twice.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: it is none. ``SKETCH_PARAMETERS``: of a p that is not known here.
        """
        image = bytes(image)
        p = image[3] if len(image) > 3 else _MOST
        if not _is_precision(p):
            raise SketchFormatError(
                "SKETCH_PARAMETERS",
                "this sketch has a precision that is not known here",
                where="StoredHll.from_datasketches",
                got=f"p={p}",
                expected=f"p from {_LEAST} to {_MOST}",
                fix="make it anew with such a precision, or let Apache's union lower it",
            )
        sketch = HyperLogLog("", p)
        return cls.of(sketch, sketch.from_images(pa.array([image], pa.binary())))

    def to_datasketch(self) -> Any:
        """A ``datasketch.HyperLogLogPlusPlus`` that has counted the same, and can go on."""
        from datasketch import HyperLogLogPlusPlus

        (registers,) = self._core.registers(self.states).astype(np.int8)
        return HyperLogLogPlusPlus(reg=registers, hashfunc=datasketch_hash(self._core.p))

    @classmethod
    def from_datasketch(cls, source: Any) -> StoredHll:
        """The sketch of a ``HyperLogLogPlusPlus``, or of the bytes that its ``serialize`` wrote.

        Merged with others it counts what is right if its hash was :func:`datasketch_hash`, and only
        then. It has no coupons, so that few values are counted less exactly than elsewhere.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: a register is out of range, which datasketch does not check; or
            bytes are missing or left. ``SKETCH_FOREIGN``: it is something else, for instance a
            ``HyperLogLog``, whose hash is too short.
        """
        from datasketch import HyperLogLogPlusPlus

        if isinstance(source, HyperLogLogPlusPlus):
            registers = source.reg.astype(np.int64)
            one_byte = np.where((registers >= 0) & (registers < 255), registers, 255)
            source = bytes([source.p, *one_byte.tolist()])
        if not isinstance(source, bytes | bytearray | memoryview):
            raise SketchFormatError(
                "SKETCH_FOREIGN",
                "this is no sketch of datasketch that can be taken over",
                where="StoredHll.from_datasketch",
                got=type(source).__name__,
                expected="a HyperLogLogPlusPlus, or the bytes that its serialize wrote",
                fix="count with HyperLogLogPlusPlus(p, hashfunc=datasketch_hash(p))",
            )
        blob = bytes(source)
        p = blob[0] if blob else _MOST
        p = p if _is_precision(p) else _MOST
        return cls.of(HyperLogLog("", p), from_serialized(pa.array([blob], pa.binary()), p))

    @property
    def _core(self) -> HyperLogLog:
        assert isinstance(self.sketch, HyperLogLog)
        return self.sketch


def datasketch_hash(p: int, dtype: pa.DataType | None = None) -> Callable[[Any], int]:
    """The hash with which datasketch counts as it is counted here: its ``hashfunc``.

    Parameters
    ----------
    p : int
        That of the ``HyperLogLogPlusPlus``.
    dtype : DataType, optional
        Arrow's type of the values, where it is not the one that Arrow takes their Python type
        for: an ``int`` is a bigint, a ``float`` a double.

    Raises
    ------
    SpecError
        ``PRECISION_OUT_OF_RANGE``.

    Examples
    --------
    >>> datasketch_hash(12)("ann") == datasketch_hash(12, pa.int32())(7)
    False
    """
    if not _is_precision(p):
        _refuse_precision(p, "sketches.datasketch_hash")

    def hashed(value: Any) -> int:
        first, second = murmur3(xxhash64([pa.array([value], dtype)]))
        return (int(second[0]) >> p << p) | (int(first[0]) & ((1 << p) - 1))

    return hashed


def _is_precision(p: object) -> bool:
    return type(p) is int and _LEAST <= p <= _MOST


def _refuse_precision(p: object, where: str) -> NoReturn:
    raise SpecError(
        "PRECISION_OUT_OF_RANGE",
        "`p` is out of range",
        where=where,
        got=f"p={p!r}",
        expected=f"a whole number from {_LEAST} to {_MOST}",
        fix="use the default, p=12 (4 KB per key, 1.6 % standard error)",
    )


def _of(parameters: Mapping[str, Parameter]) -> HyperLogLog:
    p = parameters["p"]
    if not _is_precision(p) or len(parameters) > 1:
        message = f"p from {_LEAST} to {_MOST}"
        raise ValueError(message)
    assert isinstance(p, int)
    return HyperLogLog("", p)


SKETCH_TYPE = SketchType(HyperLogLog.format, _of, StoredHll)
