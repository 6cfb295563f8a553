"""Aggregates that a user has written stand where the library's own do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.contract import Aggregation, Summary
from streamops.kernel.errors import SpecError
from streamops.kernel.groups import Groups
from streamops.testing import assert_rows, at, replay
from tests.aggregates.samples import over, over_parts


@dataclass(frozen=True)
class GeometricMean:
    """Geometric mean of the values above zero; null where there are none."""

    column: str
    native = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        return _Logarithms(self.columns)

    def to_spark(self, *, time: str | None = None) -> Any:
        raise NotImplementedError


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
    native = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        return _Bars(self.columns)

    def to_spark(self, *, time: str | None = None) -> Any:
        raise NotImplementedError


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


OWN: dict[str, Aggregation] = {"mean": GeometricMean("v"), "bars": Histogram("v")}


def test_an_aggregate_of_ones_own_is_computed() -> None:
    assert over(GeometricMean("long"), [2, None, 8, -1]) == pytest.approx(4.0)
    assert over(GeometricMean("long"), [0, None]) is None
    assert over(Histogram("long"), [-1, 0, 9, 10, None]) == [1, 2, 1, 0]
    assert over_parts(Histogram("long"), [-1, 0], [], [9, 10, None]) == [1, 2, 1, 0]


@pytest.mark.parametrize("restart", [False, True])
def test_an_aggregate_of_ones_own_stands_in_a_window_beside_others(restart: bool) -> None:
    moving = windows.hopping(
        "20 seconds",
        "10 seconds",
        time="ts",
        by="k",
        agg=OWN | {"n": agg.count()},
        delay="0 seconds",
        allowed_lateness="1 minute",
        stragglers="update",
    )
    script = [
        [{"k": "a", "ts": at(1), "v": 2}, {"k": "a", "ts": at(11), "v": 8}],
        [{"k": "a", "ts": at(40), "v": None}],
        [{"k": "a", "ts": at(41), "v": None}],
        [{"k": "a", "ts": at(2), "v": 200}],
    ]
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    played = replay(moving, script, schema=schema, restart=restart)
    rows = [row for batch in played for row in batch.rows if row["window_start"] == at(0)]
    mean = [row.pop("mean") for row in rows]
    assert mean == pytest.approx([4.0, 3200 ** (1 / 3)])
    window = {"k": "a", "window_start": at(0), "window_end": at(20)}
    assert_rows(
        rows,
        [
            window | {"bars": [0, 2, 0, 0], "n": 2, "revision": 0},
            window | {"bars": [0, 2, 0, 1], "n": 3, "revision": 1},
        ],
    )


def test_an_aggregate_that_a_checkpoint_could_not_know_again_is_refused() -> None:
    class Nameless(Histogram):
        __repr__ = object.__repr__

    with pytest.raises(SpecError) as caught:
        windows.tumbling("1 hour", time="ts", agg={"bars": Nameless("v")})
    assert caught.value.code == "AGGREGATE_WITHOUT_WORDS"
    assert caught.value.what == (
        "'bars' is an aggregate that cannot be known again in a checkpoint"
    )
    assert caught.value.fix == "make Nameless a dataclass, or give it a __repr__"


def test_an_aggregate_that_does_not_say_whether_spark_has_it_is_refused() -> None:
    class Silent(Histogram):
        native: Any = None

    with pytest.raises(SpecError) as caught:
        windows.tumbling("1 hour", time="ts", agg={"bars": Silent("v")})
    assert caught.value.code == "NOT_AN_AGGREGATE"
