"""MinHash sketches: similarity of sets; and the hashes of the package datasketch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.hashing import xxhash64
from streamops.kernel.parameters import Text, require_package
from streamops.sketches import conditions
from streamops.sketches.aggregation import SketchAggregate, refuse_like, require_item
from streamops.sketches.core.items import murmur3
from streamops.sketches.core.minhash import SCHEMES, MinHash
from streamops.sketches.stored import SketchType, StoredSketch, compare_columns, make_by

_MOST = 1 << 16
_SEEDS = 1 << 32
_CODES = {"affine32": 1, "affine64": 2}


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class MinHashSketch(SketchAggregate):
    """A sketch of the similarity of sets."""

    permutations: int = 128
    seed: int = 1
    scheme: str = "affine32"

    instead: ClassVar[str] = "aggregates.collect_list(column, at_most=..., tie_break=...)"

    def __post_init__(self) -> None:
        permutations, seed, scheme = self.permutations, self.seed, self.scheme
        if not _is_known(permutations, seed, scheme):
            raise conditions.PERMUTATIONS_OUT_OF_RANGE.error(
                expected=f"permutations from 2 to {_MOST:,}, a seed from 0 to 2**32 - 1, and one of: "
                + ", ".join(SCHEMES),
                got=f"permutations={permutations!r}, seed={seed!r}, scheme={scheme!r}",
            )

    def sketch(self, dtype: pa.DataType | None) -> MinHash:
        """The sketch over a column of this type."""
        require_item(dtype, column=self.column)
        return MinHash(self.column, self.permutations, self.seed, self.scheme)

    def hash_of(self, first: int, second: int) -> int:
        """The hash of an item for datasketch, from the halves of its MurmurHash3."""
        return first if self.scheme == "affine64" else first & 0xFFFFFFFF


def minhash_sketch_agg(
    column: str, *, permutations: int = 128, seed: int = 1, scheme: Text = "affine32"
) -> MinHashSketch:
    """A sketch of a set of values, as bytes, that estimates its similarity to other sets.

    :func:`similarity` compares two columns, and ``read(blob).similarity(other)`` two values: the share of
    the values of either set that are in both. The standard error of a similarity J is
    ``sqrt(J * (1 - J) / permutations)``: with 128 at most 0.044. The sketch also estimates the number of
    distinct values, with a relative error of ``1 / sqrt(permutations)``, less exactly than
    ``approx_count_distinct``. Nulls are not counted.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    permutations : int
        From 2 to 65,536: stored values, of 4 bytes each.
    seed : int
        From 0 to ``2**32 - 1``. Only sketches with the same seed can be compared.
    scheme : "affine32", "affine64" or "legacy"
        The functions of datasketch: "affine64" takes 8 bytes per value, for sets of more than 100
        million values; "legacy" is that of datasketch before its version 2.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> minhash_sketch_agg("user_id")
    minhash_sketch_agg('user_id', permutations=128, seed=1, scheme='affine32')

    References
    ----------
    Broder: "On the resemblance and containment of documents", 1997.
    """
    return MinHashSketch(
        function="minhash_sketch_agg",
        column=column,
        is_stored=True,
        permutations=permutations,
        seed=seed,
        scheme=scheme,
    )


class StoredMinHash(StoredSketch):
    """A stored MinHash sketch, as :func:`~streamops.sketches.read` returns it.

    Examples
    --------
    >>> from datasketch import MinHash
    >>> hashfunc = datasketch_hash(minhash_sketch_agg("user"))
    >>> first, second = (MinHash(hashfunc=hashfunc) for _ in range(2))
    >>> first.update_batch(range(0, 300))
    >>> second.update_batch(range(100, 300))
    >>> one, other = map(StoredMinHash.from_datasketch, (first, second))
    >>> 0.5 < one.similarity(other) < 0.8  # two thirds
    True
    """

    __slots__ = ()

    def similarity(self, other: StoredSketch) -> float:
        """The share of the items of either set that are in both: 0 to 1; NaN if both are empty.

        Raises
        ------
        SketchFormatError
            ``SKETCH_KIND``, ``SKETCH_UNSUPPORTED`` or ``SKETCH_PARAMETERS``: they cannot be compared.
        """
        (states,) = self._states_of(other)
        (share,) = self._core.similarities(self.states[0], states)
        return float(share)

    def to_datasketch(self) -> Any:
        """A ``datasketch.MinHash`` of the same items, which can be updated."""
        theirs = require_package("datasketch", package="datasketch", extra="datasketch")

        core = self._core
        least = core.least(self.states[0])
        values = least[0] if len(least) else np.full(core.permutations, _largest(core.scheme))
        hashfunc = datasketch_hash(minhash_sketch_agg("items", scheme=core.scheme))
        return theirs.MinHash(
            seed=core.seed, hashvalues=values, scheme=core.scheme, hashfunc=hashfunc
        )

    @classmethod
    def from_datasketch(cls, source: Any) -> StoredMinHash:
        """Read a ``MinHash`` or ``LeanMinHash``, or the bytes of ``LeanMinHash.serialize``.

        Bytes are in this machine's order, with the padding of ``serialize``, or little-endian without it.
        Its hash must be :func:`datasketch_hash` to be compared with sketches of streamops; sketches of
        datasketch that have the same hash can be compared with each other.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: the length or the parameters are wrong.
        """
        if isinstance(source, bytes | bytearray | memoryview):
            return cls._parsed(bytes(source))
        scheme = getattr(source, "scheme", "legacy")  # before version 2 there was no other
        values = getattr(source, "hashvalues", None)
        if (
            values is None
            or not _is_known(len(values), getattr(source, "seed", None), scheme)
            or int(values.max()) > _largest(scheme)
        ):
            _refuse_source(type(source).__name__)
        return cls._of(source.seed, scheme, values)

    @classmethod
    def _parsed(cls, blob: bytes) -> StoredMinHash:
        seed = int.from_bytes(blob[:8], "little", signed=True)
        count = int.from_bytes(blob[8:12], "little", signed=True)
        schemes = {code: scheme for scheme, code in _CODES.items()}
        scheme, starts = "legacy", {12}
        if count < 0:
            scheme, starts = schemes.get(blob[12] if len(blob) > 12 else 0, ""), {13, 16}
        if not _is_known(abs(count), seed, scheme):
            _refuse_source(f"{len(blob)} bytes that begin with {blob[:16].hex(' ')}")
        start = len(blob) - SCHEMES[scheme] * abs(count)
        if start not in starts:
            _refuse_source(f"{len(blob)} bytes for {abs(count)} values of {scheme}")
        return cls._of(seed, scheme, np.frombuffer(blob[start:], f"<u{SCHEMES[scheme]}"))

    @classmethod
    def _of(cls, seed: int, scheme: str, values: Any) -> StoredMinHash:
        sketch = MinHash("", len(values), int(seed), scheme)
        empty = (values == _largest(scheme)).all()
        payload = b"" if empty else values.astype(f"<u{SCHEMES[scheme]}").tobytes()
        return cls.of(sketch, sketch.revive(pa.array([payload], pa.binary())))

    @property
    def _core(self) -> MinHash:
        assert isinstance(self.sketch, MinHash)
        return self.sketch


def datasketch_hash(
    like: SketchAggregate, dtype: pa.DataType | None = None
) -> Callable[[Any], int]:
    """The ``hashfunc`` with which the package datasketch computes the same sketch as `like`.

    Parameters
    ----------
    like : SketchAggregate
        ``hll_sketch_agg(...)`` for a ``HyperLogLogPlusPlus`` of the same p, ``minhash_sketch_agg(...)``
        for a ``MinHash`` of the same scheme.
    dtype : DataType, optional
        Arrow's type of the values. By default that of their Python type: an ``int`` is a bigint, a
        ``float`` a double.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: `like` is another aggregate.

    Examples
    --------
    >>> hashfunc = datasketch_hash(minhash_sketch_agg("user"))
    >>> hashfunc("ann") == hashfunc("bob")
    False
    """
    hash_of = getattr(like, "hash_of", None)
    if hash_of is None:
        expected = "hll_sketch_agg(...) or minhash_sketch_agg(...)"
        refuse_like(like, expected)

    def hash_value(value: Any) -> int:
        first, second = murmur3(xxhash64([pa.array([value], dtype)]))
        return int(hash_of(int(first[0]), int(second[0])))

    return hash_value


def _largest(scheme: str) -> int:
    return (1 << 8 * SCHEMES[scheme]) - 1


def _is_known(permutations: object, seed: object, scheme: object) -> bool:
    return (
        type(permutations) is int
        and 2 <= permutations <= _MOST
        and type(seed) is int
        and 0 <= seed < _SEEDS
        and scheme in SCHEMES
    )


def _refuse_source(got: str) -> NoReturn:
    raise conditions.NOT_A_MINHASH.error(where="StoredMinHash.from_datasketch", most=_MOST, got=got)


SKETCH_TYPE = SketchType(MinHash.format, make_by(MinHashSketch), StoredMinHash)


def similarity(left: str, right: str, *, like: MinHashSketch) -> Column:
    """The similarity of the sets of two columns of sketches, row by row: ``double``, 0 to 1.

    Parameters
    ----------
    left, right : str
        Sketches of :func:`minhash_sketch_agg`. The result is null if one is null, and NaN if both are
        empty.
    like : MinHashSketch
        The aggregate that made them.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: `like` is another aggregate.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> pages.select(similarity("today", "yesterday", like=minhash_sketch_agg("user")).alias("alike"))
    """
    if not isinstance(like, MinHashSketch):
        refuse_like(like, "minhash_sketch_agg(...)")
    sketch = like.sketch(None)

    def answer(one: list[pa.Array], other: list[pa.Array]) -> pa.Array:
        return pa.array(sketch.similarities(one[0], other[0]))

    return compare_columns("sketches.similarity", pa.float64(), answer, left, right, like)
