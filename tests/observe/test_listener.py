"""The listener passes alarms to its function, and tolerates all errors. No Spark."""

from __future__ import annotations

import doctest
import importlib
import logging
import threading
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

from streamops import observe
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.observe.core.progress import PartitionLag, Source
from streamops.observe.progress import read_progress
from streamops.testing import at

ID, RUN = uuid.UUID(int=1), uuid.UUID(int=2)


def progress(batch: int = 0, run: uuid.UUID = RUN, **changed: Any) -> Any:
    fields: dict[str, Any] = {
        "id": ID,
        "runId": run,
        "name": "views",
        "batchId": batch,
        "timestamp": "2024-01-01T00:00:00.000Z",
        "numInputRows": 10,
        "inputRowsPerSecond": None,
        "durationMs": {},
        "eventTime": {},
        "sources": [],
        "stateOperators": [],
        "observedMetrics": {},
        **changed,
    }
    return SimpleNamespace(progress=SimpleNamespace(**fields))


def dedupe(dropped: int) -> Any:
    return SimpleNamespace(
        operatorName="dedupe",
        numRowsDroppedByWatermark=dropped,
        numRowsTotal=8,
        memoryUsedBytes=900,
    )


def late(rows: int, **changed: Any) -> Any:
    return progress(
        observedMetrics={"w": Row(on_time=0, stragglers=rows, too_late=None)}, **changed
    )


def test_a_progress_is_converted_to_plain_values() -> None:
    event = progress(
        7,
        name=None,
        eventTime={"watermark": "2023-12-31T23:59:50.000Z", "max": "2024-01-01T00:00:01.500Z"},
        sources=[
            SimpleNamespace(
                description="Source[ftp://app:secret@host/a]",
                numInputRows=10,
                endOffset='{"a": {"0": 5}}',
                latestOffset='{"a": {"0": 9}}',
            )
        ],
        stateOperators=[dedupe(3)],
        observedMetrics={"w": Row(rows=3)},
    )
    observed = read_progress(event.progress)
    start = int(at(0).timestamp()) * 1_000_000
    assert (observed.query, observed.run, observed.batch, observed.rows) == (
        str(ID),
        str(RUN),
        7,
        10,
    )
    assert observed.started == start
    assert (observed.watermark, observed.newest) == (start - 10_000_000, start + 1_500_000)
    lags = (PartitionLag("a", 0, 4),)
    assert observed.sources == (Source("Source[ftp://host/a]", 10, lags, (("a", 0, 5),)),)
    assert observe.consumer_lag(event.progress) == (PartitionLag("a", 0, 4),)
    assert observed.metrics == {
        "w": {"rows": 3},
        "stateOperators[0] (dedupe)": {"rows": 10, "dropped": 3},
    }
    bare = read_progress(progress().progress)
    assert (bare.query, bare.watermark, bare.newest, bare.metrics) == ("views", None, None, {})


def test_rows_that_time_producers_reads_twice_are_counted_once() -> None:
    native = [dedupe(2)]

    def input_rows(rows: int, *clocks: int | None) -> int:
        metrics = {f"p{n}": Row(rows=count, held_by="a") for n, count in enumerate(clocks)}
        event = progress(numInputRows=rows, stateOperators=native, observedMetrics=metrics)
        observed = read_progress(event.progress)
        assert observed.metrics["stateOperators[0] (dedupe)"] == {
            "rows": observed.rows,
            "dropped": 2,
        }
        return observed.rows

    assert (input_rows(200), input_rows(200, 100), input_rows(0, None)) == (200, 100, 0)
    assert (input_rows(230, 100), input_rows(300, 100, 50)) == (130, 150)


def test_the_function_is_called_once_per_episode_and_run() -> None:
    alarms: list[observe.Alarm] = []
    listener = observe.AlarmListener(observe.LateRows(5), notify=alarms.append)
    for event in (late(4), late(5, batch=1), late(9, batch=2), late(0, batch=3), late(5, batch=4)):
        listener.onQueryProgress(event)
    assert [(alarm.query, alarm.batch, alarm.operator) for alarm in alarms] == [
        ("views", 1, "w"),
        ("views", 4, "w"),
    ]
    other = uuid.UUID(int=3)
    listener.onQueryProgress(late(5, run=other))
    assert [alarm.run for alarm in alarms] == [str(RUN), str(RUN), str(other)]
    listener.onQueryTerminated(SimpleNamespace(runId=RUN))
    listener.onQueryTerminated(SimpleNamespace(runId=uuid.UUID(int=9)))
    listener.onQueryStarted(SimpleNamespace())
    listener.onQueryIdle(SimpleNamespace())
    listener.onQueryProgress(late(5))
    assert len(alarms) == 4


def test_the_default_is_a_warning_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = observe.AlarmListener(observe.LateRows(5))
    with caplog.at_level(logging.WARNING, logger="streamops.observe"):
        listener.onQueryProgress(late(5))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("streamops.observe", logging.WARNING)
    assert record.getMessage().startswith("[LATE_ROWS] query views, micro-batch 0: too many rows")


def test_an_error_of_the_function_is_logged_with_the_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = []

    def fail(alarm: observe.Alarm) -> None:
        calls.append(alarm)
        raise OSError("the pager does not answer")

    rules = observe.LateRows(5), observe.LateRows(5, counts="stragglers")
    listener = observe.AlarmListener(*rules, notify=fail)
    listener.onQueryProgress(late(5))
    assert len(calls) == len(caplog.records) == 2
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    assert "the pager does not answer" in caplog.text
    assert "[LATE_ROWS] query views, micro-batch 0" in caplog.text
    listener.onQueryProgress(late(0))
    listener.onQueryProgress(late(5))
    assert len(calls) == 4


def test_a_progress_that_cannot_be_parsed_is_logged_and_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alarms: list[observe.Alarm] = []
    listener = observe.AlarmListener(observe.LateRows(5), notify=alarms.append)
    listener.onQueryProgress(late(5, timestamp="soon"))
    assert "the rules could not be evaluated on a micro-batch" in caplog.text
    listener.onQueryProgress(late(5))
    assert len(alarms) == 1


def test_a_listener_may_be_called_by_many_threads() -> None:
    alarms: list[observe.Alarm] = []
    listener = observe.AlarmListener(observe.LateRows(800, batches=1_000), notify=alarms.append)
    threads = [
        threading.Thread(target=lambda: [listener.onQueryProgress(late(1)) for _ in range(100)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(alarms) == 1
    assert "800 rows in the last 800 micro-batches" in alarms[0].numbers


@pytest.mark.parametrize(
    ("rules", "notify", "text"),
    [
        (
            (),
            None,
            "[PARAMETER_MISSING] observe.AlarmListener: the listener has no rules\n"
            "  got:       no rules\n"
            "  expected:  one or more rules\n"
            "  fix:       AlarmListener(observe.StuckWatermark(), observe.PoisonedWatermark())"
            "\n  see:       docs/errors.md#parameter_missing",
        ),
        (
            ([observe.StuckWatermark()],),
            None,
            "[PARAMETER_TYPE] observe.AlarmListener: an argument is not a rule\n"
            "  got:       [StuckWatermark(batches=10)] of type list\n"
            "  expected:  LateRows, LateShare, StuckWatermark, PoisonedWatermark, ConsumerLag or DataLoss of observe\n"
            "  fix:       pass each rule as an argument: AlarmListener(observe.LateShare(0.01))"
            "\n  see:       docs/errors.md#parameter_type",
        ),
        (
            (observe.StuckWatermark(),),
            "mail",
            "[PARAMETER_TYPE] observe.AlarmListener: `notify` is not a function\n"
            "  got:       an object of type str\n"
            "  expected:  a function with one parameter, the alarm\n"
            "  fix:       use a function such as print, or the default, a warning in the log"
            "\n  see:       docs/errors.md#parameter_type",
        ),
    ],
    ids=["none", "a list", "text"],
)
def test_invalid_arguments_are_refused(rules: tuple[Any, ...], notify: Any, text: str) -> None:
    with pytest.raises(SpecError) as caught:
        observe.AlarmListener(*rules, notify=notify)
    assert str(caught.value) == text


class FakeFrame:
    """A frame with a schema and no rows."""

    def __init__(self, schema: Any, streaming: bool = False) -> None:
        self.schema = schema
        self.isStreaming = streaming


def frame(streaming: bool = False, **types: Any) -> Any:
    from pyspark.sql.types import StructField, StructType

    return FakeFrame(StructType([StructField(n, k) for n, k in types.items()]), streaming)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"time": 1}, "PARAMETER_TYPE"),
        ({"by": 1}, "PARAMETER_TYPE"),
        ({"by": ["a", "A"]}, "NAME_TAKEN"),
        ({"by": "Newest"}, "NAME_TAKEN"),
        ({"most": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"most": True}, "PARAMETER_OUT_OF_RANGE"),
        ({"most": 1.0}, "PARAMETER_OUT_OF_RANGE"),
    ],
    ids=repr,
)
def test_furthest_ahead_refuses_invalid_parameters(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as caught:
        observe.furthest_ahead(**{"time": "ts", **arguments})
    assert (caught.value.code, caught.value.where) == (code, "observe.furthest_ahead")


def test_furthest_ahead_refuses_frames_that_do_not_suit() -> None:
    from pyspark.sql.types import LongType, TimestampType

    furthest = observe.furthest_ahead("ts", by="device")
    with pytest.raises(ColumnNotFound, match="given as `time`"):
        furthest(frame(at=TimestampType()))
    with pytest.raises(SchemaError, match="COLUMN_TYPE"):
        furthest(frame(ts=LongType()))
    with pytest.raises(ColumnNotFound, match="given as `by`"):
        furthest(frame(ts=TimestampType()))
    with pytest.raises(SpecError) as caught:
        furthest(frame(ts=TimestampType(), device=LongType(), streaming=True))
    assert str(caught.value) == (
        "[STREAMING_FRAME] observe.furthest_ahead: the frame is a stream, which has no last row\n"
        "  got:       a streaming frame\n"
        "  expected:  a batch frame\n"
        "  fix:       call it in foreachBatch, on the batch"
        "\n  see:       docs/errors.md#streaming_frame"
    )


@pytest.mark.parametrize("name", ["furthest", "listener"])
def test_docstring_examples_run(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"streamops.observe.{name}"))
    assert tried >= 2
    assert failed == 0
