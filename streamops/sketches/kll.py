"""KLL sketches: quantiles and ranks of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.errors import located
from streamops.sketches.aggregation import (
    SketchAggregate,
    parse_percentages,
    require_percentages,
    require_range,
    wrong_type,
)
from streamops.sketches.core.kll import QuantileSketch, rank_error
from streamops.sketches.stored import SketchType, StoredSketch, make_by, require_image_type
from streamops.spark.columns import column as quoted

DEFAULT_K = 200
_LEAST, _MOST = 8, 65_535

QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The quantiles that a stored sketch returns by default."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Kll(SketchAggregate):
    """Quantiles of a column; its highest level stores k values."""

    percentage: tuple[float, ...] = QUARTILES
    k: int = DEFAULT_K

    instead: ClassVar[str] = "aggregates.percentile"
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_percentages(self.percentage)
        example = f"{DEFAULT_K}, the default ({rank_error(DEFAULT_K):.2%} rank error)"
        require_range(self.k, "k", _LEAST, _MOST, example=example)

    def __repr__(self) -> str:
        requested = "" if self.is_stored else f", {[float(item) for item in self.percentage]!r}"
        return f"{self.function}({self.column!r}{requested}, k={self.k})"

    def sketch(self, dtype: pa.DataType | None) -> QuantileSketch:
        """The sketch over a column of this type."""
        if dtype is not None and not _is_number(dtype):
            raise wrong_type(dtype, self.column, text=repr(self), expected="numbers")
        return QuantileSketch(self.column, self.k, tuple(map(float, self.percentage)))

    def to_spark(self, *, time: str | None = None) -> Column:
        """Spark's sketch of the same values, or its quantiles: ``array<double>``, without bounds.

        It has the same error, but differs: its coins are drawn, and NaN is ignored. Its bytes have no
        frame: see ``from_datasketches``. So windows never use this expression.
        """
        sketch = F.kll_sketch_agg_double(quoted(self.column).cast("double"), F.lit(self.k))
        requested = F.array(*(F.lit(float(item)) for item in self.percentage))
        return sketch if self.is_stored else F.kll_sketch_get_quantile_double(sketch, requested)


def approx_percentile(column: str, percentage: Sequence[float], *, k: int = DEFAULT_K) -> Kll:
    """Approximate quantiles of the values that are not null, within a stated error.

    ``struct<estimate: array<double>, lower: array<double>, upper: array<double>,
    rank_error: double, count: bigint>``. Quantile p is the least value that a share p of the
    values does not exceed: one that occurs, as in Spark's ``percentile_disc``. Up to k values it is
    exact. Beyond, it is the exact quantile of a probability that differs by at most `rank_error`, with
    a confidence of 99 % for all percentages at once. `lower` and `upper` are the quantiles at both ends
    of that error: the true quantile is between them with the same confidence.

    NaN is greater than any number, and 0.0 and -0.0 are equal, as in :func:`aggregates.percentile`.
    Values are stored as doubles: integers beyond 2^53 and decimals are rounded. Without values the three
    arrays are null.

    Parameters
    ----------
    column : str
        Numbers.
    percentage : sequence of float
        Which quantiles, from 0 (the least value) to 1 (the greatest).
    k : int
        From 8 to 65,535: about 3 k values of eight bytes are stored. The error is
        2.296 / k^0.9723: 2.6 % for 100, 1.33 % for 200, 0.35 % for 800.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``PARAMETER_MISSING`` or ``PARAMETER_OUT_OF_RANGE``.

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
    streamops.aggregates.percentile : exact, and stores every value.

    References
    ----------
    Karnin, Lang, Liberty: "Optimal Quantile Approximation in Streams", 2016.
    """
    call = f"approx_percentile({column!r}, [0.5, 0.99])"
    requested = parse_percentages(percentage, call=call)
    return Kll(
        function="approx_percentile", column=column, is_stored=False, percentage=requested, k=k
    )


def kll_sketch_agg(column: str, *, k: int = DEFAULT_K) -> Kll:
    """A sketch of the quantiles of numbers, to be stored: ``binary``.

    :func:`merge` merges it. :func:`estimate` returns the least and the greatest value and the quartiles,
    or with ``like=approx_percentile(...)`` other quantiles. Merging does not increase its error.

    Parameters
    ----------
    column : str
        Numbers. Null is not counted.
    k : int
        See :func:`approx_percentile`.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE`` or ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> per_minute = {"ms": kll_sketch_agg("ms")}
    """
    return Kll(function="kll_sketch_agg", column=column, is_stored=True, k=k)


def _is_number(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    )


class StoredKll(StoredSketch):
    """A stored KLL sketch: quantiles of its values, and ranks of any values."""

    __slots__ = ()

    @classmethod
    def from_datasketches(cls, image: bytes, *, dtype: str | None = None) -> Self:
        """Read an image of Apache DataSketches or of Spark's ``kll_sketch_agg_double``.

        Parameters
        ----------
        image : bytes
            A compact ``kll_doubles_sketch``, which contains its `k`.
        dtype : "double", "float" or "bigint", optional
            Type of its items, which an image does not contain: that of Spark's ``kll_sketch_agg_double``,
            ``kll_sketch_agg_float`` and ``kll_sketch_agg_bigint``. By default they are doubles, and are refused
            if the least or the greatest is between 0 and 1e-150, or below -1e150: such are the bits of integers.

        Raises
        ------
        SpecError
            ``VALUE_TYPE``.
        SketchFormatError
            ``SKETCH_CORRUPT``; ``SKETCH_KIND``: items of another type, or integers beyond 2^53.

        Examples
        --------
        >>> import datasketches
        >>> theirs = datasketches.kll_doubles_sketch(200)
        >>> for value in (3.0, 1.0, 2.0):
        ...     theirs.update(value)
        >>> StoredKll.from_datasketches(theirs.serialize()).quantile(0.5)
        2.0
        """
        sketch = QuantileSketch("", max(_LEAST, int.from_bytes(image[4:6], "little")), QUARTILES)
        images = pa.array([bytes(image)], pa.binary())
        with located("StoredKll.from_datasketches"):
            require_image_type(dtype, sketch)
            return cls.of(sketch, sketch.from_images(images, dtype=dtype))

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self.estimate()["count"])

    @property
    def rank_error(self) -> float:
        """Maximum error of a rank, as a share of the values; 0 while the sketch stores all of them."""
        return float(self.estimate()["rank_error"])

    def quantiles(self, probabilities: Sequence[float]) -> dict[str, Any]:
        """Quantiles, as in the result of :func:`approx_percentile`.

        Raises
        ------
        SpecError
            ``PARAMETER_OUT_OF_RANGE``.
        """
        requested = tuple(probabilities)
        with located("StoredKll.quantiles"):
            require_percentages(requested)
        sketch = replace(self._core, probabilities=requested)
        found: dict[str, Any] = sketch.estimate(self.states)[0].as_py()
        return found

    def quantile(self, probability: float) -> float | None:
        """One quantile; None without values."""
        found = self.quantiles([probability])["estimate"]
        return None if found is None else float(found[0])

    def rank(self, value: float) -> float | None:
        """The share of the values that do not exceed this one; None without values."""
        found = self.ranks([value])
        return None if found is None else found[0]

    def ranks(self, values: Sequence[float]) -> list[float] | None:
        """The ranks of several values: the cumulative distribution at these points.

        The error of a rank is at most `rank_error`, with a confidence of 99 %; that of a difference of two
        ranks 2.446 / k^0.9433, which is 1.65 % for k = 200.
        """
        found: list[float] | None = self._core.ranks(self.states, values)[0].as_py()
        return found

    @property
    def _core(self) -> QuantileSketch:
        assert isinstance(self.sketch, QuantileSketch)
        return self.sketch


SKETCH_TYPE = SketchType(QuantileSketch.format, make_by(Kll), StoredKll)
