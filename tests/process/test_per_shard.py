"""Operators of one's own, and the laws that check them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import process, windows
from streamops.errors import SchemaError, SpecError
from streamops.testing import at, laws, replay
from tests.oracles.silences import SilencesOracle
from tests.process.functions import bursts, sums
from tests.process.silences import Silences, SilencesSpec, silences

MINUTE = dt.timedelta(minutes=1)
GIVEN: dict[str, Any] = {"by": "device", "time": "ts", "delay": dt.timedelta(seconds=10)}
OPERATOR = silences(5 * MINUTE, **GIVEN)
KEYS = {"device": st.sampled_from(["a", "b", None])}
VALUES = {"k": st.sampled_from("ab"), "v": st.sampled_from([1, 2, 5, None])}
EVENT = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
DEVICE = pa.schema([("device", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def beat(device: str, minutes: float) -> dict[str, Any]:
    return {"device": device, "ts": at(60 * minutes)}


@pytest.mark.laws
@given(
    batches=laws.histories(KEYS, time="ts", pace="4 minutes"),
    minutes=st.sampled_from([0, 4, 5, 8]),
    delay=st.sampled_from([dt.timedelta(0), dt.timedelta(seconds=10), 6 * MINUTE]),
    has_null=st.booleans(),
    seed=st.integers(0, 99),
)
def test_an_operator_of_ones_own_keeps_the_laws(
    batches: list[Any], minutes: int, delay: dt.timedelta, has_null: bool, seed: int
) -> None:
    if has_null:
        batches = [*batches, [{"device": "a", "ts": None}]]
    oracle = SilencesOracle("device", "ts", minutes * 60_000_000)
    operator = silences(minutes * MINUTE, **GIVEN | {"delay": delay})
    laws.check_operator(operator, batches, schema=DEVICE, oracle=oracle.fresh, seed=seed)


@pytest.mark.laws
@given(batches=laws.histories(VALUES, time="ts"))
def test_functions_keep_the_laws(batches: list[Any]) -> None:
    laws.check_operator(bursts(), batches, schema=EVENT)
    laws.check_operator(sums(), batches, schema=EVENT)


def test_it_runs_before_and_after_other_operators() -> None:
    alive = windows.tumbling(
        "2 minutes", time="ts", by="device", agg={"n": agg.count()}, delay="10 seconds"
    )
    after = silences(5 * MINUTE, by="device", time="window_end")
    script = [[beat("a", n) for n in (0, 1, 3, 12)], [beat("a", 60)], []]
    rows = [row for result in replay([alive, after], script) for row in result.rows]
    assert [(row["since"], row["window_end"]) for row in rows] == [(at(240), at(840))]
    days = windows.tumbling("1 hour", time="ts", by="device", agg={"n": agg.count()})
    script = [[beat("a", n) for n in (0, 6, 20)], [beat("a", 200)], [beat("a", 600)], []]
    rows = [row for result in replay([OPERATOR, days], script) for row in result.rows]
    assert [row["n"] for row in rows] == [2, 1]


def test_an_empty_frame_and_late_and_null_rows() -> None:
    script = [[beat("a", 0)], [], [beat("a", 100)], [], [beat("a", 50), {"device": "a"}]]
    results = replay(OPERATOR, script, schema=DEVICE, restart=True)
    counts = [result.counts for result in results if result.counts is not None]
    assert [count.too_late for count in counts] == [0, 0, 0, 0, 1]
    assert [count.rejected for count in counts] == [0, 0, 0, 0, 1]


def test_columns_are_checked() -> None:
    with pytest.raises(SchemaError) as caught:
        replay(OPERATOR, [[{"device": "a", "t": at(0)}]])
    assert caught.value.code == "COLUMN_NOT_FOUND"
    assert caught.value.where == "acme.silences"


class Nothing:
    """Neither a core nor parameters."""


class Unnamed(Silences):  # type: ignore[misc]
    STATE = process.StateFormat("windows.grid", 1)


@pytest.mark.parametrize(
    ("core", "parameters", "code"),
    [
        (Nothing(), OPERATOR.parameters, "PARAMETER_TYPE"),
        (Silences, OPERATOR.parameters, "PARAMETER_TYPE"),
        (process.Core(), OPERATOR.parameters, "PARAMETER_TYPE"),
        (Unnamed(), OPERATOR.parameters, "PARAMETER_TYPE"),
        (Silences(), Nothing(), "PARAMETER_TYPE"),
        (Silences(), SilencesSpec, "PARAMETER_TYPE"),
    ],
)
def test_what_is_not_complete_is_refused(core: Any, parameters: Any, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        process.per_shard(core, parameters)
    assert caught.value.code == code


# -- wrong functions


def per_batch(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
    total = sum(row.v or 0 for row in rows)
    yield (total,)


GLOBAL = {"n": 0}


def with_a_global(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
    for _ in rows:
        GLOBAL["n"] += 1
        yield (GLOBAL["n"],)


def reads_ahead(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
    for row in list(rows):
        yield (row.v,)


def forgets(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
    state.n = 0
    for _ in rows:
        state.n += 1
        yield (state.n,)


@pytest.mark.laws
@pytest.mark.parametrize(
    "function",
    [
        per_batch,
        with_a_global,
        *(pytest.param(wrong, marks=pytest.mark.exhaustive) for wrong in (reads_ahead, forgets)),
    ],
)
def test_a_wrong_function_violates_a_law(function: Callable[..., Any]) -> None:
    operator = process.per_key(
        function, by="k", state="n bigint", output="n bigint", time="ts", delay="10 seconds"
    )

    @settings(report_multiple_bugs=False, max_examples=50)
    @given(batches=laws.histories(VALUES, time="ts", pace="10 seconds"))
    def check(batches: list[Any]) -> None:
        laws.check_operator(operator, batches, schema=EVENT)

    with pytest.raises(AssertionError) as caught:
        check()
    notes = "\n".join(caught.value.__notes__)
    assert "Violated law: " in notes
    assert 1 <= notes.count("'k': ") <= 3
    files = {str(entry.path) for entry in caught.traceback.filter(caught)}
    assert __file__ in files
    assert not any("streamops/testing" in path for path in files)


class Impatient(Silences):  # type: ignore[misc]
    """Its deadline is too late."""

    def next_deadline(self, spec: Any, state: Any) -> Any:
        return max(state.tables["waiting"].column("time").to_pylist(), default=None)


class Careless(Silences):  # type: ignore[misc]
    """It does not look up the newest event of a key."""

    def step(self, spec: Any, state: Any, inputs: Any, watermark: Any) -> Any:
        tables = {**state.tables, "last": state.tables["last"].slice(0, 0)}
        return super().step(spec, process.State(state.watermark, tables), inputs, watermark)


class Inclusive(Silences):  # type: ignore[misc]
    """An interval of exactly the bound is a silence: in streams and batches alike."""

    def step(self, spec: Any, state: Any, inputs: Any, watermark: Any) -> Any:
        return super().step(replace(spec, longest=spec.longest - 1), state, inputs, watermark)


STREAM_EQUALS_BATCH = {"stream_equals_batch", "stream_equals_batch_over_accepted_rows"}
"""Which of them is violated depends on the history that Hypothesis draws first."""


@pytest.mark.laws
@pytest.mark.parametrize(
    ("core", "violated"),
    [
        (Inclusive(), {"equals_the_oracle"}),
        (Impatient(), {"the_deadline_is_exact"}),
        (Careless(), {*STREAM_EQUALS_BATCH, "the_deadline_is_exact"}),
    ],
)
def test_a_wrong_core_violates_a_law(core: Any, violated: set[str]) -> None:
    operator = process.per_shard(core, silences(4 * MINUTE, **GIVEN).parameters)
    oracle = SilencesOracle("device", "ts", 4 * 60_000_000)

    # Which history violates the law does not matter, so it is not shrunk.
    @settings(report_multiple_bugs=False, max_examples=50, phases=[Phase.generate])
    @given(batches=laws.histories(KEYS, time="ts", pace="4 minutes", most_rows=4))
    def check(batches: list[Any]) -> None:
        laws.check_operator(operator, batches, schema=DEVICE, oracle=oracle.fresh)

    with pytest.raises(AssertionError) as caught:
        check()
    assert {f"Violated law: {law}." for law in violated} & {*caught.value.__notes__}


def test_only_one_operator_can_be_checked() -> None:
    with pytest.raises(SpecError) as caught:
        laws.check_operator([sums(), sums()], [[]], schema=EVENT)  # type: ignore[arg-type]
    assert caught.value.code == "NOT_REPLAYABLE"
