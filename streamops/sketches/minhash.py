"""MinHash: similarity of sets; exchange with the package datasketch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.errors import SketchFormatError, SpecError
from streamops.kernel.hashing import xxhash64
from streamops.sketches.aggregation import SketchAggregate, require_item
from streamops.sketches.core.contract import Parameter
from streamops.sketches.core.hashes import murmur3
from streamops.sketches.core.minhash import SCHEMES, MinHash
from streamops.sketches.core.stored import revived
from streamops.sketches.expressions import expression
from streamops.sketches.stored import SketchType, StoredSketch
from streamops.spark.columns import require_name

__all__ = [
    "SKETCH_TYPE",
    "MinHashSketch",
    "StoredMinHash",
    "minhash_hash",
    "minhash_sketch_agg",
    "similarity",
]

_MOST = 1 << 16
_SEEDS = 1 << 32
_CODES = {"affine32": 1, "affine64": 2}


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class MinHashSketch(SketchAggregate):
    """A sketch that similarity is asked of. Made by :func:`minhash_sketch_agg`.

    Parameters
    ----------
    permutations, seed, scheme
        See there.

    Raises
    ------
    SpecError
        ``PERMUTATIONS_OUT_OF_RANGE``.
    """

    permutations: int = 128
    seed: int = 1
    scheme: str = "affine32"

    instead: ClassVar[str] = "aggregates.collect_list(column, at_most=..., tie_break=...)"

    def __post_init__(self) -> None:
        SketchAggregate.__post_init__(self)
        if not _is_known(self.permutations, self.seed, self.scheme):
            _refuse_functions(self.permutations, self.seed, self.scheme)

    def sketch(self, dtype: pa.DataType | None, where: str) -> MinHash:
        """The sketch over a column of this type."""
        if dtype is not None:
            require_item(dtype, column=self.column, where=where)
        return MinHash(self.column, self.permutations, self.seed, self.scheme)


def minhash_sketch_agg(
    column: str, *, permutations: int = 128, seed: int = 1, scheme: str = "affine32"
) -> MinHashSketch:
    """A sketch of the set of values, as framed bytes: two of them say how alike their sets are.

    Read with :func:`~streamops.sketches.read`, one tells its ``similarity`` to another, and so does
    ``similarity`` of two columns: the share of the values of both that are in each. The standard error of a similarity J is
    ``sqrt(J * (1 - J) / permutations)``: with 128 at most 0.044. It also estimates how many
    distinct values there are, with a relative error of ``1 / sqrt(permutations)``; nulls are not
    counted. ``approx_count_distinct`` does that better.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    permutations : int
        From 2 to 65,536: how many values are kept, of 4 bytes each.
    seed : int
        From 0 to ``2**32 - 1``. Sketches of one seed may be compared.
    scheme : "affine32", "affine64" or "legacy"
        How datasketch computes: the second takes 8 bytes, for sets of more than 100 million; the
        third is what it did before its version 2.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``PERMUTATIONS_OUT_OF_RANGE``.

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
    """A sketch of a set, as :func:`~streamops.sketches.read` returns it.

    Examples
    --------
    >>> from datasketch import MinHash
    >>> first, second = (MinHash(hashfunc=minhash_hash()) for _ in range(2))
    >>> first.update_batch(range(0, 300))
    >>> second.update_batch(range(100, 300))
    >>> mine, other = (StoredMinHash.from_datasketch(each) for each in (first, second))
    >>> 0.5 < mine.similarity(other) < 0.8  # two thirds
    True
    """

    __slots__ = ()

    def similarity(self, other: StoredSketch) -> float:
        """The share of the items of both that each of them has: 0 to 1; NaN of two empty ones.

        Raises
        ------
        SketchFormatError
            ``SKETCH_KIND``, ``SKETCH_VERSION`` or ``SKETCH_PARAMETERS``: they cannot be compared.
        """
        self.merge(other)  # refuses what cannot be compared
        (share,) = self._core.similarities(self.states[0], other.states[0])
        return float(share)

    def to_datasketch(self) -> Any:
        """A ``datasketch.MinHash`` that has seen the same, and can go on."""
        from datasketch import MinHash as Theirs

        core = self._core
        least = core.least(self.states[0])
        values = least[0] if len(least) else np.full(core.permutations, _largest(core.scheme))
        bits = 64 if core.scheme == "affine64" else 32
        return Theirs(
            seed=core.seed,
            hashvalues=values,
            scheme=core.scheme,
            hashfunc=minhash_hash(bits),
        )

    @classmethod
    def from_datasketch(cls, source: Any) -> StoredMinHash:
        """The sketch of a ``MinHash`` or ``LeanMinHash``, or of bytes of the latter's ``serialize``.

        Bytes in this machine's order, with the gap that it leaves in them, or little-endian without
        one. Compared with others it says what is right if its hash was :func:`minhash_hash`, and
        only then; with those that datasketch made by its own hash, whatever that was.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: bytes are missing or left, or say what there is not.
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


def minhash_hash(bits: int = 32, dtype: pa.DataType | None = None) -> Callable[[Any], int]:
    """The hash with which datasketch's ``MinHash`` sees what is seen here: its ``hashfunc``.

    Parameters
    ----------
    bits : int
        32; or 64, for the scheme "affine64".
    dtype : DataType, optional
        Arrow's type of the values, where it is not the one that Arrow takes their Python type
        for: an ``int`` is a bigint, a ``float`` a double.
    """
    mask = (1 << bits) - 1

    def hashed(value: Any) -> int:
        first, _ = murmur3(xxhash64([pa.array([value], dtype)]))
        return int(first[0]) & mask

    return hashed


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


def _refuse_functions(permutations: object, seed: object, scheme: object) -> NoReturn:
    raise SpecError(
        "PERMUTATIONS_OUT_OF_RANGE",
        "there are no such functions of MinHash",
        where="sketches.minhash_sketch_agg",
        got=f"permutations={permutations!r}, seed={seed!r}, scheme={scheme!r}",
        expected=f"permutations from 2 to {_MOST:,}, a seed from 0 to 2**32 - 1, and one of: "
        + ", ".join(SCHEMES),
        fix="leave out what is not needed: minhash_sketch_agg(column)",
    )


def _refuse_source(got: str) -> NoReturn:
    raise SketchFormatError(
        "SKETCH_CORRUPT",
        "this is no MinHash of datasketch",
        where="StoredMinHash.from_datasketch",
        got=got,
        expected=f"a MinHash of 2 to {_MOST:,} permutations and a seed from 0 to 2**32 - 1, or what "
        "LeanMinHash.serialize wrote of one",
        fix="take it from where it was made, or make it anew",
    )


def _of(parameters: Mapping[str, Parameter]) -> MinHash:
    names = ("permutations", "seed", "scheme")
    permutations, seed, scheme = (parameters[name] for name in names)
    if len(parameters) > len(names) or not _is_known(permutations, seed, scheme):
        message = f"permutations from 2 to {_MOST:,}, a seed, and a scheme of datasketch"
        raise ValueError(message)
    return MinHash("", int(permutations), int(seed), str(scheme))


SKETCH_TYPE = SketchType(MinHash.format, _of, StoredMinHash)


def similarity(left: str, right: str, *, like: MinHashSketch) -> Column:
    """How alike the sets of two columns of sketches are, row by row: ``double``, 0 to 1.

    Parameters
    ----------
    left, right : str
        Sketches, as :func:`minhash_sketch_agg` made them. Where one is null the result is null; where
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
    >>> alike = similarity("today", "yesterday", like=minhash_sketch_agg("user"))  # doctest: +SKIP
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
            expected="the minhash_sketch_agg(...) that made them",
            fix="pass the same aggregate that stands in the `agg` of the windows before",
        )
    sketch, location = like.sketch(None, where), f"{where}({left!r}, {right!r}, like={like!r})"

    def answer(one: pa.Array, other: pa.Array) -> pa.Array:
        states = (revived(sketch, blobs, where=location)[0] for blobs in (one, other))
        return pa.array(sketch.similarities(*states))

    return expression(answer, pa.float64(), left, right)
