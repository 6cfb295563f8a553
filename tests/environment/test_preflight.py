"""What the preflight reads off a frame's schema, on schemas as Spark makes them."""

from __future__ import annotations

import re
import sys
from typing import Any

import pyspark
import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from streamops.changelog.chains import INSTANT as INSTANT_MARK
from streamops.changelog.chains import (
    LATENESS,
    METRICS,
    ONCE,
    STATE_API,
    WATERMARK,
    carried_watermark,
)
from streamops.environment.settings import ROCKSDB
from streamops.kernel.core import Input
from streamops.kernel.errors import (
    ColumnNotFound,
    RequirementError,
    SpecError,
    WatermarkError,
    located,
)
from streamops.kernel.versions import has_transform
from streamops.spark.checks import columns_of
from streamops.spark.state_apis import choose_state_api, refuse_unchainable

INSTANT = TimestampType()
MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"
WINDOW = StructType([StructField("start", INSTANT), StructField("end", INSTANT)])
MINUTE = {WATERMARK: 60_000}
OURS = {**MINUTE, LATENESS: 0, METRICS: "tumbling", STATE_API: "transformWithStateInPandas"}


class FakeFrame:
    """A frame that is nothing but its columns and plan, and a session that is nothing but its settings."""

    def __init__(
        self, *columns: tuple[str, Any, dict[str, Any]], plan: str = "", **conf: str
    ) -> None:
        self.schema = StructType([StructField(n, dtype, True, mark) for n, dtype, mark in columns])
        self.sparkSession = self.conf = self
        self.settings = conf
        self.isStreaming = True
        self.plan = plan

    def get(self, key: str) -> str:
        return self.settings[key.rsplit(".", 1)[1]]

    def _explain_string(self, extended: bool) -> str:
        return self.plan


def carried(*columns: tuple[str, Any, dict[str, Any]], time: str = "ts", **arguments: Any) -> Any:
    given: dict[str, Any] = {"lag": 0} | arguments
    of = Input((), time, delay=given.pop("delay", None))
    frame: Any = FakeFrame(*columns)
    with located("windows.tumbling"):
        return carried_watermark(columns_of(frame), of, **given)


def refused(*columns: tuple[str, Any, dict[str, Any]], **arguments: Any) -> WatermarkError:
    with pytest.raises(WatermarkError) as caught:
        carried(*columns, **arguments)
    return caught.value


def test_a_watermark_on_the_event_time_is_taken() -> None:
    assert carried(("ts", INSTANT, MINUTE)) == 60_000_000


def test_without_a_watermark_the_operator_defines_one() -> None:
    assert carried(("ts", INSTANT, {}), delay=5_000_000) is None


def test_a_frame_without_a_watermark_is_refused_with_both_remedies() -> None:
    error = refused(("ts", INSTANT, {}))
    assert error.code == "WATERMARK_MISSING"
    assert error.got == "a frame without a watermark, and no delay (event time 'ts')"
    assert 'delay="30 seconds"' in error.fix


def test_a_watermark_on_another_column_is_not_taken_for_one_on_the_event_time() -> None:
    error = refused(("ingested", INSTANT, MINUTE), ("ts", INSTANT, {}))
    assert str(error) == (
        "[WATERMARK_MISSING] windows.tumbling: "
        "the frame's watermark is on 'ingested', and not on 'ts'\n"
        "  got:       time='ts' on a frame with a watermark on 'ingested'\n"
        "  expected:  a watermark on 'ts', or delay=... and no watermark\n"
        "  fix:       leave withWatermark('ingested', ...) out and pass delay=\"30 seconds\", say, "
        "or name 'ts' in withWatermark"
        "\n  see:       docs/errors.md#watermark_missing"
    )


def test_a_mistyped_event_time_is_refused_with_the_nearest_name() -> None:
    for columns in ((("ts", INSTANT, {}),), (("ts", INSTANT, MINUTE),)):
        with pytest.raises(ColumnNotFound) as caught:
            carried(*columns, time="tss")
        assert caught.value.fix == "did you mean 'ts'?"


def test_of_several_watermarks_the_one_on_the_event_time_is_taken() -> None:
    other = ("left_ts", INSTANT, {WATERMARK: 1_000})
    assert carried(other, ("ts", INSTANT, MINUTE)) == 60_000_000
    assert carried(("window", WINDOW, {WATERMARK: 1_000}), ("ts", INSTANT, MINUTE)) == 60_000_000
    start, end = ("window_start", INSTANT, {}), ("window_end", INSTANT, OURS)
    assert carried(other, start, end, time="window_start") == 60_000_000


def test_the_start_of_a_window_goes_by_the_watermark_of_the_window() -> None:
    start, end = ("window_start", INSTANT, {}), ("window_end", INSTANT, OURS)
    assert carried(start, end, time="window_start") == 60_000_000
    spark = ("window", WINDOW, MINUTE), ("start", INSTANT, {})
    assert carried(*spark, time="start") == 60_000_000


def test_a_delay_beside_a_watermark_is_refused_with_what_to_leave_out() -> None:
    error = refused(("ts", INSTANT, MINUTE), delay=5_000_000)
    assert error.code == "WATERMARK_TWICE"
    assert error.fix.startswith("leave delay out")
    error = refused(("ingested", INSTANT, MINUTE), ("ts", INSTANT, {}), delay=5_000_000)
    assert error.code == "WATERMARK_TWICE"
    assert error.fix == (
        "leave withWatermark('ingested', ...) out: the operator defines one on 'ts'"
    )


def test_the_room_for_lateness_is_that_of_the_operator_before() -> None:
    own, ours = ("ts", INSTANT, MINUTE), ("ts", INSTANT, OURS | {LATENESS: 1_000_000})
    assert carried(own, lag=60_000_000) == 60_000_000
    assert refused(own, lag=61_000_000).code == "WATERMARK_TOO_TIGHT"
    assert carried(ours, lag=1_000_000) == 60_000_000
    error = refused(ours, lag=2_000_000)
    assert error.code == "WATERMARK_TOO_TIGHT"
    assert error.expected.startswith("a lateness up to '1 second'")


def test_results_of_sparks_own_windows_leave_no_room_for_lateness() -> None:
    window, end = ("window", WINDOW, MINUTE), ("window_end", INSTANT, {})
    results: dict[str, Any] = {"time": "window_end", "of_results": True}
    assert carried(window, end, **results) == 60_000_000
    error = refused(window, end, lag=1_000, **results)
    assert str(error) == (
        "[WATERMARK_TOO_TIGHT] windows.tumbling: "
        "the frame's watermark leaves no room for the allowed lateness\n"
        "  got:       a lateness of '1 millisecond' (allowed_lateness, and what the operator adds "
        "to it), watermark on 'window' with a delay of '1 minute'\n"
        "  expected:  a lateness up to '0 seconds': the delay of the frame's watermark, or "
        "the allowed_lateness of the operator before; behind Spark's own windows: 0\n"
        "  fix:       leave allowed_lateness out: Spark's windows are not corrected. For "
        "stragglers, take windows of streamops before, with the same allowed_lateness"
        "\n  see:       docs/errors.md#watermark_too_tight"
    )
    # Events that were only put into windows, results of ours, and a table of them, have room.
    assert carried(window, end, lag=60_000_000, time="window_end") == 60_000_000
    ours = ("window_end", INSTANT, OURS | {LATENESS: 1_000_000})
    assert carried(ours, lag=1_000_000, **results) == 60_000_000
    assert carried(("window_end", INSTANT, MINUTE), lag=60_000_000, **results) == 60_000_000


# What may follow what.


WHERE = "windows.tumbling"
USE_ROCKSDB = (
    'spark.conf.set("spark.sql.streaming.stateStore.providerClass", '
    '"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider") '
    "before the first operator of the query is applied"
)
STOCK = {"providerClass": "org.x.HDFSBackedStateStoreProvider"}


def behind(api: str, **conf: str) -> Any:
    settings = conf or {"providerClass": ROCKSDB}
    return FakeFrame(("window_end", INSTANT, OURS | {STATE_API: api}), **settings)


def events(plan: str = "", **conf: str) -> Any:
    return FakeFrame(("ts", INSTANT, {}), plan=plan, **conf)


def unchainable(frame: Any, following: str) -> SpecError:
    with pytest.raises(SpecError) as caught, located(WHERE):
        refuse_unchainable(frame, following)
    assert caught.value.code == "STATE_API_NOT_CHAINABLE"
    return caught.value


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
@pytest.mark.parametrize(
    "following", ["native", "applyInPandasWithState", "transformWithStateInPandas"]
)
def test_nothing_stateful_may_follow_apply_in_pandas_with_state(following: str) -> None:
    error = unchainable(behind("applyInPandasWithState"), following)
    assert "in the operator before" in error.expected
    assert error.fix == "build these frames again, without state_api"


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
def test_on_a_stock_session_a_chain_is_refused_with_the_one_setting_to_add() -> None:
    with pytest.raises(SpecError) as caught, located("windows.tumbling"):
        choose_state_api([behind("applyInPandasWithState", **STOCK)], "auto")
    assert str(caught.value) == (
        "[STATE_API_NOT_CHAINABLE] windows.tumbling: "
        "no stateful operator may follow applyInPandasWithState in the same query\n"
        "  got:       a frame from an operator with applyInPandasWithState, which "
        "state_api='auto' selects because the state store of the session is not RocksDB\n"
        "  expected:  transformWithStateInPandas in the operator before\n"
        f"  fix:       {USE_ROCKSDB}"
        "\n  see:       docs/errors.md#state_api_not_chainable"
    )


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
def test_apply_in_pandas_with_state_may_not_follow_an_aggregation() -> None:
    error = unchainable(behind("native"), "applyInPandasWithState")
    assert error.got == "applyInPandasWithState on a frame from a Spark aggregation"
    assert error.expected == "transformWithStateInPandas behind the aggregation"


AGGREGATED = """Project [k#1, n#2L]
+- Aggregate [k#1], [k#1, count(1) AS n#2L]
   +- EventTimeWatermark id, ts#3, 1 minutes
      +- StreamingRelationV2 org.x.RateStreamProvider@1, rate, org.x.RateStreamTable@2, [], [ts#3]
"""
JOINED = """Join Inner, (k#1 = k#2)
:- StreamingRelation DataSource(org.x.SparkSession@1,parquet,List()), FileSource[/x], [ts#3]
+- Aggregate [k#2], [k#2, count(1) AS n#2L]
   +- Relation [k#2] parquet
"""
STATE = """Project [k#1]
+- FlatMapGroupsInPandasWithState run(k#1), [k#1], [k#1], state, Append, NoTimeout
   +- StreamingRelation DataSource(org.x.SparkSession@1,parquet,List()), FileSource[/x], [ts#3]
"""


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (AGGREGATED, "applyInPandasWithState may not follow a Spark aggregation"),
        (STATE, "a query may have applyInPandasWithState only once"),
    ],
)
def test_stateful_operators_of_the_user_are_found_in_the_plan(plan: str, what: str) -> None:
    with pytest.raises(SpecError) as caught:
        choose_state_api([events(plan, **STOCK)], "auto")
    assert caught.value.what.startswith(what)
    assert caught.value.fix == USE_ROCKSDB
    # With RocksDB, both may precede.
    choice = choose_state_api([events(plan, providerClass=ROCKSDB)], "auto")
    assert choice.api == "transformWithStateInPandas"


def test_an_aggregated_table_beside_the_stream_is_no_aggregation_of_the_stream() -> None:
    choice = choose_state_api([events(JOINED, **STOCK)], "auto")
    assert choice.api == "applyInPandasWithState"


@pytest.mark.parametrize(
    ("api", "following"),
    [
        ("native", "native"),
        ("native", "transformWithStateInPandas"),
        ("transformWithStateInPandas", "native"),
        ("transformWithStateInPandas", "transformWithStateInPandas"),
        ("transformWithStateInPandas", "applyInPandasWithState"),
    ],
)
def test_what_spark_lets_follow_is_let_follow(api: str, following: str) -> None:
    refuse_unchainable(behind(api), following)


# Which state API a session gets.


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
@pytest.mark.parametrize(
    ("conf", "api", "reason"),
    [
        (
            {"providerClass": ROCKSDB},
            "transformWithStateInPandas",
            "state_api='auto', and the session has RocksDB and protobuf",
        ),
        (
            {"providerClass": "com.databricks.RocksDBStateStoreProvider"},
            "transformWithStateInPandas",
            "state_api='auto', and the session has RocksDB and protobuf",
        ),
        (
            STOCK,
            "applyInPandasWithState",
            "state_api='auto', and the state store of the session is not RocksDB",
        ),
        (
            {},  # the platform does not reveal it
            "applyInPandasWithState",
            "state_api='auto', and the state store of the session is not RocksDB",
        ),
    ],
)
def test_the_session_decides_about_the_state_api(
    conf: dict[str, str], api: str, reason: str
) -> None:
    assert choose_state_api([events(**conf)], "auto") == (api, reason)


def test_a_state_api_that_was_selected_does_not_depend_on_the_session() -> None:
    for conf in (STOCK, {"providerClass": ROCKSDB}):
        choice = choose_state_api([events(**conf)], "applyInPandasWithState")
        assert choice == ("applyInPandasWithState", "state_api='applyInPandasWithState'")


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
def test_messages_that_cannot_be_imported_are_reported_with_the_package_that_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    monkeypatch.delitem(sys.modules, MESSAGES, raising=False)
    frame = events(providerClass=ROCKSDB)
    assert choose_state_api([frame], "auto").api == "applyInPandasWithState"
    with pytest.raises(RequirementError) as caught:
        choose_state_api([frame], "transformWithStateInPandas")
    assert caught.value.code == "PACKAGE_MISSING"
    assert str(caught.value.got).startswith("ModuleNotFoundError: import of google.protobuf halted")
    assert re.fullmatch(r'pip install "protobuf>=\d+(\.\d+)+"', caught.value.fix)


def test_a_spark_without_the_state_api_is_refused_with_the_version_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.stateful_processor", None)
    frame = events(providerClass=ROCKSDB)
    assert choose_state_api([frame], "auto").api == "applyInPandasWithState"
    with pytest.raises(RequirementError) as caught:
        choose_state_api([frame], "transformWithStateInPandas")
    assert caught.value.code == "VERSION_NOT_SUPPORTED"
    assert caught.value.got == f"Spark {pyspark.__version__}"
    assert caught.value.expected == "Spark 4.0 or later"


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
@pytest.mark.parametrize(
    ("wanted", "required", "expected"),
    [
        ("transformWithStateInPandas", None, f"transformWithStateInPandas requires {ROCKSDB}"),
        (
            "auto",
            "its second step follows in the same query",
            f"transformWithStateInPandas requires {ROCKSDB}: its second step follows in the same query",
        ),
    ],
)
def test_a_state_store_that_is_not_rocksdb_is_refused_where_it_is_required(
    wanted: Any, required: str | None, expected: str
) -> None:
    with pytest.raises(RequirementError) as caught:
        choose_state_api([events(**STOCK)], wanted, required=required)
    assert caught.value.code == "ROCKSDB_REQUIRED"
    assert caught.value.expected == expected
    assert caught.value.fix == USE_ROCKSDB


def behind_a_clock(*more: dict[str, Any]) -> FakeFrame:
    marks = ({**MINUTE, ONCE: "applyInPandasWithState"}, *more)
    columns = ((f"c{i}", INSTANT, mark) for i, mark in enumerate(marks))
    return FakeFrame(*columns, providerClass=ROCKSDB)


@pytest.mark.skipif(not has_transform(), reason="Spark 3.5 has one state API")
def test_apply_in_pandas_with_state_may_stand_only_once() -> None:
    assert str(unchainable(behind_a_clock(), "applyInPandasWithState")) == (
        "[STATE_API_NOT_CHAINABLE] windows.tumbling: "
        "a query may have applyInPandasWithState only once\n"
        "  got:       applyInPandasWithState on a frame from an operator with the same\n"
        "  expected:  transformWithStateInPandas in one of the two\n"
        "  fix:       build these frames again, without state_api"
        "\n  see:       docs/errors.md#state_api_not_chainable"
    )


@pytest.mark.parametrize("following", ["native", "transformWithStateInPandas"])
def test_other_state_apis_may_follow_a_clock_with_apply_in_pandas_with_state(
    following: str,
) -> None:
    refuse_unchainable(behind_a_clock(), following)


def test_a_clock_without_a_state_api_of_its_own_does_not_restrict_others() -> None:
    frame = FakeFrame(("ts", INSTANT, {**MINUTE, INSTANT_MARK: True}))
    refuse_unchainable(frame, "applyInPandasWithState")
