"""What a checkpoint of windows depends on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.spark.operator import Operator

SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.string())])
GIVEN: dict[str, Any] = {"time": "ts", "by": "k", "agg": {"n": agg.count()}, "delay": "1 second"}
COMMON = {
    "by": [["k", "string"]],
    "time": "ts",
    "allowed_lateness": 0,
    "stragglers": "drop",
    "too_late": "drop",
    "early": "never",
}


def identity_of(operator: Operator) -> dict[str, Any]:
    spec = operator.spec.resolve((SCHEMA,), carried=(None,), shards=1)
    return {name: value for name, value in spec.identity.items() if name != "agg"}


@pytest.mark.parametrize("unit", ["day", "week"])
def test_the_identity_names_the_unit_and_the_zone(unit: Any) -> None:
    start = "sunday" if unit == "week" else "monday"
    calendar = windows.calendar(unit, zone="Asia/Kolkata", week_start=start, **GIVEN)
    own = {"unit": unit, "zone": "Asia/Kolkata", "week_start": start, "empty_for": None}
    assert identity_of(calendar) == COMMON | own


def test_the_identity_names_the_period_and_the_interval() -> None:
    fixed = windows.cumulative("10 seconds", every="4 seconds", origin="3 seconds", **GIVEN)
    assert identity_of(fixed) == COMMON | {
        "size": 10_000_000, "every": 4_000_000, "origin": 3_000_000,
        "zone": None, "week_start": "monday", "empty_for": None,
    }  # fmt: skip
    day = identity_of(windows.cumulative("day", every="4 hours", zone="UTC", **GIVEN))
    assert (day["size"], day["zone"], day["every"]) == ("day", "UTC", 4 * 3_600_000_000)


def test_what_is_not_part_of_the_state_may_change() -> None:
    names = identity_of(windows.session("1 minute", **GIVEN)).keys()
    assert not {"delay", "operator", "input"} & names
