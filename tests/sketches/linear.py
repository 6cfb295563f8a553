"""The plainest sketch there is, and exact: how many items fell into each cell.

It has every part that a kind of sketch has. Workers of Spark import it from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.aggregation import SketchAggregate, require_item
from streamops.sketches.core.items import items
from streamops.sketches.core.sketch import Format, Parameter, Sketch
from streamops.sketches.stored import SketchType, StoredSketch

__all__ = ["FORMAT", "SKETCH_TYPE", "Linear", "LinearAggregate", "count_items", "linear_sketch"]

FORMAT = Format("linear", 1)
BOUNDED = pa.struct([("estimate", pa.int64()), ("lower", pa.int64()), ("upper", pa.int64())])


@dataclass(frozen=True, slots=True)
class Linear:
    """Items per cell: a list of as many counts as there are cells."""

    column: str
    cells: int

    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (("counts", pa.list_(pa.int64())),)
    result: ClassVar[pa.DataType] = BOUNDED
    format: ClassVar[Format] = FORMAT

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        return {"cells": self.cells}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        hashes, valid = items(rows.column(self.column))
        counts = np.zeros((groups.count, self.cells), np.int64)
        np.add.at(counts, (groups.ids[valid], hashes[valid] % self.cells), 1)
        return [self._lists(counts)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        counts = np.zeros((groups.count, self.cells), np.int64)
        np.add.at(counts, groups.ids, self._counts(states))
        return [self._lists(counts)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        total = pa.array(self._counts(states).sum(axis=1))
        return pa.StructArray.from_arrays([total, total, total], fields=list(BOUNDED))

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        total = self.estimate(states).field(0)
        return total, total

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        counts = self._counts(states).astype("<i8")
        width = 8 * self.cells
        fixed = pa.Array.from_buffers(
            pa.binary(width), len(counts), [None, pa.py_buffer(counts.tobytes())]
        )
        return fixed.cast(pa.binary())

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        for payload in payloads.to_pylist():
            counts = np.frombuffer(payload, np.int64, len(payload) // 8)
            if len(payload) != 8 * self.cells or (counts < 0).any():
                raise SketchFormatError(
                    "SKETCH_CORRUPT",
                    "no counts",
                    at="linear",
                    got=payload,
                    expected=f"{self.cells} counts",
                    fix="make it again",
                )
        flat = np.frombuffer(b"".join(payloads.to_pylist()), np.int64)
        return [self._lists(flat.reshape(-1, self.cells))]

    def _counts(self, states: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        return np.asarray(states[0].flatten()).reshape(-1, self.cells)

    def _lists(self, counts: npt.NDArray[np.int64]) -> pa.Array:
        offsets = pa.array(np.arange(0, counts.size + 1, self.cells, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array(counts.ravel()))


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class LinearAggregate(SketchAggregate):
    cells: int = 4
    instead: ClassVar[str] = "aggregates.count"

    def sketch(self, type_: pa.DataType | None) -> Sketch:
        if type_ is not None:
            require_item(type_, column=self.column)
        return Linear(self.column, self.cells)


class LinearValue(StoredSketch):
    """Knows one thing more."""

    __slots__ = ()

    def cell(self, number: int) -> int:
        counts: list[int] = self.states[0][0].as_py()
        return counts[number]


def count_items(column: str, *, cells: int = 4) -> LinearAggregate:
    return LinearAggregate(function="count_items", column=column, is_stored=False, cells=cells)


def linear_sketch(column: str, *, cells: int = 4) -> LinearAggregate:
    return LinearAggregate(function="linear_sketch", column=column, is_stored=True, cells=cells)


def _of(parameters: Mapping[str, Parameter]) -> Sketch:
    cells = parameters["cells"]
    if type(cells) is not int or cells < 1:
        message = f"cells={cells!r} is no number of cells"
        raise ValueError(message)
    return Linear("", cells)


SKETCH_TYPE = SketchType(FORMAT, _of, LinearValue)
