"""Parameters of rolling aggregates, and the errors for mistakes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError, located
from streamops.windows.core.rolling import RollingSpec

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [("ts", UTC), ("card", pa.string()), ("amount", pa.int64()), ("rate", pa.float64())]
)
ARGUMENTS: dict[str, Any] = {
    "every": "10 minutes",
    "horizons": {"1h": "1 hour", "7d": "7 days"},
    "time": "ts",
    "by": "card",
    "agg": {"n": agg.count(), "spent": agg.sum("amount")},
    "delay": "1 minute",
}


def bound(schema: pa.Schema = SCHEMA, **arguments: Any) -> RollingSpec:
    made = windows.rolling(**(ARGUMENTS | arguments)).parameters
    assert isinstance(made, RollingSpec)
    return made.resolve((schema,), carried=(None,), shards=1)


def refused(error_type: type[StreamopsError], **arguments: Any) -> Any:
    with pytest.raises(error_type) as caught, located("windows.rolling"):
        bound(**arguments)
    return caught.value


def test_the_output_has_the_aggregates_of_each_horizon() -> None:
    spec = bound()
    assert spec.output.names == ["card", "window_end", "n_1h", "spent_1h", "n_7d", "spent_7d"]
    assert spec.event_time == "window_end"
    assert bound(stragglers="route").output.names[-1] == "late"
    assert bound(by=()).output.names[0] == "window_end"


def test_durations_become_microseconds() -> None:
    spec = bound(every=dt.timedelta(minutes=5), horizons={"x": dt.timedelta(minutes=15)})
    assert (spec.every, spec.horizons) == (300_000_000, (("x", 900_000_000),))


def test_values_of_an_input_column_have_its_origin_in_each_horizon() -> None:
    most = bound(agg={"most": agg.max("amount")})
    assert most.origins == {"card": (0, "card"), "most_1h": (0, "amount"), "most_7d": (0, "amount")}


def test_rows_are_stored_only_if_their_order_matters() -> None:
    assert not bound().stores_rows
    assert bound(agg={"rate": agg.sum("rate")}).stores_rows


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"horizons": {}}, "PARAMETER_MISSING"),
        ({"horizons": ["1 hour"]}, "PARAMETER_MISSING"),
        ({"horizons": {"h": "15 minutes"}}, "PARAMETERS_CONTRADICT"),
        ({"horizons": {"h": "5 minutes"}}, "PARAMETERS_CONTRADICT"),
        ({"horizons": {"h": "0 minutes"}}, "INVALID_DURATION"),
        ({"horizons": {"h": "1 month"}}, "INVALID_DURATION"),
        ({"horizons": {1: "1 hour"}}, "PARAMETER_TYPE"),
        ({"every": "0 seconds"}, "INVALID_DURATION"),
        ({"every": 600}, "INVALID_DURATION"),
        ({"agg": {}}, "PARAMETER_MISSING"),
        ({"agg": {"n": "count"}}, "NOT_AN_AGGREGATE"),
        ({"stragglers": "retract"}, "UNKNOWN_CHOICE"),
        ({"by": "window_end"}, "NAME_TAKEN"),
        ({"by": ["card", "n_1h"]}, "NAME_TAKEN"),
        (
            {
                "agg": {"n": agg.count(), "n_1h": agg.count()},
                "horizons": {"1h_1h": "1 hour", "1h": "1 hour"},
            },
            "NAME_TAKEN",
        ),
        ({"delay": "5 microseconds"}, "INVALID_DURATION"),
    ],
)
def test_wrong_parameters_are_refused(arguments: dict[str, Any], code: str) -> None:
    error = refused(SpecError, **arguments)
    assert error.code == code, error
    assert error.where.startswith("windows.rolling")


@pytest.mark.parametrize(
    "arguments", [{"time": "at"}, {"by": "user"}, {"agg": {"s": agg.sum("x")}}]
)
def test_a_missing_column_is_refused(arguments: dict[str, Any]) -> None:
    assert refused(ColumnNotFound, **arguments).code == "COLUMN_NOT_FOUND"


def test_an_event_time_that_is_no_timestamp_is_refused() -> None:
    assert isinstance(refused(SchemaError, time="amount"), SchemaError)
