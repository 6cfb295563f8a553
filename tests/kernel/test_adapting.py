"""Which parameters of windows may change at a restart, and what the message says about the others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.codec import encode, read_stored, require_same
from streamops.kernel.errors import StateFormatError
from streamops.spark.operator import Operator

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
GIVEN: dict[str, Any] = {"time": "ts", "by": "k", "delay": "1 second"}
RETRACT: dict[str, Any] = {"stragglers": "retract", "allowed_lateness": "1 minute"}
EARLY: dict[str, Any] = {"early": "every batch"}


def tumbling(size: str = "1 minute", **given: Any) -> Operator:
    return windows.tumbling(size, **GIVEN | {"agg": {"n": agg.count()}} | given)


def cumulative(**given: Any) -> Operator:
    given = {"agg": {"n": agg.mean("v")}} | given
    return windows.cumulative("1 hour", every="1 minute", **GIVEN | given)


def session(gap: str = "1 minute", **given: Any) -> Operator:
    return windows.session(gap, **GIVEN | {"agg": {"n": agg.count()}} | given)


def rolling(*minutes: int, every: str = "1 minute", **given: Any) -> Operator:
    horizons = {f"m{n}": f"{n} minutes" for n in minutes}
    return windows.rolling(every, horizons, **GIVEN, agg={"n": agg.count()}, **given)


def running(changes: Any) -> Operator:
    return windows.running(by="k", agg={"n": agg.count()}, changes=changes)


def compare(before: Operator, after: Operator) -> None:
    (stored, wanted) = (
        of.spec.resolve((SCHEMA,), carried=(None,), shards=1).identity for of in (before, after)
    )
    assert before.core is not None
    layout = before.core.STATE
    require_same(read_stored(encode(layout, stored, 1, {})), layout, wanted, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tumbling(), tumbling(**RETRACT, too_late="route")),
        (tumbling(**RETRACT, **EARLY), tumbling(stragglers="route")),
        (tumbling(empty_for="1 hour"), tumbling()),
        (cumulative(), cumulative(**RETRACT)),
        (cumulative(**RETRACT), cumulative(**RETRACT | {"stragglers": "update"})),
        (session(), session("2 minutes", **RETRACT, **EARLY)),
        (session(**EARLY), session(**RETRACT)),
        (rolling(2, 5), rolling(3, stragglers="route")),
        (running("update"), running("retract")),
        (
            session(max_length="1 hour", when_longer="fail"),
            session(max_length="1 hour", when_longer="split"),
        ),
    ],
)
def test_these_may_change(before: Operator, after: Operator) -> None:
    compare(before, after)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (tumbling(), tumbling("2 minutes"), "hop, size"),
        (tumbling(), tumbling(empty_for="1 hour"), "empty_for"),
        (cumulative(**RETRACT | {"stragglers": "update"}), cumulative(**RETRACT), "stragglers"),
        (session(**EARLY), session(), "early"),
        (session(), session(max_length="1 hour"), "max_length"),
        (
            session(max_length="1 hour", when_longer="split"),
            session(max_length="1 hour", when_longer="fail"),
            "when_longer",
        ),
        (rolling(2, 5), rolling(6), "horizons"),
    ],
)
def test_these_need_history(before: Operator, after: Operator, names: str) -> None:
    with pytest.raises(StateFormatError) as refused:
        compare(before, after)
    assert refused.value.what.endswith(f"other parameters: {names}")
    assert refused.value.fix.endswith(
        f"fill a new version of the job from history: another {names} needs rows that are not stored"
    )
