"""What a user may say about windows without rows, and the answers to mistakes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.aggregation import Summary
from streamops.kernel.errors import SpecError, located
from streamops.kernel.grids import CumulativeGrid, FixedGrid
from streamops.kernel.groups import Groups
from streamops.spark.operator import Operator
from tests.windows.core.play import Stream

SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("v", pa.int64())])
ARGUMENTS: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": {"n": agg.count()},
    "delay": "1 second",
}
HOUR = 3_600_000_000


def tumbling(size: str = "1 hour", **arguments: Any) -> Operator:
    return windows.tumbling(size, **(ARGUMENTS | arguments))


def calendar(unit: Any = "day", **arguments: Any) -> Operator:
    return windows.calendar(unit, "Europe/Berlin", **(ARGUMENTS | arguments))


def cumulative(size: Any = "1 day", every: str = "1 hour", **arguments: Any) -> Operator:
    return windows.cumulative(size, every, **(ARGUMENTS | arguments))


def refused(make: Any, *args: Any, **arguments: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        make(*args, **arguments)
    return caught.value


def bound(transform: Operator) -> Any:
    return transform.parameters.resolve((SCHEMA,), carried=(None,), shards=1)


@pytest.mark.parametrize("make", [tumbling, calendar, cumulative])
def test_how_long_a_key_has_empty_windows_is_a_duration(make: Any) -> None:
    transform = make(empty_for="2 days")
    assert bound(transform).empty_for == 48 * HOUR
    assert "empty_for='2 days'" in repr(transform)
    assert bound(make()).empty_for is None


@pytest.mark.parametrize("make", [tumbling, calendar, cumulative])
def test_no_duration_is_no_bound_of_empty_windows(make: Any) -> None:
    assert refused(make, empty_for="0 seconds").code == "INVALID_DURATION"


@pytest.mark.parametrize("make", [tumbling, calendar, cumulative])
def test_without_a_bound_there_are_no_empty_windows(make: Any) -> None:
    assert bound(make(empty_for=None)) == bound(make())


@pytest.mark.parametrize(
    ("error", "arguments", "least"),
    [
        (refused(tumbling, empty_for="59 minutes"), "hop='1 hour'", "1 hour"),
        (refused(calendar, empty_for="20 hours"), "unit='day'", "22 hours"),
        (refused(calendar, "month", empty_for="20 days"), "unit='month'", "27 days 22 hours"),
        (refused(cumulative, empty_for="1 second"), "every='1 hour'", "1 hour"),
    ],
)
def test_a_bound_in_which_no_window_ends_is_refused(error: Any, arguments: str, least: str) -> None:
    formatted = error.got.partition(", ")[0]
    assert str(error) == (
        f"[PARAMETERS_CONTRADICT] {error.where}: no empty window ends that soon after a window with "
        "rows\n"
        f"  got:       {formatted}, {arguments}\n"
        f"  expected:  at least {least}\n"
        "  fix:       lengthen empty_for, or leave it out"
        "\n  see:       docs/errors.md#parameters_contradict"
    )


def test_more_than_ten_thousand_empty_windows_are_refused() -> None:
    assert bound(tumbling("1 second", empty_for="10000 seconds")).empty_for == 10_000_000_000
    assert str(refused(tumbling, "1 second", empty_for="10001 seconds")) == (
        "[PARAMETER_OUT_OF_RANGE] windows.tumbling: each key would have too many empty windows after its "
        "last row\n"
        "  got:       empty_for='2 hours 46 minutes 41 seconds', hop='1 second': 10,001 windows\n"
        "  expected:  at most 10,000 empty windows after one with rows\n"
        "  fix:       shorten empty_for, or use longer windows"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )
    # The remaining time is too short for another window.
    assert (
        bound(tumbling("1 second", empty_for="10000 seconds 500 milliseconds")).empty_for
        == 10_000_500_000
    )
    assert (
        refused(cumulative, every="1 minute", empty_for="7 days").code == "PARAMETER_OUT_OF_RANGE"
    )
    assert refused(calendar, empty_for="10000 days").code == "PARAMETER_OUT_OF_RANGE"


def test_the_limit_of_empty_cumulative_windows_counts_the_ends_of_periods() -> None:
    arguments: dict[str, Any] = {"size": "10 seconds", "every": "9 seconds"}
    assert refused(cumulative, **arguments, empty_for="90000 seconds").got == (
        "empty_for='1 day 1 hour', every='9 seconds': 18,000 windows"
    )
    assert bound(cumulative(**arguments, empty_for="50000 seconds")).empty_for == 50_000_000_000
    assert (
        refused(cumulative, **arguments, empty_for="50009 seconds").code == "PARAMETER_OUT_OF_RANGE"
    )
    assert bound(cumulative(every="1 minute", empty_for="10000 minutes"))
    error = refused(cumulative, every="1 minute", empty_for="10001 minutes")
    assert error.got.endswith("every='1 minute': 10,001 windows")
    days: dict[str, Any] = {"size": "day", "zone": "Europe/Berlin", "every": "1 minute"}
    assert bound(cumulative(**days, empty_for="9993 minutes"))
    assert refused(cumulative, **days, empty_for="9994 minutes").code == "PARAMETER_OUT_OF_RANGE"


@pytest.mark.thorough
@pytest.mark.parametrize("every", range(1, 11))
def test_the_maximum_number_of_empty_windows_is_exact(every: int) -> None:
    grid = CumulativeGrid(FixedGrid(10, 10), every)
    for empty_for in range(every, 50):
        settings: Any = cumulative(
            dt.timedelta(microseconds=10),
            dt.timedelta(microseconds=every),
            empty_for=dt.timedelta(microseconds=empty_for),
        ).parameters
        results = Stream(grid, empty_for=empty_for).run(9)
        assert settings.most_empty_windows(every) == sum(count == 0 for *_, count in results)


@dataclass(frozen=True)
class OfRows:
    """An aggregate of a user's own that is not written for groups without rows."""

    mistake: str
    native: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ("v",)
    inputs: ClassVar[tuple[str, ...]] = ("v",)
    fields: ClassVar[Any] = (("units", pa.int64()),)
    result: ClassVar[pa.DataType] = pa.int64()

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        return self

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        if self.mistake == "fails":
            message = f"{len(rows)} rows"
            raise ValueError(message)
        return [pa.array(groups.sizes()[:0])]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        raise NotImplementedError

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]

    def to_spark(self, *, time: str | None = None) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("mistake", "got"),
    [("fails", "ValueError: 0 rows"), ("leaves it out", "0 values")],
)
def test_an_aggregate_without_a_value_for_no_rows_is_refused(mistake: str, got: str) -> None:
    arguments = {"agg": {"own": OfRows(mistake)}}
    transform = tumbling(empty_for="1 day", **arguments)
    with pytest.raises(SpecError) as caught, located("windows.tumbling"):
        bound(transform)
    assert str(caught.value) == (
        "[PARAMETERS_CONTRADICT] windows.tumbling: 'own' has no value for a window without rows\n"
        f"  got:       OfRows(mistake={mistake!r}) over no rows: {got}\n"
        "  expected:  a state and an estimate, such as null, for a group without rows\n"
        "  fix:       return one entry per group, even without rows (docs/aggregates.md), or leave out empty_for"
        "\n  see:       docs/errors.md#parameters_contradict"
    )
    assert bound(tumbling(**arguments)).empty_for is None
