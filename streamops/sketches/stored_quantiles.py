"""Stored sketches of numbers, in plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from streamops.sketches.core.contract import Parameter
from streamops.sketches.core.kll import QuantileSketch
from streamops.sketches.kll import LEAST_K, QUARTILES, refuse_k, refuse_probabilities
from streamops.sketches.reading import Kind, StoredSketch

__all__ = ["KIND", "StoredQuantiles"]


@dataclass(frozen=True, slots=True)
class StoredQuantiles(StoredSketch):
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
        >>> StoredQuantiles.from_datasketches(theirs.serialize()).quantile(0.5)
        2.0
        """
        sketch = QuantileSketch("", max(LEAST_K, int.from_bytes(image[4:6], "little")), QUARTILES)
        images = pa.array([bytes(image)], pa.binary())
        where = "StoredQuantiles.from_datasketches"
        return cls.of(sketch, sketch.from_images(images, where=where))

    def to_datasketches(self) -> bytes:
        """A compact ``kll_doubles_sketch``, which Spark's ``kll_sketch_get_..._double`` read as well.

        Raises
        ------
        SketchFormatError
            ``SKETCH_HAS_NAN``.
        """
        (image,) = self._asked().images(self.states).to_pylist()
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
        """Quantiles, as in the result of :func:`approx_quantiles`.

        Raises
        ------
        SpecError
            ``PROBABILITY_OUT_OF_RANGE``.
        """
        asked = tuple(probabilities)
        refuse_probabilities(asked, "StoredQuantiles.quantiles")
        said: dict[str, Any] = self._asked(asked).estimate(self.states)[0].as_py()
        return said

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
        said: list[float] | None = self._asked().ranks(self.states, values)[0].as_py()
        return said

    def _asked(self, probabilities: tuple[float, ...] = QUARTILES) -> QuantileSketch:
        assert isinstance(self.sketch, QuantileSketch)
        return replace(self.sketch, probabilities=probabilities)


def _of(parameters: Mapping[str, Parameter]) -> QuantileSketch:
    k = parameters["k"]
    refuse_k(k, "sketches.kll")
    assert isinstance(k, int)
    return QuantileSketch("", k, QUARTILES)


KIND = Kind(QuantileSketch.format, _of, StoredQuantiles)
