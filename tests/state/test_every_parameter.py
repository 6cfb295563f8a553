"""Every parameter of every operator has an answer in docs/state-formats.md, and each answer is tried."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins, patterns, process, search, sketches, sourcing, time, windows
from streamops.errors import StateFormatError
from streamops.spark.operator import Operator
from streamops.testing import Replay, at
from tests.laws.test_restarts_laws import restart

PAGE = Path(__file__).parents[2] / "docs" / "state-formats.md"
FAMILIES = (
    *(
        "windows",
        "joins",
        "changes",
        "patterns",
        "process",
        "search",
        "sketches",
        "sourcing",
        "time",
    ),
)
ANSWERS = ("accepted", "in part", "migrated", "needs history")
_TEXT, _NUMBER, _INSTANT = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(("k", "k2", "_change_type", "query", "command"), _TEXT),
    **dict.fromkeys(("v", "w", "n", "n2", "id", "id2", "lsn", "lsn2"), _NUMBER),
    **dict.fromkeys(("ts", "ts2", "since", "since2"), _INSTANT),
    **dict.fromkeys(("flag", "flag2"), pa.bool_()),
    "long": pa.duration("us"),
}
EVENT = ("k", "k2", "ts", "ts2", "v", "w", "flag", "long")
CLOCK = ("k", "k2", "ts", "ts2", "since", "since2")
SIDE = ("k", "k2", "since", "since2", "lsn", "lsn2", "n", "n2", "flag", "flag2")
CHANGE = ("_change_type", "id", "id2", "k", "k2", "v", "w", "lsn")
OTHER = ("_change_type", "id", "id2", "k", "k2", "n", "lsn")
WINDOW = ("k", "k2", "window_start", "window_end", "n", "n2")
QUERY = ("_change_type", "id", "id2", "query", "command", "lsn", "lsn2", "since", "since2")


def rows_of(names: tuple[str, ...], batch: int) -> list[dict[str, Any]]:
    """Rows of a micro-batch."""
    dice, rows = Random(batch), []
    for number in range(8):
        start = batch * 80 + 10 * number
        row: dict[str, Any] = {
            **dict.fromkeys(("k", "k2"), dice.choice("abc")),
            **dict.fromkeys(("ts", "ts2", "since", "since2"), at(start + dice.randrange(5))),
            **dict.fromkeys(("v", "w", "n", "n2"), dice.randrange(9)),
            **dict.fromkeys(("lsn", "lsn2"), 10 * batch + number),
            **dict.fromkeys(("id", "id2"), 10 * batch + number),
            **dict.fromkeys(("flag", "flag2"), dice.random() < 0.3),
            **dict.fromkeys(("query", "command"), f"a{number}"),
            **{"_change_type": "insert", "long": SHORT},
            **{"window_start": at(start), "window_end": at(start + 10)},
        }
        rows.append({name: row[name] for name in names})
    return rows


SHORT = at(3) - at(0)


def schema_of(names: tuple[str, ...]) -> pa.Schema:
    types = COLUMNS | dict.fromkeys(("window_start", "window_end"), _INSTANT)
    return pa.schema([(name, types[name]) for name in names])


def add(key: Any, rows: Any, state: Any) -> Any:
    for row in rows:
        state.n = (state.n or 0) + (row.v or 0)
        yield (state.n,)


def add_too(key: Any, rows: Any, state: Any) -> Any:
    yield from add(key, rows, state)


def add_and_wait(key: Any, rows: Any, state: Any, timers: Any) -> Any:
    for row in rows:
        timers.set(row.ts + 100 * SHORT)
        yield (row.v,)


def pass_on(key: Any, rows: Any, state: Any) -> Any:
    for row in rows:
        yield (row.v,)


def wake(key: Any, time: Any, state: Any, timers: Any) -> Any:
    yield (0,)


def decide(state: Any, command: Any) -> Any:
    return [(command.v,)]


def evolve(state: Any, event: Any) -> Any:
    return state._replace(n=(state.n or 0) + event.v)


def decide_too(state: Any, command: Any) -> Any:
    return [(command.v,)]


def evolve_too(state: Any, event: Any) -> Any:
    return evolve(state, event)


@dataclass(frozen=True)
class Call:
    """A call of an operator, and other values of its parameters: accepted ones, and refused ones."""

    function: Callable[..., Operator]
    columns: tuple[tuple[str, ...], ...]
    given: Mapping[str, Any]
    accepted: Mapping[str, Any]
    refused: Mapping[str, Any]

    def operator(self, **changed: Any) -> Operator:
        given = {**self.given, **changed}
        names = inspect.getfullargspec(self.function).args
        positional = [given.pop(name) for name in names if name in given]
        return self.function(*positional, **{n: of for n, of in given.items() if of is not ABSENT})


ABSENT: Any = object()


def also(**more: Any) -> Any:
    """A value of a parameter that needs others, too."""
    return _Also(more)


@dataclass(frozen=True)
class _Also:
    more: Mapping[str, Any]


COUNT, SUM = {"n": agg.count()}, {"n": agg.count(), "s": agg.sum("v")}
NAMES = {"by": "k2", "time": "ts2"}
TIMED: dict[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}
CORRECTED = {"stragglers": "retract", "allowed_lateness": "10 seconds"}
LATE = {
    "delay": "9 seconds",
    "allowed_lateness": "20 seconds",
    "stragglers": "route",
    "too_late": also(too_late="route", stragglers="retract", allowed_lateness="5 seconds"),
    "early": "every batch",
}
LATENESS = {**TIMED, "agg": SUM, **CORRECTED}
AGG: dict[str, Any] = {"agg": COUNT}
OTHER_AGG: dict[str, Any] = {"agg": {"n": agg.count(), "s": agg.max("v")}, **NAMES}
RIGHT: dict[str, Any] = {"right": None, "delay": "9 seconds", "into": "found"}
"""Without Spark, the right frame is any."""

CALLS: dict[str, Call] = {
    "windows.tumbling": Call(
        windows.tumbling,
        (EVENT,),
        {"size": "1 minute", **LATENESS},
        {**LATE, **AGG, "origin": "3 minutes"},
        {**OTHER_AGG, "size": "2 minutes", "origin": "7 seconds"},
    ),
    **{
        f"windows.{of.__name__}, empty windows": Call(
            of,
            (EVENT,),
            {**given, **TIMED, "agg": SUM, "empty_for": "60 days"},
            {"empty_for": "40 days", "stragglers": "route", "allowed_lateness": "9 seconds"},
            {"empty_for": "90 days"},
        )
        for of, given in (
            (windows.tumbling, {"size": "1 day"}),
            (windows.hopping, {"size": "1 day", "hop": "12 hours"}),
            (windows.calendar, {"unit": "week", "zone": "UTC"}),
            (windows.cumulative, {"size": "1 day", "every": "1 day"}),
        )
    },
    "windows.hopping": Call(
        windows.hopping,
        (EVENT,),
        {"size": "1 minute", "hop": "30 seconds", **LATENESS},
        {**LATE, **AGG, "origin": "90 seconds"},
        {
            **OTHER_AGG,
            "size": "90 seconds",
            "hop": "20 seconds",
            "origin": "7 seconds",
            "empty_for": "5 minutes",
        },
    ),
    "windows.calendar": Call(
        windows.calendar,
        (EVENT,),
        {"unit": "week", "zone": "UTC", **LATENESS},
        {**LATE, **AGG},
        {
            **OTHER_AGG,
            "unit": "month",
            "zone": "Europe/Berlin",
            "week_start": "sunday",
            "empty_for": "30 days",
        },
    ),
    "windows.cumulative": Call(
        windows.cumulative,
        (EVENT,),
        {
            "size": "1 hour",
            "every": "5 minutes",
            **TIMED,
            "agg": {**SUM, "m": agg.mean("v")},
            "stragglers": "update",
            "allowed_lateness": "10 seconds",
        },
        {**LATE, **AGG, "origin": "2 hours", "too_late": "route"},
        {
            **OTHER_AGG,
            "size": "2 hours",
            "every": "10 minutes",
            "origin": "1 minute",
            "stragglers": "retract",
            "empty_for": "1 hour",
        }
        | {
            "zone": also(size="day", zone="UTC"),
            "week_start": also(size="week", zone="UTC", week_start="sunday"),
        },
    ),
    "windows.sliding": Call(
        windows.sliding,
        (EVENT,),
        {"size": "1 minute", **LATENESS},
        {**LATE, **AGG},
        {**OTHER_AGG, "size": "2 minutes"},
    ),
    "windows.session": Call(
        windows.session,
        (EVENT,),
        {
            "gap": "8 seconds",
            **LATENESS,
            "max_length": "1 hour",
            "when_longer": "fail",
            "early": "every batch",
        },
        {**LATE, **AGG, "gap": "20 seconds", "when_longer": "split", "early": "never"},
        {**OTHER_AGG, "gap_column": "long", "until": "flag", "max_length": "2 hours"},
    ),
    "windows.session, dropped": Call(
        windows.session,
        (EVENT,),
        {"gap": "8 seconds", **TIMED, "agg": SUM, "early": "every batch", "max_length": "1 hour"},
        {},
        {"early": "never", "when_longer": "fail"},
    ),
    "windows.rolling": Call(
        windows.rolling,
        (EVENT,),
        {"every": "10 seconds", "horizons": {"m": "1 minute"}, **TIMED, "agg": SUM},
        {"delay": "9 seconds", "stragglers": "route", "horizons": {"s": "20 seconds"}},
        {**NAMES, "every": "5 seconds", "horizons": {"m": "2 minutes"}, "agg": COUNT},
    ),
    "windows.running": Call(
        windows.running,
        (EVENT,),
        {"agg": SUM, "by": "k"},
        {**AGG, "changes": "retract", "max_keys": 77, "when_full": "reject_new"},
        {"by": "k2", "agg": {"n": agg.count(), "s": agg.max("v")}},
    ),
    "windows.compare": Call(
        windows.compare,
        (WINDOW,),
        {"period": "1 minute", "values": "n", "by": "k", "periods": 5, "delay": "5 seconds"},
        {"delay": "9 seconds", "threshold": 9, "min_periods": 2},
        {
            "by": "k2",
            "period": "2 minutes",
            "values": "n2",
            "periods": 7,
            "zone": also(period="day", zone="UTC"),
        }
        | {"allowed_lateness": "20 seconds", "stragglers": "route"}
        | {"too_late": also(**CORRECTED, too_late="route")},
    ),
    "windows.compare, retracted": Call(
        windows.compare,
        (WINDOW,),
        {"period": "1 minute", "values": "n", "by": "k", "periods": 5, "delay": "5 seconds"}
        | CORRECTED,
        {},
        {"threshold": 9, "min_periods": 2},
    ),
    "windows.over": Call(
        windows.over,
        (EVENT,),
        {**TIMED, "values": {"p": windows.lag("v")}, "within": "1 minute", "tie_break": "v"},
        {"delay": "9 seconds", "stragglers": "route"},
        {**NAMES, "values": {"p": windows.lead("v")}, "within": "2 minutes", "tie_break": "w"},
    ),
    "windows.resample": Call(
        windows.resample,
        (EVENT,),
        {
            "every": "5 seconds",
            **TIMED,
            "values": {"v": "linear"},
            "max_gap": "1 minute",
            "tie_break": "v",
        },
        {"delay": "9 seconds", "stragglers": "route"},
        {
            **NAMES,
            "every": "10 seconds",
            "values": {"v": "previous"},
            "max_gap": "2 minutes",
            "tie_break": "w",
        },
    ),
    "joins.asof": Call(
        joins.asof,
        (EVENT, SIDE),
        {
            "right": None,
            "by": "k",
            "time": "ts",
            "version": "since",
            "sequence": "lsn",
            "delay": "5 seconds",
        }
        | {"tolerance": "20 seconds", "stragglers": "answer", "allowed_lateness": "10 seconds"},
        {
            **RIGHT,
            "how": "inner",
            "tolerance": "9 seconds",
            "direction": "nearest",
            "allow_exact": False,
        }
        | {
            "waits_for": "facts",
            "allowed_lateness": "5 seconds",
            "stragglers": "route",
            "too_late": "route",
        },
        {
            "by": "k2",
            "time": "ts2",
            "version": "since2",
            "sequence": "lsn2",
            "until": "since2",
            "deleted": "flag",
        }
        | {"allowed_lateness": "20 seconds", "late_versions": "retract"},
    ),
    "joins.asof, revised": Call(
        joins.asof,
        (EVENT, SIDE),
        {
            "right": None,
            "by": "k",
            "time": "ts",
            "version": "since",
            "sequence": "lsn",
            "delay": "5 seconds",
        }
        | {"tolerance": "20 seconds", "late_versions": "retract"},
        {},
        {"how": "inner", "tolerance": "9 seconds", "direction": "nearest", "allow_exact": False}
        | {"stragglers": "answer"},
    ),
    "joins.enrich": Call(
        joins.enrich,
        (EVENT, SIDE),
        {"right": None, "by": "k", "sequence": "lsn", "horizon": 100},
        {**{n: of for n, of in RIGHT.items() if n != "delay"}, "horizon": 50, "how": "inner"}
        | {"rejected": "route", "max_keys": 77, "when_full": "reject_new"},
        {"by": "k2", "sequence": "lsn2", "time": also(time="since", horizon="1 hour")},
    ),
    "joins.interval": Call(
        joins.interval,
        (EVENT, SIDE),
        {
            "right": None,
            "lower": "-9 seconds",
            "upper": "9 seconds",
            "by": "k",
            "time": ("ts", "since"),
        }
        | {"delay": "5 seconds", "how": "left", "matches": "first", "tie_break": "n"},
        {
            **RIGHT,
            "lower": "-20 seconds",
            "upper": "20 seconds",
            "how": "inner",
            "matches": "last",
            "tie_break": "n2",
        }
        | {"allowed_lateness": "20 seconds", "stragglers": "retract"}
        | {"too_late": also(stragglers="retract", too_late="route")},
        {
            "by": "k2",
            "time": ("ts2", "since"),
            "matches": also(matches="every", tie_break=None),
            "early": "every batch",
        },
    ),
    "joins.interval, revised": Call(
        joins.interval,
        (EVENT, SIDE),
        {"right": None, "lower": "-9 seconds", "upper": "9 seconds", "by": "k"}
        | {"time": ("ts", "since"), "delay": "5 seconds", "how": "left", "matches": "first"}
        | {"tie_break": "n", **CORRECTED},
        {},
        {"lower": "-20 seconds", "upper": "20 seconds", "how": "inner", "tie_break": "n2"}
        | {"stragglers": "drop"},
    ),
    "joins.interval, every match": Call(
        joins.interval,
        (EVENT, SIDE),
        {"right": None, "lower": "-9 seconds", "upper": "9 seconds", "by": "k"}
        | {"time": ("ts", "since"), "delay": "5 seconds", "how": "left"},
        {"early": "every batch"},
        {},
    ),
    "joins.tables": Call(
        joins.tables,
        (CHANGE, OTHER),
        {"right": None, "by": "k", "key": ("id", "id"), "sequence": "lsn", "remember": 100},
        {"right": None, "remember": 50, "rejected": "route"},
        {
            "by": "k2",
            "how": "left",
            "key": ("id2", "id"),
            "sequence": also(sequence=ABSENT, remember=ABSENT),
        },
    ),
    "joins.timeline": Call(
        joins.timeline,
        (CHANGE, OTHER),
        {
            "right": None,
            "by": "k",
            "user": "n",
            "key": "id",
            "ranked_by": "v",
            "cap": 5,
            "sequence": "lsn",
            "remember": 100,
        },
        {"right": None, "remember": 50, "rejected": "route"},
        {
            "by": "k2",
            "user": "id",
            "key": "id2",
            "ranked_by": "w",
            "cap": 7,
            "sequence": also(sequence=ABSENT, remember=ABSENT),
        },
    ),
    "changes.aggregate": Call(
        changes.aggregate,
        (CHANGE,),
        {"by": "k", "agg": SUM},
        {"rejected": "route"},
        {"by": "k2", "agg": COUNT},
    ),
    "changes.apply": Call(
        changes.apply,
        (SIDE,),
        {"key": "k", "sequence": "lsn", "horizon": 100, "history": "intervals", "surrogate": "sk"},
        {"horizon": 50, "surrogate": "other", "max_keys": 77, "when_full": "reject_new"},
        {
            "key": "k2",
            "sequence": "lsn2",
            "time": also(time="since", horizon="1 hour"),
            "history": also(history="overwrite", surrogate=None),
        }
        | {"track": ["n"], "snapshots": "by_sequence", "ignore_nulls": True},
    ),
    "changes.normalize": Call(
        changes.normalize,
        (SIDE,),
        {"key": "k", "sequence": "lsn", "horizon": 100},
        {"horizon": 50, "publish": "last", "max_keys": 77, "when_full": "reject_new"},
        {"key": "k2", "sequence": "lsn2", "time": also(time="since", horizon="1 hour")}
        | {"snapshots": "by_sequence", "ignore_nulls": True},
    ),
    "patterns.match": Call(
        patterns.match,
        (EVENT,),
        {
            **TIMED,
            "pattern": "A B+",
            "define": {"A": "flag", "B": patterns.previous("v") > "v"},
            "within": "1 minute",
        }
        | {
            "measures": {"x": patterns.first("A", "w"), "y": patterns.first("A", "ts2")},
            "matches": "first",
            "horizon": "1 minute",
            "tie_break": "v",
        },
        {
            "delay": "9 seconds",
            "within": "20 seconds",
            "measures": {"x": patterns.first("A", "w")},
            "horizon": "2 minutes",
        }
        | {"stragglers": "route", "timeouts": "route", "max_rows": 77, "when_full": "evict_oldest"},
        {
            **NAMES,
            "pattern": "A B",
            "define": {"A": "flag", "B": patterns.previous("v") < "v"},
            "tie_break": "w",
        }
        | {
            "measures": {"x": patterns.first("A", "k2")},
            "matches": also(matches="every", horizon=None),
            "skip": also(matches="every", horizon=None, skip="to next row"),
        },
    ),
    "process.per_key": Call(
        process.per_key,
        (EVENT,),
        {"function": add, **TIMED, "output": "n bigint", "state": "n bigint", "initial": {"n": 5}},
        {
            "function": add_too,
            "delay": "9 seconds",
            "output": "m bigint",
            "stragglers": "route",
            "errors": "route",
            "max_keys": 77,
        }
        | {
            "state": "n bigint, m bigint",
            "initial": also(state="n bigint, m bigint", initial={"n": 5, "m": 1}),
        }
        | {"on_timer": also(function=add_and_wait, on_timer=wake)},
        {**NAMES, "order_by": "v", "state": "n double", "initial": {"n": 6}},
    ),
    "process.per_key, timers": Call(
        process.per_key,
        (EVENT,),
        {"function": add_and_wait, "on_timer": wake, **TIMED, "output": "n bigint"},
        {},
        {"on_timer": also(function=pass_on, on_timer=ABSENT)},
    ),
    "search.match": Call(
        search.match,
        (EVENT, QUERY),
        {
            "queries": None,
            "text": "k",
            "fields": "v",
            "sequence": "lsn",
            "as_of": "ts",
            "time": "since",
            "delay": "5 seconds",
        },
        {
            "queries": None,
            "horizon": "1 hour",
            "delay": "9 seconds",
            "waits_for": "documents",
            "rejected": "route",
        }
        | {"into": "found", "max_keys": 77, "when_full": "reject_new", "query": "command"},
        {
            "text": "k2",
            "fields": "w",
            "id": "id2",
            "default_operator": "and",
            "as_of": "ts2",
            "sequence": "lsn2",
            "time": "since2",
        },
    ),
    "sketches.seen": Call(
        sketches.seen,
        (EVENT,),
        {"identity": "k", "capacity": 100, "time": "ts", "horizon": "1 hour"},
        {"again": "drop", "when_full": "fail"},
        {
            "identity": "k2",
            "capacity": 200,
            "false_positive_rate": 0.1,
            "time": "ts2",
            "horizon": "2 hours",
            "generations": 7,
        },
    ),
    "sourcing.decide": Call(
        sourcing.decide,
        (EVENT,),
        {
            "decide": decide,
            "evolve": evolve,
            "by": "k",
            "command_id": "k2",
            "time": "ts",
            "state": "n bigint",
            "event": "v bigint",
        }
        | {"delay": "5 seconds", "initial": {"n": 5}},
        {
            "decide": decide_too,
            "evolve": evolve_too,
            "state": "n bigint, m bigint",
            "event": "v bigint, w bigint",
        }
        | {
            "initial": also(state="n bigint, m bigint", initial={"n": 5, "m": 1}),
            "expected_version": "w",
        }
        | {"delay": "9 seconds", "stragglers": "route", "max_ids": 7, "max_keys": 77},
        {
            **NAMES,
            "by": also(by="flag"),
            "command_id": also(command_id="k"),
            "order_by": "v",
            "state": "n double",
            "initial": {"n": 6},
        },
    ),
    "time.producers": Call(
        time.producers,
        (EVENT,),
        {"producer": "k", "time": "ts", "delay": "5 seconds", "idle": "1 minute", "arrival": "ts2"},
        {"delay": "9 seconds", "idle": "2 minutes", "punctuation": "flag", "expected": ["a"]},
        {"producer": "k2", "time": also(time="ts2", arrival="ts"), "arrival": ABSENT},
    ),
    "time.track_clock": Call(
        time.track_clock,
        (CLOCK,),
        {"time": "ts", "by": "k", "sent": "since", "received": "since2"},
        {"time": "ts2", "tolerance": "9 seconds", "longest_wait": "2 hours", "otherwise": "null"},
        {
            "by": "k2",
            "sent": "ts2",
            "received": "ts2",
            "horizon": "20 days",
            "step": "2 minutes",
            "largest_offset": "9 days",
        },
    ),
}


def outcome(call: Call, **changed: Any) -> str:
    """Restart a query with other parameters: "accepted", or the code of the error."""
    schemas = tuple(schema_of(names) for names in call.columns)
    batches = [tuple(rows_of(names, n) for names in call.columns) for n in range(4)]
    given: list[Any] = [of if len(of) > 1 else of[0] for of in batches]
    frames: Any = schemas if len(schemas) > 1 else schemas[0]
    query = Replay(call.operator(), frames, shards=3)
    query.run(given[:2])
    restart(query, [call.operator(**changed)])
    try:
        query.run(given[2:])
    except StateFormatError as error:
        return error.code
    return "accepted"


UNTRIED = {("joins.enrich", "snapshot"): "a frame, which only the first micro-batch on Spark reads"}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function that returns an operator."""
    for family in FAMILIES:
        module = importlib.import_module(f"streamops.{family}")
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found) and found.__annotations__.get("return") == "Operator":
                yield f"{family}.{name}", found


def answers() -> dict[str, dict[str, set[str]]]:
    """The table of the page: by operator and answer, the names of parameters."""
    section = PAGE.read_text().split("## Every parameter")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    return {
        name.strip("`"): {
            answer: {*re.findall(r"`(\w+)`", cell)}
            for answer, cell in zip(ANSWERS, cells, strict=True)
        }
        for name, *cells in rows
    }


ROWS = answers()


def tries() -> Iterator[tuple[str, str, bool]]:
    """Each call, the parameter that changes, and whether the change is accepted."""
    for name, call in CALLS.items():
        yield from ((name, parameter, True) for parameter in call.accepted)
        yield from ((name, parameter, False) for parameter in call.refused)


def test_each_parameter_of_each_operator_has_one_answer() -> None:
    for name, function in functions():
        parameters = {*inspect.signature(function).parameters}
        row = ROWS[name]
        found = [parameter for of in row.values() for parameter in of]
        assert len({*found}) == len(found), f"{name}: two answers"
        assert parameters == {*found}, f"{name}: {parameters ^ {*found}}"
    assert ROWS.keys() == {name for name, _ in functions()}


def test_each_answer_is_tried() -> None:
    tried = {(name.partition(",")[0], parameter, is_ok) for name, parameter, is_ok in tries()}
    wrong = []
    for name, row in ROWS.items():
        for answer, parameters in row.items():
            wanted = {"accepted": {True}, "in part": {True, False}}.get(answer, {False})
            for parameter in parameters:
                found = {is_ok for *of, is_ok in tried if of == [name, parameter]}
                is_known = name in (*STATELESS, "process.per_shard") or (name, parameter) in UNTRIED
                wrong += [] if found == wanted or is_known else [(name, parameter, found)]
    assert not wrong


STATELESS = {
    "changes.from_debezium",
    "changes.from_delta",
    "sourcing.fold",
    "time.correct_clock",
    "time.guard",
    "time.processing_time",
}
"""Operators without a state: every change is accepted."""


def test_operators_without_a_state() -> None:
    calls: list[Operator] = [
        changes.from_debezium("id bigint", key="id"),
        changes.from_delta("id"),
        sourcing.fold(evolve, by="k", state="n bigint", version="v"),
        time.correct_clock("ts", sent="since", received="ts2"),
        time.guard("ts", arrival="ts2"),
        time.processing_time(into="now"),
    ]
    assert {operator.name for operator in calls} == STATELESS
    assert not any(operator.core for operator in calls if operator.name != "sourcing.fold")
    for name in STATELESS:
        assert not any(of for answer, of in ROWS[name].items() if answer != "accepted")


@pytest.mark.parametrize("name", CALLS)
def test_the_same_parameters_go_on(name: str) -> None:
    assert outcome(CALLS[name]) == "accepted"


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "parameter", "is_accepted"), [*tries()])
def test_the_answer_is_true(name: str, parameter: str, is_accepted: bool) -> None:
    call = CALLS[name]
    value = (call.accepted if is_accepted else call.refused)[parameter]
    changed = value.more if isinstance(value, _Also) else {parameter: value}
    found = outcome(call, **changed)
    assert found == "accepted" if is_accepted else found in ("STATE_PARAMETERS", "STATE_KIND")
