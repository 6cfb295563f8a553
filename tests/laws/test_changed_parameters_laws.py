"""Other parameters of windows after a restart: the results are those of a reference that defines the change."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.errors import CapacityError
from streamops.kernel import segments
from streamops.spark.operator import Operator
from streamops.testing import BatchResult, Replay, at
from streamops.testing.batches import to_tables
from tests.laws.test_changed_aggregates_laws import restart, segments_of
from tests.oracles.changed import (
    Changing,
    ChangingCalendar,
    ChangingCumulative,
    ChangingSessions,
    ChangingSliding,
    ChangingWindows,
)
from tests.oracles.rolling import RollingOracle
from tests.oracles.windows import Expected

pytestmark = pytest.mark.laws

SECOND = 1_000_000
DELAY = 5
DAY = 8_640
"""The seconds of a unit of time, if ten units are a day: calendar windows have the histories of ten-second ones."""
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("last", pa.bool_()),
        ("batch", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
AGGREGATES: dict[str, Any] = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "least": agg.min("v"),
    "mean": agg.mean("v"),
}
_DURATIONS = ("allowed_lateness", "gap", "max_length", "empty_for")
Parameters = dict[str, Any]
Build = Callable[..., Operator]


def _grid(size: int, hop: int) -> tuple[Build, Callable[..., Changing], Parameters]:
    fixed: Parameters = {"size": size * SECOND, "hop": hop * SECOND, "origin": 0}
    of = lambda **given: windows.hopping(f"{size} seconds", f"{hop} seconds", **given)  # noqa: E731
    return of, lambda **given: ChangingWindows(**fixed, **given), {}


def _cumulative() -> tuple[Build, Callable[..., Changing], Parameters]:
    fixed: Parameters = {"size": 20 * SECOND, "every": 5 * SECOND}
    of = lambda **given: windows.cumulative("20 seconds", every="5 seconds", **given)  # noqa: E731
    return of, lambda **given: ChangingCumulative(**fixed, **given), {}


def _calendar() -> tuple[Build, Callable[..., Changing], Parameters]:
    of = lambda **given: windows.calendar("day", zone="Europe/Berlin", **given)  # noqa: E731
    return of, lambda **given: ChangingCalendar(unit="day", zone="Europe/Berlin", **given), {}


def _sliding() -> tuple[Build, Callable[..., Changing], Parameters]:
    of = lambda **given: windows.sliding("15 seconds", **given)  # noqa: E731
    return of, lambda **given: ChangingSliding(size=15 * SECOND, **given), {}


def _session(**fixed: Any) -> tuple[Build, Callable[..., Changing], Parameters]:
    of = lambda gap, **given: windows.session(gap, **given)  # noqa: E731
    return of, ChangingSessions, {"gap": 8, **fixed}


EMPTY = "tumbling with empty windows"
LONGER = "session that fails above a length"
WINDOWS: dict[str, tuple[Build, Callable[..., Changing], Parameters]] = {
    "tumbling": _grid(10, 10),
    "hopping": _grid(20, 5),
    "cumulative": _cumulative(),
    "calendar": _calendar(),
    EMPTY: _grid(10, 10),
    "sliding": _sliding(),
    "session": _session(),
    "session with a last row": _session(until="last"),
    "session of a maximum length": _session(max_length=20),
    LONGER: _session(max_length=20, when_longer="fail"),
}


chosen = st.lists(st.sampled_from([*AGGREGATES]), min_size=1, max_size=3, unique=True)


@st.composite
def parameters(draw: st.DrawFn, name: str) -> Parameters:
    """What may change, as the functions take it; durations in units of time, which are seconds but for the calendar."""
    if (
        name == EMPTY
    ):  # nothing but these policies may change, or the empty windows would need history
        return {
            "stragglers": draw(st.sampled_from(["drop", "route"])),
            "allowed_lateness": draw(st.sampled_from([0, 30])),
            "empty_for": draw(st.sampled_from([None, 10, 25, 60])),
            "agg": {one: AGGREGATES[one] for one in draw(chosen)},
        }
    stragglers = draw(st.sampled_from(["drop", "route", "update", "retract", "retract"]))
    if name.startswith("session") and stragglers == "update":
        stragglers = "retract"
    corrects = stragglers in ("update", "retract")
    lateness = st.sampled_from([1, 10, 30, 90] if corrects else [0, 30])
    more: Parameters = {"early": draw(st.sampled_from(["never", "never", "every batch"]))}
    if name.startswith("session"):
        more |= {"gap": draw(st.sampled_from([8, 3, 15]))}
    return more | {
        "stragglers": stragglers,
        "allowed_lateness": draw(lateness),
        "too_late": draw(st.sampled_from(["drop", "route"])) if corrects else "drop",
        "agg": {
            one: AGGREGATES[one]
            for one in draw(chosen)
            if name != "cumulative" or one != "mean"  # sums of floats, which "retract" needs whole
        }
        or {"n": AGGREGATES["n"]},
    }


@st.composite
def histories(draw: st.DrawFn, unit: int = 1) -> list[list[dict[str, Any]]]:
    """Micro-batches of rows whose times advance, with late ones among them; some have no rows. `unit`: of time, in seconds."""
    rows = st.tuples(
        st.sampled_from("abc"),
        st.integers(-3, 3) | st.none(),
        st.integers(-60, 8) | st.integers(-12, 8),
        st.booleans(),
    )
    found, now = [], 100
    for number, batch in enumerate(
        draw(st.lists(st.lists(rows, max_size=6), min_size=2, max_size=9))
    ):
        now += draw(st.integers(0, 25))
        found.append(
            [
                {"k": k, "v": v, "last": last, "batch": number, "ts": at((now + after) * unit)}
                for k, v, after, last in batch
            ]
        )
    return found


@pytest.mark.parametrize("name", WINDOWS)
@given(data=st.data(), few=st.booleans())
def test_parameters_may_change(name: str, data: st.DataObject, few: bool) -> None:
    build, oracle_of, fixed = WINDOWS[name]
    unit = DAY if name == "calendar" else 1
    batches = data.draw(histories(unit))
    changes = data.draw(
        st.dictionaries(st.integers(1, len(batches) - 1), parameters(name), max_size=3)
    )
    quiet = data.draw(st.sets(st.integers(0, len(batches) - 1)))
    current = fixed | data.draw(parameters(name))
    used = {
        *current["agg"]
    }  # a segment has a state of an aggregate that was removed: it may come back
    event(f"{len(changes)} changes")
    with segments_of(1 if few else segments.LIMIT):
        query = Replay(operator_of(build, current, unit), SCHEMA, shards=2)
        reference: Any = oracle_of(by=("k",), time="ts", **in_micros(current, unit))
        marks = Watermarks(current, unit)
        for number, batch in enumerate(batches):
            first = Expected()
            if number in changes:
                names = [n for n in changes[number]["agg"] if n in current["agg"] or n not in used]
                names = names or [*current["agg"]]
                used |= {*names}
                turns_off = current.get("early") != changes[number].get("early") == "never"
                if name.startswith("session") and turns_off:  # else the early results would stay
                    changes[number] |= {"stragglers": "retract", "allowed_lateness": 10}
                if name == EMPTY:
                    changes[number]["empty_for"] = shorter(current, changes[number])
                current = current | changes[number] | {"agg": {n: AGGREGATES[n] for n in names}}
                restart(query, operator_of(build, current, unit))
                first = reference.change(number, **in_micros(current, unit))
                marks.parameters = current
            if current.get("when_longer") == "fail" and is_longer(reference, batch, marks.now):
                with pytest.raises(CapacityError, match="STATE_FULL"):
                    deepcopy(query)._step(to_tables(batch, query._schemas))
                current = current | {"when_longer": "split"}
                restart(query, operator_of(build, current, unit))
            require(
                reference, batch, marks.now, query._step(to_tables(batch, query._schemas)), first
            )
            if marks.is_of_another_lag:
                reference.pass_by(marks.mark)
            advanced = marks.advance(batch)
            assert advanced == (query._next > query._current)
            if advanced and number in quiet:
                require(reference, [], marks.now, query._step(None), Expected())
        result = query.flush()
        assert emitted(result, reference) == Counter(map(as_text, reference.finish()))


def is_longer(reference: Any, batch: Sequence[Mapping[str, Any]], watermark: int | None) -> bool:
    """Whether a session becomes longer than it may be."""
    after = deepcopy(reference)
    after.step([{**row, "ts": micros(row["ts"])} for row in batch], watermark)
    return any(len([*after._pieces(chain)]) > 1 for _, chain in after._chains(after.arrived))


HORIZONS = {"10s": 10, "25s": 25, "40s": 40, "5s": 5}


@given(data=st.data(), batches=histories(), few=st.booleans())
def test_horizons_and_stragglers_of_rolling_aggregates_may_change(
    data: st.DataObject, batches: list[list[dict[str, Any]]], few: bool
) -> None:
    names = st.lists(st.sampled_from([*HORIZONS]), min_size=1, max_size=3, unique=True)
    given = st.fixed_dictionaries(
        {"stragglers": st.sampled_from(["drop", "route"]), "horizons": names}
    )
    changes = data.draw(st.dictionaries(st.integers(1, len(batches) - 1), given, max_size=3))
    current = data.draw(given)
    agg: Any = {one: AGGREGATES[one] for one in data.draw(chosen)}

    def of(wanted: Parameters) -> Operator:
        rolling: Any = windows.rolling
        return rolling(
            every="5 seconds",
            horizons={name: f"{HORIZONS[name]} seconds" for name in wanted["horizons"]},
            **{"time": "ts", "by": "k", "agg": agg, "delay": f"{DELAY} seconds"},
            stragglers=wanted["stragglers"],
        )

    def lengths(wanted: Parameters) -> dict[str, int]:
        return {name: HORIZONS[name] * SECOND for name in wanted["horizons"]}

    with segments_of(1 if few else segments.LIMIT):
        query = Replay(of(current), SCHEMA, shards=2)
        reference = RollingOracle(
            every=5 * SECOND,
            horizons=lengths(current),
            **{"by": ("k",), "time": "ts", "agg": agg},
            stragglers=current["stragglers"],
        )
        marks = Watermarks({"allowed_lateness": 0}, 1)
        for number, batch in enumerate(batches):
            if number in changes:
                longest = max(HORIZONS[name] for name in current["horizons"])
                names_ = [n for n in changes[number]["horizons"] if HORIZONS[n] <= longest]
                current = changes[number] | {"horizons": names_ or current["horizons"]}
                restart(query, of(current))
                reference.horizons = lengths(current)
                reference.stragglers = current["stragglers"]
            result = query._step(to_tables(batch, query._schemas))
            require(reference, batch, marks.now, result, Expected())
            marks.advance(batch)
        result = query.flush()
        assert emitted(result, reference) == Counter(map(as_text, reference.finish()))


def shorter(current: Parameters, change: Parameters) -> int | None:
    """How long windows without rows are emitted: not longer than before."""
    before, after = current["empty_for"], change["empty_for"]
    return None if before is None or after is None else min(before, after)


class Watermarks:
    """The watermark of the operator: Spark's, and the lag of the parameters with which Spark computed it."""

    def __init__(self, parameters: Parameters, unit: int) -> None:
        self.parameters, self.second = parameters, unit * SECOND
        self.mark, self.lag = 0, 0

    @property
    def now(self) -> int | None:
        return self.mark + self.lag if self.mark else None

    @property
    def wanted(self) -> int:
        """The lag of the parameters."""
        lag: int = self.parameters["allowed_lateness"] * self.second
        if self.parameters.get("until") is not None:
            lag += self.parameters["gap"] * self.second
        return lag

    @property
    def is_of_another_lag(self) -> bool:
        """Whether Spark computed its watermark with another lag."""
        return bool(self.mark) and self.lag != self.wanted

    def advance(self, batch: Sequence[Mapping[str, Any]]) -> bool:
        """Compute the watermark of the next micro-batch. Whether Spark's moved."""
        lag = self.wanted
        newest = max((micros(row["ts"]) for row in batch), default=0)
        mark = newest - DELAY * self.second - lag
        if mark <= self.mark:
            return False
        self.mark, self.lag = mark, lag
        return True


def require(
    reference: Any,
    batch: list[dict[str, Any]],
    watermark: int | None,
    result: BatchResult,
    first: Expected,
) -> None:
    """The same results, late rows and counts."""
    expected = reference.step([{**row, "ts": micros(row["ts"])} for row in batch], watermark)
    assert emitted(result, reference) == Counter(map(as_text, [*first.emitted, *expected.emitted]))
    late = [(row["k"], row["reason"], row["window"], row["watermark"]) for row in result.late_rows]
    wanted = [
        (row["k"], row["late"]["reason"], row["late"]["window"], row["late"]["watermark"])
        for row in expected.late
    ]
    assert Counter(repr(plain(row)) for row in late) == Counter(map(repr, wanted))
    counts = {name: getattr(result.counts, name) for name in expected.counts}
    counted = {name: n + first.counts[name] for name, n in expected.counts.items()}
    assert counts == counted


def emitted(result: BatchResult, reference: Any) -> Counter[str]:
    return Counter(as_text(plain(row)) for row in result.rows)


def as_text(row: Mapping[str, Any]) -> str:
    return repr(sorted((name, value) for name, value in row.items() if name != "late"))


def plain(value: Any) -> Any:
    """Instants as microseconds."""
    if isinstance(value, dt.datetime):
        return micros(value)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def micros(instant: dt.datetime) -> int:
    return (instant - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def in_micros(given: Parameters, unit: int = 1) -> Parameters:
    """As the oracles take them, which always split."""
    scale = unit * SECOND
    return {
        n: v * scale if n in _DURATIONS and v is not None else v
        for n, v in given.items()
        if n != "when_longer"
    }


def operator_of(build: Build, given: Parameters, unit: int = 1) -> Operator:
    found = {
        n: f"{v * unit} seconds" if n in _DURATIONS and v is not None else v
        for n, v in given.items()
    }
    return build(time="ts", by="k", delay=f"{DELAY * unit} seconds", **found)
