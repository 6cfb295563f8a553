"""KLL sketches: quantiles and ranks of numbers, from little memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.errors import SchemaError, SpecError
from streamops.sketches.aggregation import SketchAggregate
from streamops.sketches.core.contract import Parameter
from streamops.sketches.core.kll import QuantileSketch, rank_error
from streamops.sketches.stored import SketchType, StoredSketch
from streamops.spark.columns import column as quoted
from streamops.spark.columns import type_name

__all__ = [
    "DEFAULT_K",
    "LEAST_K",
    "QUARTILES",
    "SKETCH_TYPE",
    "Kll",
    "StoredKll",
    "approx_percentile",
    "kll_sketch_agg",
    "refuse_k",
    "refuse_probabilities",
    "several",
]

DEFAULT_K = 200
LEAST_K, _MOST = 8, 65_535

QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The quantiles that a stored sketch returns by default."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Kll(SketchAggregate):
    """Quantiles of a column, by a KLL sketch. Made by :func:`approx_percentile`, :func:`kll_sketch_agg`.

    Parameters
    ----------
    percentage : tuple of float
        Which quantiles.
    k : int
        Values on the highest level.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``NO_PROBABILITY``, ``PROBABILITY_OUT_OF_RANGE`` or ``K_OUT_OF_RANGE``.
    """

    percentage: tuple[float, ...] = QUARTILES
    k: int = DEFAULT_K

    instead: ClassVar[str] = "aggregates.percentile"
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        SketchAggregate.__post_init__(self)
        where = self.where
        refuse_probabilities(self.percentage, where)
        refuse_k(self.k, where)

    def __repr__(self) -> str:
        requested = "" if self.is_stored else f", {[float(item) for item in self.percentage]!r}"
        return f"{self.function}({self.column!r}{requested}, k={self.k})"

    def sketch(self, dtype: pa.DataType | None, where: str) -> QuantileSketch:
        """The sketch over a column of this type."""
        if dtype is not None and not _is_number(dtype):
            raise SchemaError(
                "AGGREGATE_TYPE",
                f"{self!r} cannot be computed over this type",
                where=where,
                got=f"column {self.column!r} of type {type_name(dtype)}",
                expected="numbers",
                fix="cast the column, or pick a field of it",
            )
        return QuantileSketch(self.column, self.k, tuple(map(float, self.percentage)))

    def to_spark(self, *, time: str | None = None) -> Column:
        """Spark's own sketch of the same values, or its quantiles: ``array<double>``, without bounds.

        Within the same error, but not the same: its coins are drawn, and NaN is left out. The bytes of
        its sketch have no frame: see ``from_datasketches``. So an aggregate of this kind does not
        count as native, and windows never replace it.
        """
        sketch = F.kll_sketch_agg_double(quoted(self.column).cast("double"), F.lit(self.k))
        requested = F.array(*(F.lit(float(item)) for item in self.percentage))
        return sketch if self.is_stored else F.kll_sketch_get_quantile_double(sketch, requested)


def approx_percentile(column: str, percentage: Sequence[float], *, k: int = DEFAULT_K) -> Kll:
    """Quantiles of the values that are not null, within a stated error, from little memory.

    ``struct<quantiles: array<double>, lower: array<double>, upper: array<double>,
    rank_error: double, count: bigint>``. Quantile p is the least value that a share p of the
    values does not exceed: one that occurs, as in Spark's ``percentile_disc``. Up to k values it is
    exact. Beyond, it is the exact quantile of a probability that is off by `rank_error` at most: with
    a confidence of 99 %, for all percentages at once. `lower` and `upper` are the quantiles at
    both ends of that error, and so the truth lies between them with the same confidence.

    NaN is greater than any number, 0.0 and -0.0 are one, as in :func:`aggregates.percentile`. Values
    are kept as doubles: an integer beyond 2^53, or a decimal, as the double next to it. Of no
    value the three arrays are null.

    Parameters
    ----------
    column : str
        Numbers.
    percentage : sequence of float
        Which quantiles, from 0 (the least value) to 1 (the greatest).
    k : int
        From 8 to 65,535: how much is kept, some 3 k values of eight bytes at most. The error is
        2.296 / k^0.9723: 2.6 % for 100, 1.33 % for 200, 0.35 % for 800.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``NO_PROBABILITY``, ``PROBABILITY_OUT_OF_RANGE`` or ``K_OUT_OF_RANGE``.

    Examples
    --------
    The 99th percentile of the response time over five minutes:

    >>> from streamops import windows
    >>> slow = windows.tumbling(
    ...     "5 minutes",
    ...     time="ts",
    ...     by="service",
    ...     agg={"ms": approx_percentile("ms", [0.5, 0.99])},
    ...     delay="30 seconds",
    ... )

    See Also
    --------
    streamops.aggregates.percentile : exact, and keeps every value.

    References
    ----------
    Karnin, Lang, Liberty: "Optimal Quantile Approximation in Streams", 2016.
    """
    requested = several(percentage, column)
    return Kll(
        function="approx_percentile", column=column, is_stored=False, percentage=requested, k=k
    )


def kll_sketch_agg(column: str, *, k: int = DEFAULT_K) -> Kll:
    """A sketch of numbers that knows their quantiles, to be stored: ``binary``.

    It is merged by :func:`merge`, and asked by :func:`estimate`, for the least and the greatest
    value and the quartiles, or, ``like=approx_percentile(...)``, for any quantiles. Its error grows
    with no merging: it is that of the values, however they came together.

    Parameters
    ----------
    column : str
        Numbers. Null is not counted.
    k : int
        See :func:`approx_percentile`.

    Raises
    ------
    SpecError
        ``NOT_A_NAME`` or ``K_OUT_OF_RANGE``.

    Examples
    --------
    >>> per_minute = {"ms": kll_sketch_agg("ms")}
    """
    return Kll(function="kll_sketch_agg", column=column, is_stored=True, k=k)


def refuse_k(k: object, where: str) -> None:
    """Refuse what is no size of a KLL sketch."""
    if type(k) is not int or not LEAST_K <= k <= _MOST:
        raise SpecError(
            "K_OUT_OF_RANGE",
            "`k` is no size of a sketch of quantiles",
            where=where,
            got=f"k={k!r}",
            expected=f"an integer from {LEAST_K} to {_MOST:,}",
            fix=f"leave it out for {DEFAULT_K}: ranks are then off by {rank_error(DEFAULT_K):.2%}",
        )


def refuse_probabilities(percentage: Sequence[object], where: str) -> None:
    """Refuse percentages that are out of range."""
    for value in percentage:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:  # type: ignore[operator]
            raise SpecError(
                "PROBABILITY_OUT_OF_RANGE",
                "a probability is out of range",
                where=where,
                got=f"{value!r}",
                expected="a number from 0 to 1",
                fix="0.5 is the median, 0.99 what one value in a hundred exceeds",
            )


def several(percentage: object, column: object) -> tuple[float, ...]:
    """The percentages as a tuple, at least one."""
    requested: tuple[float, ...] = ()
    if isinstance(percentage, Iterable) and not isinstance(percentage, str):
        requested = tuple(percentage)
    if not requested:
        raise SpecError(
            "NO_PROBABILITY",
            "no quantile is asked for",
            where="aggregates.approx_percentile",
            got=f"percentage={percentage!r}",
            expected="a list of at least one number from 0 to 1",
            fix=f"approx_percentile({column!r}, [0.5, 0.99])",
        )
    return requested


def _is_number(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    )


@dataclass(frozen=True, slots=True)
class StoredKll(StoredSketch):
    """A sketch of numbers that was stored: asked for quantiles, and for the ranks of values."""

    @classmethod
    def from_datasketches(cls, image: bytes) -> Self:
        """The sketch that Apache DataSketches, or Spark's ``kll_sketch_agg_double``, has written.

        Parameters
        ----------
        image : bytes
            A compact ``kll_doubles_sketch``; its `k` is in it.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``.

        Examples
        --------
        >>> import datasketches
        >>> theirs = datasketches.kll_doubles_sketch(200)
        >>> for value in (3.0, 1.0, 2.0):
        ...     theirs.update(value)
        >>> StoredKll.from_datasketches(theirs.serialize()).quantile(0.5)
        2.0
        """
        sketch = QuantileSketch("", max(LEAST_K, int.from_bytes(image[4:6], "little")), QUARTILES)
        images = pa.array([bytes(image)], pa.binary())
        where = "StoredKll.from_datasketches"
        return cls.of(sketch, sketch.from_images(images, where=where))

    def to_datasketches(self) -> bytes:
        """A compact ``kll_doubles_sketch``, which Spark's ``kll_sketch_get_..._double`` read as well.

        Raises
        ------
        SketchFormatError
            ``SKETCH_HAS_NAN``.
        """
        (image,) = self._configured().images(self.states).to_pylist()
        return bytes(image)

    @property
    def count(self) -> int:
        """Values that it has seen."""
        return int(self.estimate()["count"])

    @property
    def rank_error(self) -> float:
        """How far a rank may be off, as a share of the values; 0 while it has them all."""
        return float(self.estimate()["rank_error"])

    def quantiles(self, probabilities: Sequence[float]) -> dict[str, Any]:
        """Quantiles, as in the result of :func:`approx_percentile`.

        Raises
        ------
        SpecError
            ``PROBABILITY_OUT_OF_RANGE``.
        """
        requested = tuple(probabilities)
        refuse_probabilities(requested, "StoredKll.quantiles")
        arguments: dict[str, Any] = self._configured(requested).estimate(self.states)[0].as_py()
        return arguments

    def quantile(self, probability: float) -> float | None:
        """One of them; None of no value."""
        found = self.quantiles([probability])["quantiles"]
        return None if found is None else float(found[0])

    def rank(self, value: float) -> float | None:
        """What share of the values is not above this one; None of no value."""
        found = self.ranks([value])
        return None if found is None else found[0]

    def ranks(self, values: Sequence[float]) -> list[float] | None:
        """The same of several: the distribution of what the sketch has seen, at these points.

        Each is off by `rank_error` at most, with a confidence of 99 %; the difference of two of
        them by 2.446 / k^0.9433, which for k = 200 is 1.65 %.
        """
        arguments: list[float] | None = self._configured().ranks(self.states, values)[0].as_py()
        return arguments

    def _configured(self, probabilities: tuple[float, ...] = QUARTILES) -> QuantileSketch:
        assert isinstance(self.sketch, QuantileSketch)
        return replace(self.sketch, probabilities=probabilities)


def _of(parameters: Mapping[str, Parameter]) -> QuantileSketch:
    k = parameters["k"]
    refuse_k(k, "sketches.kll")
    assert isinstance(k, int)
    return QuantileSketch("", k, QUARTILES)


SKETCH_TYPE = SketchType(QuantileSketch.format, _of, StoredKll)
