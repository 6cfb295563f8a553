"""Theta sketches: distinct values, with set operations; and the overlaps of audiences."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.aggregation import Summary
from streamops.kernel.errors import located
from streamops.sketches import conditions
from streamops.sketches.aggregation import (
    SketchAggregate,
    no_spark,
    refuse_like,
    require_column,
    require_item,
    spark_items,
)
from streamops.sketches.core.samples import Compared, Samples, beside
from streamops.sketches.core.sketch import Framed
from streamops.sketches.core.theta import PARTS, Overlap, Theta, compare_samples
from streamops.sketches.stored import SketchType, StoredSketch, compare_columns, make_by
from streamops.spark.columns import type_name

DEFAULT_K = 4_096
_LEAST, _MOST = 16, 65_536
_MOST_AUDIENCES = 16
_AUDIENCES = (str, bytes, int, dt.date)  # includes bool; and datetime, which is refused
_INSTEAD = "aggregates.count_distinct"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ThetaAggregate(SketchAggregate):
    """Distinct values by at most k hashes."""

    k: int = DEFAULT_K

    instead: ClassVar[str] = _INSTEAD

    def __post_init__(self) -> None:
        _require_k(self.k)

    def sketch(self, dtype: pa.DataType | None) -> Theta:
        """The sketch over a column of this type."""
        require_item(dtype, column=self.column)
        return Theta(self.column, self.k)

    def to_spark(self, *, time: str | None = None) -> Column:
        """Spark's sketch of the same values, or its estimate: a ``bigint``, without bounds.

        The sketch is the same, but its bytes are packed and have no frame: see ``from_datasketches``. So
        windows never use this expression.
        """
        found = F.theta_sketch_agg(spark_items(self.column), F.lit(self.k.bit_length() - 1))
        return found if self.is_stored else F.theta_sketch_estimate(found)


def approx_count_distinct_theta(column: str, *, k: int = DEFAULT_K) -> ThetaAggregate:
    """Approximate number of distinct values, by a theta sketch.

    ``struct<estimate: bigint, lower: bigint, upper: bigint, relative_error: double>``. Up to `k`
    distinct values it is exact. Beyond, the relative standard error is 1 / sqrt(k - 1), and the bounds are
    two standard errors away (95 % confidence). Nulls are not counted.

    A HyperLogLog sketch with the same error is eight times smaller. Theta sketches can be intersected
    and subtracted: :func:`theta_sketch_agg`, :func:`approx_overlap`.

    Parameters
    ----------
    column : str
        Of any type that has a hash: not maps.
    k : int
        Hashes stored per group, of eight bytes each: a power of two from 16 to 65,536. The error of
        1,024 is 3.1 %, of 4,096 1.6 %, of 16,384 0.8 %.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE`` or ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> approx_count_distinct_theta("user_id", k=1024)
    approx_count_distinct_theta('user_id', k=1024)

    References
    ----------
    Beyer et al.: "On Synopses for Distinct-Value Estimation Under Multiset Operations", 2007.
    Dasgupta et al.: "A Framework for Estimating Stream Expression Cardinalities", 2016.
    """
    return ThetaAggregate(
        function="approx_count_distinct_theta", column=column, is_stored=False, k=k
    )


def theta_sketch_agg(column: str, *, k: int = DEFAULT_K) -> ThetaAggregate:
    """A theta sketch of a column, to be stored: ``binary``, of at most 8 k bytes and about 60.

    :func:`merge` merges it, :func:`estimate` and :func:`read` query it, and :func:`union`,
    :func:`intersection`, :func:`difference` and :func:`overlap` compare it with others.

    Parameters
    ----------
    column : str
        Of any type that has a hash: not maps. Null is not counted.
    k : int
        See :func:`approx_count_distinct_theta`.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE`` or ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> per_hour = {"users": theta_sketch_agg("user_id")}
    """
    return ThetaAggregate(function="theta_sketch_agg", column=column, is_stored=True, k=k)


class StoredTheta(StoredSketch):
    """A stored theta sketch, which can be intersected with, subtracted from and compared with others.

    Like merging, these methods raise ``SKETCH_KIND``, ``SKETCH_UNSUPPORTED`` or ``SKETCH_PARAMETERS`` for a
    sketch of another type or `k`.
    """

    __slots__ = ()

    @classmethod
    def from_datasketches(cls, image: bytes, *, k: int = DEFAULT_K) -> Self:
        """Read an image of Apache DataSketches or of Spark's ``theta_sketch_agg``.

        Parameters
        ----------
        image : bytes
            A compact theta sketch, serial version 3 or 4, of seed 9001. To be merged with sketches of
            streamops, its items must be ``xxhash64`` of the values.
        k : int
            Maximum number of hashes, the lowest ones.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``.
        """
        with located("StoredTheta.from_datasketches"):
            _require_k(k)
        sketch = Theta("", k)
        return cls.of(sketch, sketch.from_images(pa.array([bytes(image)], pa.binary())))

    def intersection(self, *others: StoredSketch) -> Self:
        """The sketch of the items in all of these sketches."""
        found = self
        for other in others:
            samples = beside(*found._pair(other)).where([0, 1])
            found = self.of(self.sketch, samples.columns())
        return found

    def difference(self, other: StoredSketch) -> Self:
        """The sketch of the items in this sketch and not in the other one."""
        samples = beside(*self._pair(other)).where([0], [1])
        return self.of(self.sketch, samples.columns())

    def overlap(self, other: StoredSketch) -> dict[str, Any]:
        """The sizes of both sets: ``both``, ``only_left``, ``only_right``, ``either``, ``jaccard``."""
        sizes: dict[str, Any] = compare_samples(*self._pair(other))[0].as_py()
        return sizes

    def _pair(self, other: StoredSketch) -> tuple[Samples, Samples]:
        return Samples.of(*self.states), Samples.of(*self._states_of(other))


SKETCH_TYPE = SketchType(Theta.format, make_by(ThetaAggregate), StoredTheta)


def _require_k(k: object) -> None:
    if type(k) is not int or not _LEAST <= k <= _MOST or k & (k - 1):
        raise conditions.K_OUT_OF_RANGE.error(
            default_k=DEFAULT_K, least=_LEAST, most=_MOST, got=f"k={k!r}"
        )


def union(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """Theta sketches of the items in either of two columns of sketches, row by row: ``binary``.

    Parameters
    ----------
    left, right : str
        Columns of theta sketches. The result is null if one of them is null.
    like : ThetaAggregate
        The aggregate that made them: :func:`theta_sketch_agg` or :func:`approx_count_distinct_theta`,
        for its `k`.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: `like` is another aggregate.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> days.select(union("mobile", "web", like=theta_sketch_agg("user")).alias("all"))
    """
    return _combine("union", lambda sets, k: sets.either(k), left, right, like)


def intersection(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """Theta sketches of the items in both of two columns of sketches, row by row: ``binary``.

    Parameters and errors are those of :func:`union`.

    Examples
    --------
    >>> days.select(intersection("mobile", "web", like=theta_sketch_agg("user")).alias("both"))
    """
    return _combine("intersection", lambda sets, k: sets.where([0, 1]), left, right, like)


def difference(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """Theta sketches of the items in the left sketch and not in the right one: ``binary``.

    This is a difference of *sets*. For items that were retracted it is right only if none of them was
    added again afterwards: sketches do not store which came last.

    Parameters and errors are those of :func:`union`.

    Examples
    --------
    >>> days.select(difference("today", "before", like=theta_sketch_agg("user")).alias("new"))
    """
    return _combine("difference", lambda sets, k: sets.where([0], [1]), left, right, like)


def overlap(left: str, right: str, *, like: ThetaAggregate) -> Column:
    """Sizes of the overlap of theta sketches in two columns, row by row.

    ``struct<both, only_left, only_right, either, jaccard>``, each with its bounds, as in the pairs of
    :func:`approx_overlap`. Parameters and errors are those of :func:`union`.

    Examples
    --------
    >>> shared = overlap("mobile", "web", like=theta_sketch_agg("user"))
    >>> days.select(shared["both"]["estimate"], shared["jaccard"]["estimate"])
    """
    _require_theta(like)

    def run(one: list[pa.Array], other: list[pa.Array]) -> pa.Array:
        return compare_samples(Samples.of(*one), Samples.of(*other))

    return compare_columns("sketches.overlap", pa.struct(PARTS), run, left, right, like)


def _combine(
    name: str,
    combine: Callable[[Compared, int], Samples],
    left: str,
    right: str,
    like: ThetaAggregate,
) -> Column:
    """The sketches of a set operation on two columns."""
    _require_theta(like)
    sketch = like.sketch(None)

    def run(one: list[pa.Array], other: list[pa.Array]) -> pa.Array:
        sets = beside(Samples.of(*one), Samples.of(*other))
        return Framed(sketch).estimate(combine(sets, sketch.k).columns())

    return compare_columns(f"sketches.{name}", pa.binary(), run, left, right, like)


def _require_theta(like: object) -> None:
    if not isinstance(like, ThetaAggregate):
        refuse_like(like, "theta_sketch_agg(...)")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OverlapAggregate:
    """Distinct values of audiences, and of their overlaps."""

    column: str
    of: str
    between: tuple[Any, ...]
    k: int = DEFAULT_K

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require_audiences(self.between)
        _require_k(self.k)

    def __repr__(self) -> str:
        arguments = f"of={self.of!r}, between={list(self.between)!r}, k={self.k}"
        return f"approx_overlap({self.column!r}, {arguments})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, besides the event time."""
        return (self.column, self.of)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        for name in self.columns:
            require_column(name, schema, repr(self), _INSTEAD)
        require_item(schema.field(self.column).type, column=self.column)
        return Overlap(self.column, self.of, self._audiences(schema), self.k)

    def to_spark(self, *, time: str | None = None) -> Column:
        """The equivalent Spark expression: there is none."""
        raise no_spark("aggregates.approx_overlap", repr(self))

    def _audiences(self, schema: pa.Schema) -> pa.Array:
        dtype = schema.field(self.of).type
        try:
            if any(check(dtype) for check in _AUDIENCE_TYPES):
                return pa.array(self.between, dtype)
        except (pa.ArrowException, TypeError, OverflowError):
            pass
        raise conditions.AUDIENCE_TYPE.error(
            got=f"between={list(self.between)!r}, column {self.of!r} of type {type_name(dtype)}"
        )


_AUDIENCE_TYPES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean),
    *(pa.types.is_date, pa.types.is_binary, pa.types.is_large_binary),
)


def approx_overlap(
    column: str, *, of: str, between: Sequence[Any], k: int = DEFAULT_K
) -> OverlapAggregate:
    """Approximate number of distinct values of audiences, and of those that every two of them share.

    ``struct<audiences: array<...>, pairs: array<...>>``, in the order of `between`:

    - for each audience ``audience``, ``estimate``, ``lower``, ``upper``, ``relative_error``;
    - for each pair ``left``, ``right``, and the sizes of ``both``, ``only_left``, ``only_right`` and
      ``either``, each with those four fields; and ``jaccard``, the share of both among either:
      ``estimate``, ``lower``, ``upper``. It is null if both audiences are empty.

    Everything is exact while no audience has more than `k` distinct values. Beyond, the bounds are two
    standard errors away (95 % confidence). A small overlap is estimated from few of the `k` hashes: the
    relative error for a hundredth of an audience is ten times that of the audience. The sizes of a pair
    add up; the sizes of audiences are more exact, and may differ from them.

    Parameters
    ----------
    column : str
        The values, such as users. Of any type that has a hash: not maps. Null is not counted.
    of : str
        Column with the audience of a row, such as a campaign or a page. Rows of other audiences, and
        with a null, are ignored.
    between : sequence
        The audiences, 2 to 16 of them: strings, integers, booleans, dates or binary values.
    k : int
        Hashes stored per audience: see :func:`approx_count_distinct_theta`.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``INVALID_PARAMETER`` or ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> approx_overlap("user_id", of="campaign", between=["spring", "summer"])
    approx_overlap('user_id', of='campaign', between=['spring', 'summer'], k=4096)
    """
    given: Any = between
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    names = tuple(given) if is_list else given
    return OverlapAggregate(column=column, of=of, between=names, k=k)


def _require_audiences(between: object) -> None:
    if isinstance(between, tuple) and 2 <= len(between) <= _MOST_AUDIENCES:
        plain = (isinstance(v, _AUDIENCES) and not isinstance(v, dt.datetime) for v in between)
        if all(plain) and len(set(between)) == len(between):
            return
    raise conditions.NOT_AUDIENCES.error(
        most_audiences=_MOST_AUDIENCES,
        got=f"between={list(between) if isinstance(between, tuple) else between!r}",
    )
