"""The contract of a sketch: a summary that knows its error, and that can leave as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from streamops.kernel.aggregation import Summary
from streamops.kernel.core import StateFormat

__all__ = ["Format", "Parameter", "Sketch"]

Parameter = int | float | str


Format = StateFormat
"""Name and version of a layout of bytes, as written into every stored sketch."""


class Sketch(Summary, Protocol):
    """A summary of one column, for all groups at once, whose answers are estimates.

    Its state depends on the items alone where the algorithm allows it, and not on how they were
    dealt out. Where it does (quantiles, heavy hitters), ``merges_exactly`` is false, and the stated
    error still holds. A group
    may be empty in ``merge`` as well as in ``update``: its state is that of no items.
    """

    @property
    def format(self) -> Format:
        """Of its payload."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What two sketches must have in common to be merged, as written into their bytes."""

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Between which values the truth lies, as the documentation of the sketch states it."""

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes, in the documented format: ``binary``, without nulls."""

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again; every byte is checked, for all at once.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: they are no payload of these parameters.
        """
