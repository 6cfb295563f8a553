"""Sketches that are stored: written as a result, read as rows, and merged again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import Summary, merges_exactly
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.core.contract import Sketch
from streamops.sketches.core.frame import pack_frames, unpack_frames

__all__ = ["Framed", "Merged", "answers", "revived"]


@dataclass(frozen=True, slots=True)
class Framed:
    """A sketch whose result is itself: framed bytes, also of a group without rows."""

    sketch: Sketch

    result: ClassVar[pa.DataType] = pa.binary()

    @property
    def merges_exactly(self) -> bool:
        """As the sketch does."""
        return merges_exactly(self.sketch)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return self.sketch.inputs

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Those of the sketch."""
        return self.sketch.fields

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """States of the groups over their rows."""
        return self.sketch.update(groups, rows)

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """States of the groups over their members' states."""
        return self.sketch.merge(groups, states)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sketches."""
        sketch = self.sketch
        return pack_frames(sketch.format, sketch.parameters, sketch.payload(states))


@dataclass(frozen=True, slots=True)
class Merged:
    """What sketches say together that are stored in a column.

    Parameters
    ----------
    column : str
        Framed bytes; a null is no sketch.
    sketch : Sketch
        Of the kind and the parameters that all of them must have.
    answer : Summary
        The same, with the result that is wanted.
    where : str
        For the error of bytes that are something else.
    """

    column: str
    sketch: Sketch
    answer: Summary
    where: str

    @property
    def merges_exactly(self) -> bool:
        """As the sketch does."""
        return merges_exactly(self.sketch)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Those of the sketch."""
        return self.sketch.fields

    @property
    def result(self) -> pa.DataType:
        """Type of what is wanted."""
        return self.answer.result

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """States of the groups over the sketches in their rows."""
        blobs = combine_chunks(rows.column(self.column))
        states = revived(self.sketch, blobs, where=self.where)
        return self.merge(groups.where(np.asarray(blobs.is_valid())), states)

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """States of the groups over their members' states."""
        return self.sketch.merge(groups, states)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """What the states stand for."""
        return self.answer.estimate(states)


def revived(sketch: Sketch, blobs: pa.Array, *, where: str) -> list[pa.Array]:
    """The states of the sketches in a column; those that are null are left out.

    Raises
    ------
    SketchFormatError
        Some bytes are not a sketch of this kind with these parameters.
    """
    payloads = unpack_frames(blobs, sketch.format, sketch.parameters, where=where)
    try:
        return sketch.revive(payloads.drop_null())
    except SketchFormatError as error:  # a payload does not know where it stands
        facts = {"got": error.got, "expected": error.expected, "fix": error.fix}
        place = f"{where}, {error.where}"
        raise SketchFormatError(error.code, error.what, where=place, **facts) from None


def answers(sketch: Sketch, answer: Summary, blobs: pa.Array, *, where: str) -> pa.Array:
    """What each sketch of a column says; null where there is none."""
    found = answer.estimate(revived(sketch, blobs, where=where))
    there = np.asarray(blobs.is_valid())
    if there.all():
        return found
    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))
