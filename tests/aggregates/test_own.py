"""Aggregates that a user has written stand where the library's own do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.errors import ColumnNotFound, SpecError, located
from streamops.testing import assert_rows, at, replay
from tests.aggregates.own import GeometricMean, Histogram
from tests.aggregates.samples import over, over_parts

OWN: dict[str, Aggregation] = {"mean": GeometricMean("v"), "bars": Histogram("v")}


def test_an_aggregate_of_ones_own_is_computed() -> None:
    assert over(GeometricMean("long"), [2, None, 8, -1]) == pytest.approx(4.0)
    assert over(GeometricMean("long"), [0, None]) is None
    assert over(Histogram("long"), [-1, 0, 9, 10, None]) == [1, 2, 1, 0]
    assert over_parts(Histogram("long"), [-1, 0], [], [9, 10, None]) == [1, 2, 1, 0]


@pytest.mark.parametrize("restart", [False, True])
def test_an_aggregate_of_ones_own_is_in_a_window_beside_others(restart: bool) -> None:
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


def test_a_column_that_an_aggregate_of_ones_own_forgets_to_look_for_is_looked_for() -> None:
    bars: Any = windows.tumbling("1 hour", time="ts", agg={"bars": Histogram("value")})
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("values", pa.int64())])
    with pytest.raises(ColumnNotFound) as caught, located("windows.tumbling"):
        bars.parameters.resolve((schema,), carried=(None,), shards=1)
    assert str(caught.value) == (
        "[COLUMN_NOT_FOUND] windows.tumbling: column 'value', given as "
        "`agg: Histogram(column='value')`, does not exist\n"
        "  got:       value\n"
        "  expected:  one of: ts, values\n"
        "  fix:       did you mean 'values'?"
        "\n  see:       docs/errors.md#column_not_found"
    )


def test_an_aggregate_that_a_checkpoint_could_not_know_again_is_refused() -> None:
    class Nameless(Histogram):
        __repr__ = object.__repr__

    with pytest.raises(SpecError) as caught:
        windows.tumbling("1 hour", time="ts", agg={"bars": Nameless("v")})
    assert caught.value.code == "NOT_AN_AGGREGATE"
    assert caught.value.what == ("'bars' is an aggregate that a checkpoint cannot identify")
    assert caught.value.fix == "make Nameless a dataclass, or give it a __repr__"


def test_an_aggregate_that_does_not_say_whether_spark_has_it_is_refused() -> None:
    class Silent(Histogram):
        native: Any = None

    with pytest.raises(SpecError) as caught:
        windows.tumbling("1 hour", time="ts", agg={"bars": Silent("v")})
    assert caught.value.code == "NOT_AN_AGGREGATE"
