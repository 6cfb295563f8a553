"""Which engine an operator gets, by what the user expects and by what was measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from streamops import aggregates as agg
from streamops import joins, windows
from streamops.changelog.chains import WATERMARK
from streamops.kernel.errors import SpecError
from streamops.spark.definition import KeyLimit, Options, choose_engine, engine_of
from streamops.spark.operator import Operator

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.string()),
        ("v", pa.int64()),
        ("gap", pa.duration("us")),
    ]
)
COMMON: dict[str, Any] = {"time": "ts", "by": "k", "agg": {"n": agg.count()}, "delay": "1 minute"}
LATE: dict[str, Any] = {"stragglers": "update", "allowed_lateness": "1 hour"}


def choose(
    operator: Operator, *, stream: bool = True, ansi: str = "true", watermark: str | None = None
) -> str:
    """The choice on frames of which only these facts matter: whether they are streams, the setting of
    the session, and the column with a watermark."""
    marked = [(name, {WATERMARK: 1} if name == watermark else {}) for name in ("ts", "end")]
    frame: Any = SimpleNamespace(
        isStreaming=stream,
        sparkSession=SimpleNamespace(conf=SimpleNamespace(get=lambda key: ansi)),
        schema=StructType([StructField(n, TimestampType(), True, mark) for n, mark in marked]),
    )
    sides = len(operator.parameters.times)
    carried = (None if watermark is None else 1_000,) * sides
    spec = operator.parameters.resolve((SCHEMA,) * sides, carried=carried, shards=8)
    return str(engine_of(operator, [frame] * sides, spec))


def tumbling(**changed: Any) -> Operator:
    return windows.tumbling("1 minute", **{**COMMON, **changed})


def test_a_stream_without_expected_keys_runs_on_the_kernel() -> None:
    assert choose(tumbling()) == "kernel: engine='auto' without expected_keys"
    assert choose(tumbling(by=())) == "kernel: engine='auto' without expected_keys"


@pytest.mark.parametrize(
    ("keys", "choice"),
    [
        (1, "native: engine='auto', and expected_keys=1 is at most 1000"),
        (1_000, "native: engine='auto', and expected_keys=1000 is at most 1000"),
        (1_001, "kernel: engine='auto', and expected_keys=1001 is above 1000"),
    ],
)
def test_a_stream_of_few_keys_runs_on_sparks_own_windows(keys: int, choice: str) -> None:
    assert choose(tumbling().options(expected_keys=keys)) == choice


@pytest.mark.parametrize("engine", ["kernel", "native"])
@pytest.mark.parametrize("keys", [1, 10**9])
def test_an_engine_that_was_selected_does_not_depend_on_the_keys(engine: Any, keys: int) -> None:
    operator = tumbling().options(engine=engine, expected_keys=keys)
    assert choose(operator) == f"{engine}: engine={engine!r}"


@pytest.mark.parametrize(
    "operator",
    [
        tumbling(**LATE),
        tumbling(stragglers="route"),
        tumbling(early="every batch"),
        tumbling(empty_for="1 hour"),
        tumbling(agg={"n": agg.approx_count_distinct("v")}),
        windows.sliding("1 minute", **COMMON),
        windows.session(**COMMON, gap_column="gap", gap="1 hour"),
        joins.interval(
            None, "0 seconds", "1 hour", by="k", time="ts", delay="1 minute", how="anti"
        ),
    ],
    ids=repr,
)
def test_the_kernel_runs_what_spark_cannot(operator: Operator) -> None:
    choice = "kernel: engine='auto', and Spark has no equivalent with these parameters"
    assert choose(operator.options(expected_keys=1)) == choice


def test_sums_run_on_the_kernel_where_spark_does_not_check_them() -> None:
    total = tumbling(agg={"v": agg.sum("v")}).options(expected_keys=1)
    assert choose(total).startswith("native: ")
    assert choose(total, ansi="false").endswith("Spark has no equivalent with these parameters")
    assert choose(total, ansi="false", stream=False).startswith("kernel: ")


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (
            windows.session("1 minute", **COMMON),
            "Spark begins a second session where a late row would extend an emitted one",
        ),
        (
            windows.hopping("5 minutes", "1 minute", **COMMON),
            "Spark repeats each row for every window in which it lies",
        ),
        (
            joins.interval(None, "0 seconds", "1 hour", by="k", time="ts", delay="1 minute"),
            "Spark's own join was never cheaper",
        ),
    ],
    ids=["session", "hopping", "interval"],
)
def test_sessions_hopping_windows_and_joins_of_streams_run_on_the_kernel_whatever_the_keys(
    operator: Operator, reason: str
) -> None:
    assert choose(operator.options(expected_keys=1)) == f"kernel: engine='auto', and {reason}"
    assert choose(operator.options(engine="native")) == "native: engine='native'"


def test_batches_run_on_sparks_own_windows_except_sliding_ones_whatever_the_keys() -> None:
    batch = "native: engine='auto', and the frame is a batch"
    for operator in (tumbling(**LATE), windows.session("1 minute", **COMMON)):
        assert choose(operator.options(expected_keys=10**9), stream=False) == batch
    assert choose(windows.sliding("1 minute", **COMMON), stream=False) == (
        "kernel: engine='auto', and Spark aggregates the whole window of each row anew"
    )


def test_a_limit_of_no_keys_and_one_of_any_number_say_why() -> None:
    hint = Options(expected_keys=1)
    assert choose_engine(hint, KeyLimit(0, "x")) == ("kernel", "engine='auto', and x")
    assert choose_engine(Options(), KeyLimit(None, "x")) == ("native", "engine='auto', and x")


def test_sparks_own_operators_need_the_watermark_on_the_event_time() -> None:
    """Spark would refuse the query when it starts, with the name of an output mode."""
    behind = tumbling(delay=None).options(expected_keys=1)
    assert choose(behind, watermark="ts").startswith("native: ")
    assert (
        choose(behind, watermark="end") == "kernel: engine='auto', and the watermark is not on 'ts'"
    )
    selected = behind.options(engine="native")
    assert choose(selected, watermark="ts") == "native: engine='native'"
    with pytest.raises(SpecError) as caught:
        choose(selected, watermark="end")
    assert str(caught.value) == (
        "[WATERMARK_MISSING] windows.tumbling: "
        "Spark's own operators need the watermark on the event-time column itself\n"
        "  got:       engine='native' with time='ts', and a watermark on end\n"
        "  expected:  a column that has the watermark, or the kernel, which finds it on another one\n"
        '  fix:       engine="auto" or engine="kernel" in this operator'
        "\n  see:       docs/errors.md#watermark_missing"
    )


def test_an_operator_that_spark_does_not_have_has_no_choice() -> None:
    calendar = windows.calendar("day", "UTC", **COMMON)
    spec = calendar.parameters.resolve((SCHEMA,), carried=(None,), shards=8)
    assert engine_of(calendar, [], spec) is None
