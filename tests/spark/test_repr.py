"""The repr of an operator is the call that makes it."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from streamops import (
    aggregates,
    changes,
    erasure,
    joins,
    observe,
    patterns,
    process,
    search,
    sinks,
    sketches,
    sources,
    sourcing,
    time,
    windows,
)
from streamops.spark.operator import Operator, show_call


def numbered(key: Any, rows: Any, state: Any) -> Iterator[Any]:
    """A function per key."""
    for _ in rows:
        state.n += 1
        yield (state.n,)


def added(state: Any, event: Any) -> Any:
    """A function of an entity."""
    return state


FAMILIES = {
    family.__name__.rpartition(".")[2]: family
    for family in (
        *(changes, erasure, joins, observe, patterns, process, search, sketches, sources),
        *(sourcing, time, windows),
    )
}
NAMES = {
    **{name: getattr(aggregates, name) for name in aggregates.__all__},
    **FAMILIES,
    "sinks": sinks,
    "numbered": numbered,
    "added": added,
    **{name: getattr(windows, name) for name in ("lag", "lead", "rate", "ewma")},
    "minute": dt.timedelta(minutes=1),
}
MADE_OTHERWISE = {
    "erasure.shred": "it takes a frame with keys",
    "erasure.unshred": "it takes a frame with keys",
    "joins.lookup": "it takes a frame",
    "process.per_shard": "it is shown as the operator of a user",
}
CALLS = """
changes.aggregate(by="k", agg={"n": count()})
changes.apply("k", sequence="s", horizon="7 days", time="ts", history="intervals", track="v")
changes.compact("k", sequence="s", retention="7 days", time="ts")
changes.fold(key=["k", "j"], sequence="s")
changes.fold(rows="multiset")
changes.from_debezium("id int, v string", key="id")
changes.from_delta("id")
changes.normalize("k", sequence=("s", "p"), horizon=7)
joins.asof(None, by="k", time="ts", version="since", sequence="s", tolerance="1 hour")
joins.enrich(None, by={"k": "id"}, sequence="s", horizon=7)
joins.interval(None, "-1 hour", "1 hour", by="k", time="ts", delay=(None, "1 minute"))
joins.tables(None, by="k", key=("a", "b"))
joins.timeline(None, by="k", user="u", key="id", ranked_by="at", cap=10)
observe.account_late(by="page", bounds="1 hour")
observe.furthest_ahead("ts", by="k", most=3)
observe.lateness_needed(share=0.9, by="k")
observe.merge_accounts(by="k")
patterns.match("a b+", define={"a": "x"}, time="ts", by="k", within="1 hour", measures={})
process.per_key(numbered, by="k", output="n int", state="n int", initial={"n": 0})
search.match(None, text="body")
sinks.delta("/t", key="k")
sinks.iceberg("prod", "shop.daily", key="k")
sinks.parquet("/t")
sinks.postgres("postgresql:///shop", "t", key="k")
sinks.sqlalchemy("sqlite:///x", "t", key="k")
sketches.seen("id", capacity=1000, false_positive_rate=0.01, time="ts", horizon="1 day")
sources.kafka_events("id int")
sourcing.decide(added, added, by="k", command_id="id", time="ts", state="n int", event="n int")
sourcing.fold(added, by="k", state="n int, m array<double>", initial={"n": 0})
time.correct_clock("ts", sent="sent", received="received")
time.guard("ts", ahead="1 hour")
time.processing_time()
time.producers("k", time="ts", delay="1 minute", idle="1 hour")
time.track_clock("ts", by="k", sent="sent", received="received", horizon="1 day")
windows.calendar("day", "Europe/Berlin", time="ts", agg={"n": count(), "last": last("v", tie_break="s")})
windows.compare("week", values="n", by="k", zone="UTC")
windows.cumulative("1 day", "1 hour", time="ts", agg={"n": count()}).options(shards=4)
windows.hopping("1 hour", "10 minutes", time="ts", by=["k", "j"], agg={"n": count()})
windows.over(time="ts", values={"p": lag("v"), "q": lead("v", 2), "r": rate("v", per="1 minute"), "s": ewma("v", half_life="1 hour")}, within="1 day", by="k")
windows.resample("1 minute", time="ts", values={"v": "linear", "w": "previous"}, max_gap="1 hour", by="k", tie_break="w")
windows.rolling("1 hour", {"day": "1 day"}, time="ts", by="k", agg={"n": count()})
windows.running(agg={"mean": mean("v")}, by="k")
windows.session("10 minutes", time="ts", agg={"n": count()}, by="k")
windows.sliding("10 minutes", time="ts", agg={"n": count()}, by="k")
windows.tumbling("1 hour", time="ts", agg={"n": sum("v")}, origin=minute, stragglers="update", allowed_lateness="1 hour")
""".strip().splitlines()
# The functions that decide are not fields, and the state has fields of its own.
NOT_EVALUATED = {"sourcing.decide"}


def made(text: str) -> Any:
    return eval(text, dict(NAMES))


def called(text: str) -> ast.Call:
    """The call of the operator, without its options."""
    call: Any = ast.parse(text, mode="eval").body
    return call.func.value if isinstance(call.func.value, ast.Call) else call


@pytest.mark.parametrize("call", CALLS)
def test_a_repr_has_the_parameters_that_were_written_and_makes_the_same_operator(call: str) -> None:
    text, name = repr(made(call)), call.partition("(")[0]
    function = made(name)
    parameters = inspect.signature(function).parameters
    names = [str(keyword.arg) for keyword in called(text).keywords]
    assert text.startswith(f"{name}(")
    assert names == [parameter for parameter in parameters if parameter in names]
    if name not in NOT_EVALUATED:
        frame = {"right", "queries"} & {*parameters}
        again = text.replace("(", "(None, ", 1) if frame else text
        assert repr(made(again)) == text


def test_every_operator_is_looked_at() -> None:
    operators = {
        f"{family}.{name}"
        for family, module in FAMILIES.items()
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
        and "Operator" in str(inspect.signature(getattr(module, name)).return_annotation)
    }
    assert operators - {call.partition("(")[0] for call in CALLS} <= {*MADE_OTHERWISE}


def test_a_parameter_with_its_default_is_not_shown() -> None:
    tumbling = windows.tumbling("1 hour", time="ts", agg={"n": aggregates.count()}, by="k")
    assert repr(tumbling) == (
        "windows.tumbling(size='1 hour', time='ts', agg={'n': count()}, by=('k',))"
    )


def test_an_operator_of_a_user_shows_all_its_fields() -> None:
    @dataclass(frozen=True)
    class Mine:
        by: tuple[str, ...] = ()
        level: int = 1

    assert show_call("acme.mine", Mine()) == "acme.mine(by=(), level=1)"
    assert repr(Operator("acme.mine", Mine())) == "acme.mine(by=(), level=1)"
