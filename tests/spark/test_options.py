"""Execution options: the same for every operator, and refused while the plan is built."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops import changes, joins, time, windows
from streamops.kernel.errors import SpecError
from streamops.spark.operator import Operator


def tumbling() -> Operator:
    return windows.tumbling("1 hour", time="ts", agg={"n": agg.count()})


@pytest.mark.parametrize("shards", [0, -1, 2**15 + 1, "16", 1.5, 16.0, True])
def test_a_number_of_shards_out_of_range_is_refused(shards: Any) -> None:
    with pytest.raises(SpecError) as caught:
        tumbling().options(shards=shards)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] windows.tumbling: `shards` is out of range\n"
        f"  got:       shards={shards!r}\n"
        "  expected:  an integer from 1 to 32768\n"
        "  fix:       use the default (8); more if the state of a shard exceeds some MB"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


@pytest.mark.parametrize("keys", [0, -1, "1000", 1e3, True])
def test_a_number_of_expected_keys_that_is_none_is_refused(keys: Any) -> None:
    with pytest.raises(SpecError) as caught:
        tumbling().options(expected_keys=keys)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] windows.tumbling: `expected_keys` is not a number of keys\n"
        f"  got:       expected_keys={keys!r}\n"
        "  expected:  an integer, 1 or more: about how many distinct keys have rows within a window\n"
        "  fix:       leave it out if it is not known: a stream then runs on the kernel"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


@pytest.mark.parametrize(
    ("parameter", "choices"),
    [
        ("engine", "'auto', 'kernel', 'native'"),
        ("state_api", "'auto', 'applyInPandasWithState', 'transformWithStateInPandas'"),
    ],
)
def test_an_engine_or_state_api_that_does_not_exist_is_refused(
    parameter: str, choices: str
) -> None:
    options: dict[str, Any] = {parameter: "fast"}
    with pytest.raises(SpecError) as caught:
        tumbling().options(**options)
    assert str(caught.value) == (
        f"[UNKNOWN_CHOICE] windows.tumbling: `{parameter}` is not one of its choices\n"
        f"  got:       {parameter}='fast'\n"
        f"  expected:  one of {choices}\n"
        f"  fix:       write one of {choices}"
        "\n  see:       docs/errors.md#unknown_choice"
    )


@pytest.mark.parametrize("name", [1, "", ["n"]])
def test_a_name_of_metrics_that_is_not_text_is_refused(name: Any) -> None:
    with pytest.raises(SpecError, match=r"^\[PARAMETER_TYPE\] windows.tumbling: `name` "):
        tumbling().options(name=name)


@pytest.mark.parametrize(
    "operator",
    [
        windows.calendar("day", "UTC", time="ts", agg={"n": agg.count()}),
        windows.cumulative("1 hour", "1 minute", time="ts", agg={"n": agg.count()}),
        windows.compare("1 hour", values="n"),
        windows.running(by="k", agg={"n": agg.count()}),
    ],
    ids=lambda operator: operator.name,
)
def test_an_operator_that_spark_does_not_have_has_no_native_engine(operator: Operator) -> None:
    with pytest.raises(SpecError) as caught:
        operator.options(engine="native")
    assert (caught.value.code, caught.value.where) == ("PARAMETERS_CONTRADICT", operator.name)
    assert operator.options(engine="kernel").execution.engine == "kernel"


@pytest.mark.parametrize(
    "options",
    [
        {"shards": 4},
        {"engine": "kernel"},
        {"state_api": "auto", "name": "good"},
        {"expected_keys": 10},
    ],
)
def test_an_operator_without_state_has_no_options_but_its_name(options: dict[str, Any]) -> None:
    guard = time.guard("ts")
    assert guard.options(name="good").metrics_name == "good"
    with pytest.raises(SpecError, match=r"^\[PARAMETER_WITHOUT_EFFECT\] time.guard: ") as caught:
        guard.options(**options)
    assert caught.value.fix == "omit the other options"


def test_options_that_are_not_given_stay_as_they_are() -> None:
    operator = tumbling().options(shards=16).options(name="daily")
    assert (operator.execution.shards, operator.metrics_name) == (16, "daily")
    assert repr(operator).endswith(").options(name='daily', shards=16)")
    few = operator.options(expected_keys=100).options(engine="auto")
    assert repr(few).endswith(").options(name='daily', shards=16, expected_keys=100)")
    assert tumbling().metrics_name == "tumbling"


SUM = {"n": agg.sum("v")}


@pytest.mark.parametrize(
    ("operator", "reads"),
    [
        (windows.tumbling("1 hour", time="ts", by="k", agg=SUM), (("k", "v"),)),
        (windows.running(by="k", agg=SUM), (("k", "v"),)),
        (changes.aggregate(by="k", agg=SUM), (("k", "v"),)),
        (changes.normalize("k", sequence="lsn", horizon=1), (("k", "lsn"),)),
        (
            joins.asof(None, by="k", time="ts", version="at", sequence="n", tolerance="1 hour"),
            (("k", "ts"), ("k", "at", "n")),
        ),
        (
            joins.interval(None, "0 seconds", "1 hour", by="k", time="ts"),
            (("k", "ts"), ("k", "ts")),
        ),
        (
            time.track_clock("at", by="device", sent="sent", received="received"),
            (("device",),),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Operator) else "",
)
def test_an_operator_lists_the_columns_whose_values_it_compares(
    operator: Operator, reads: tuple[tuple[str, ...], ...]
) -> None:
    assert operator.parameters.reads == reads


def test_the_corrected_time_carries_the_metadata_for_the_next_operator() -> None:
    corrected = time.correct_clock("at", sent="sent", received="received").parameters
    assert corrected.marked == corrected.adds[0] == "corrected_time"
