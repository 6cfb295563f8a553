"""Stored sketches in plain Python: a value for each, without Spark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.core.contract import Format, Parameter, Sketch
from streamops.sketches.core.frame import read_header, unpack_frames
from streamops.sketches.core.stored import Framed, revived

__all__ = ["SKETCH_TYPES", "SketchType", "StoredSketch", "read"]

SKETCH_TYPES: Mapping[str, str] = {
    "bloom": "streamops.sketches.bloom",
    "frequency": "streamops.sketches.count_min",
    "heavy_hitters": "streamops.sketches.top_k",
    "hll": "streamops.sketches.hll",
    "kll": "streamops.sketches.kll",
    "minhash": "streamops.sketches.minhash",
    "theta": "streamops.sketches.theta",
}
"""The module of each type of sketch, which has a :class:`SketchType` under the name ``SKETCH_TYPE``."""


@dataclass(frozen=True, slots=True)
class StoredSketch:
    """A sketch that was stored: a value, equal to another of the same bytes.

    Kinds that answer more than an estimate have a class of their own below this one. ``sketch``
    and ``states`` are for them.

    Parameters
    ----------
    type : str
        Such as "hll".
    parameters : mapping
        What another sketch must have in common with it to be merged.
    """

    type: str = field(compare=False)
    parameters: Mapping[str, Parameter] = field(compare=False)
    blob: bytes = field(repr=False)
    sketch: Sketch = field(repr=False, compare=False)
    states: tuple[pa.Array, ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, sketch: Sketch, states: list[pa.Array]) -> Self:
        """The value of one state."""
        (blob,) = Framed(sketch).estimate(states).to_pylist()
        return cls(sketch.format.kind, dict(sketch.parameters), blob, sketch, tuple(states))

    def estimate(self) -> Any:
        """What it says, as in the result of the aggregate; numbers as Python has them."""
        return self.sketch.estimate(self.states)[0].as_py()

    def bounds(self) -> tuple[Any, Any]:
        """Between which values the truth lies: see the documentation of its kind."""
        lower, upper = self.sketch.bounds(self.states)
        return lower[0].as_py(), upper[0].as_py()

    def merge(self, *others: StoredSketch) -> Self:
        """The sketch of all that these have seen, together.

        Raises
        ------
        SketchFormatError
            ``SKETCH_KIND``, ``SKETCH_VERSION`` or ``SKETCH_PARAMETERS``: they cannot be merged.
        """
        blobs = pa.array([self.blob, *(other.blob for other in others)], pa.binary())
        states = revived(self.sketch, blobs, where="StoredSketch.merge")
        groups = Groups(np.zeros(len(blobs), np.int64), 1)
        return self.of(self.sketch, self.sketch.merge(groups, states))

    def to_bytes(self) -> bytes:
        """The framed bytes, as they are stored."""
        return self.blob


@dataclass(frozen=True, slots=True)
class SketchType:
    """How to read the bytes of a type of sketch.

    Parameters
    ----------
    format : Format
        Of its payload.
    sketch : callable
        Makes the core's sketch for parameters as they stand in the bytes; a ``KeyError``,
        ``TypeError`` or ``ValueError`` refuses them.
    value : type
        The class of its values.
    """

    format: Format
    sketch: Callable[[Mapping[str, Parameter]], Sketch]
    value: type[StoredSketch] = StoredSketch


def read(blob: bytes) -> StoredSketch:
    """A stored sketch as a value, to be asked and merged in plain Python.

    Parameters
    ----------
    blob : bytes
        As an aggregate that stores sketches made it.

    Returns
    -------
    StoredSketch
        With ``estimate()``, ``bounds()``, ``merge(other)``, ``to_bytes()``, and what its kind
        answers besides.

    Raises
    ------
    SketchFormatError
        ``SKETCH_FOREIGN``, ``SKETCH_CORRUPT``, ``SKETCH_VERSION``, ``SKETCH_KIND`` or
        ``SKETCH_PARAMETERS``.

    Examples
    --------
    >>> from streamops import sketches
    >>> sketches.read(row["users"]).merge(sketches.read(other["users"])).estimate()  # doctest: +SKIP
    """
    where = "sketches.read"
    blob = bytes(blob)
    header = read_header(blob, where=where)
    if header.format.kind not in SKETCH_TYPES:
        raise SketchFormatError(
            "SKETCH_KIND",
            "no sketch of this kind is known here",
            where=where,
            got=header.format.kind,
            expected=f"one of: {', '.join(sorted(SKETCH_TYPES))}",
            fix="use the release of streamops that wrote it, or a later one",
        )
    known: SketchType = importlib.import_module(SKETCH_TYPES[header.format.kind]).SKETCH_TYPE
    blobs = pa.array([blob], pa.binary())
    unpack_frames(blobs, known.format, header.parameters, where=where)  # or its version is another
    try:
        sketch = known.sketch(header.parameters)
    except (KeyError, TypeError, ValueError) as error:
        raise SketchFormatError(
            "SKETCH_PARAMETERS",
            "a sketch of this kind cannot have these parameters",
            where=where,
            got=", ".join(f"{name}={value!r}" for name, value in header.parameters.items()),
            expected=f"what {header.format.kind} takes: {error}",
            fix="make it again from its rows",
        ) from error
    return known.value.of(sketch, revived(sketch, blobs, where=where))
