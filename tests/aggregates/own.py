"""Aggregates as a user may write them; workers of Spark import them from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.aggregation import Summary
from streamops.kernel.groups import Groups

__all__ = ["GeometricMean", "Histogram", "Spelled"]


@dataclass(frozen=True)
class GeometricMean:
    """Geometric mean of the values above zero; null where there are none."""

    column: str
    native: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        return _Logarithms(self.columns)

    def to_spark(self, *, time: str | None = None) -> Any:
        raise AssertionError("the kernel computes it, not Spark")


@dataclass(frozen=True)
class _Logarithms:
    inputs: tuple[str, ...]
    # Whole multiples of a small unit, so that their sum does not depend on the order.
    fields = (("units", pa.int64()), ("count", pa.int64()))
    result = pa.float64()
    unit = 2.0**-40

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        values = rows.column(self.inputs[0]).cast(pa.float64()).to_numpy()
        above = np.nan_to_num(values) > 0
        units = np.rint(np.log(values[above]) / self.unit).astype(np.int64)
        groups = groups.where(above)
        return [pa.array(groups.sum_ints(units)), pa.array(groups.sizes())]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        return [pa.array(groups.sum_ints(np.asarray(state))) for state in states]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        units, count = (np.asarray(state) for state in states)
        return pa.array(np.exp(units * self.unit / np.maximum(count, 1)), mask=count == 0)


@dataclass(frozen=True)
class Histogram:
    """How many values are below 0, below 10, below 100, and not: a list of four counts."""

    column: str
    native: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        return _Bars(self.columns)

    def to_spark(self, *, time: str | None = None) -> Any:
        raise AssertionError("the kernel computes it, not Spark")


@dataclass(frozen=True)
class _Bars:
    inputs: tuple[str, ...]
    fields = (("bars", pa.list_(pa.int64())),)
    result = pa.list_(pa.int64())
    borders = (0, 10, 100)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        column = rows.column(self.inputs[0])
        there = np.asarray(column.is_valid())
        bar = np.searchsorted(self.borders, np.asarray(column.drop_null()), side="right")
        counts = np.zeros((groups.count, 4), np.int64)
        np.add.at(counts, (groups.ids[there], bar), 1)
        return [self._lists(counts)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        counts = np.zeros((groups.count, 4), np.int64)
        np.add.at(counts, groups.ids, np.asarray(states[0].flatten()).reshape(-1, 4))
        return [self._lists(counts)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]

    @staticmethod
    def _lists(counts: Any) -> pa.Array:
        offsets = np.arange(0, counts.size + 1, 4, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(counts.ravel()))


@dataclass(frozen=True)
class Spelled(GeometricMean):
    """A geometric mean that Spark may compute, and does so with a sign that shows it."""

    native: ClassVar[bool] = True

    def to_spark(self, *, time: str | None = None) -> Column:
        return -F.exp(F.avg(F.ln(self.column)))
