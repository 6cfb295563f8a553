"""The history of a query as frames and as a plot, from progress that Spark reported."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pandas as pd
import pytest

from streamops import observe
from streamops.errors import SpecError
from tests.observe.recorded import QUERIES, assert_no_values, recorded


def test_the_recorded_progress_has_values_of_rows() -> None:
    text = json.dumps(recorded("views"))
    assert "secret-4711" in text
    assert "987654321" in text
    assert "secret-4711" in json.dumps(recorded("clocks"))


def test_a_frame_has_one_row_per_micro_batch() -> None:
    batches = observe.history(recorded("views")).batches
    assert batches["batch"].tolist() == list(range(12))
    assert batches["rows"].sum() == 30
    assert (batches["late"].sum(), batches["late"].max()) == (2, 2)
    assert batches["rows_per_second"].gt(0).sum() == 11
    assert set(batches["query"]) == {"views"}
    assert batches["watermark"].iloc[-1] == dt.datetime(2024, 1, 1, 0, 1, 30, tzinfo=dt.UTC)
    assert batches["watermark"].isna().tolist() == [True] + [False] * 11
    last = batches.iloc[-1]
    assert last["watermark_delay"] == (last["started"] - last["watermark"]).total_seconds()
    assert last["seconds.addBatch"] < last["seconds"]


def test_the_least_event_time_is_used_only_if_spark_measured_it() -> None:
    # Spark takes packed rows without an event time for rows of 1970.
    assert recorded("views")[1]["eventTime"]["min"] == "1970-01-01T00:00:00.000Z"
    assert observe.history(recorded("views")).batches["lateness"].isna().all()
    measured = recorded("views")[6:7]
    measured[0]["eventTime"] |= {"min": "2024-01-01T00:00:05.000Z"}
    (lateness,) = observe.history(measured).batches["lateness"]
    assert lateness == 37.0  # the watermark was 00:00:42


def test_a_frame_of_operators_has_their_counts_and_their_state() -> None:
    operators = observe.history(recorded("views")).operators
    tumbling = operators[operators["operator"] == "tumbling"]
    assert (tumbling["rows"].sum(), tumbling["stragglers"].sum(), tumbling["late"].sum()) == (
        30,
        1,
        2,
    )
    assert tumbling["state_bytes"].gt(0).all()
    native = operators[operators["operator"].str.startswith("stateOperators")]
    assert native["rows"].isna().all()
    assert native["state_rows"].tolist() == [4] * 12


def test_rows_dropped_by_an_operator_of_spark_are_late() -> None:
    operators = observe.history(recorded("clocks")).operators
    dropped = operators[operators["late"] > 0]
    assert dropped["operator"].tolist() == ["stateOperators[0] (dedupeWithinWatermark)"]


@pytest.mark.parametrize("query", QUERIES)
def test_no_value_of_a_row_is_in_the_frames(query: str) -> None:
    history = observe.history(recorded(query))
    for frame in (history.batches, history.operators):
        assert_no_values(frame.to_csv())
    assert_no_values(repr(history))


@pytest.mark.parametrize("query", QUERIES)
def test_a_history_is_plotted(query: str) -> None:
    axes = observe.history(recorded(query)).plot()
    titles = [ax.get_title("left") for ax in axes]
    assert titles == [
        "rows per second",
        "delay of the watermark",
        "bytes of state",
        "seconds per micro-batch",
    ]
    assert all(len(ax.lines) + len(ax.collections) for ax in axes)
    texts = " ".join(text.get_text() for ax in axes for text in ax.get_legend().get_texts())
    assert_no_values(texts)
    picture = io.BytesIO()
    axes[0].figure.savefig(picture, format="png")
    assert picture.getvalue().startswith(b"\x89PNG")


def test_a_history_is_plotted_on_axes_of_the_user() -> None:
    axes = observe.history(recorded("views")[:2]).plot()
    again = observe.history(recorded("views")).plot(axes)
    assert again == axes
    # With those of the late rows; the first two micro-batches have none.
    assert len(axes[0].figure.axes) == 5
    observe.history(recorded("views")).plot(axes)
    assert len(axes[0].figure.axes) == 5
    assert len(axes[0].lines) == 2


def test_a_history_may_be_empty() -> None:
    history = observe.history([])
    assert repr(history) == "QueryHistory of no micro-batches"
    assert (len(history.batches), len(history.operators)) == (0, 0)
    assert {"started", "rows_per_second", "behind"} <= {*history.batches}
    assert len(history.plot()) == 4


def test_a_watermark_of_the_year_2999_is_an_instant() -> None:
    poisoned = recorded("views")[3:4]
    poisoned[0]["eventTime"] |= {"watermark": "2999-01-01T00:00:00.000Z"}
    (watermark,) = observe.history(poisoned).batches["watermark"]
    assert watermark == dt.datetime(2999, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize("source", ["views", {"id": 1}, 3, None, ["views"]], ids=repr)
def test_what_is_not_a_query_is_refused(source: Any) -> None:
    with pytest.raises(SpecError) as caught:
        observe.history(source)
    assert (caught.value.code, caught.value.where) == ("PARAMETER_TYPE", "observe.history")


def test_progress_may_be_the_text_of_its_json() -> None:
    texts = [json.dumps(progress) for progress in recorded("views")]
    pd.testing.assert_frame_equal(
        observe.history(texts).batches, observe.history(recorded("views")).batches
    )
