"""The listener hands over what a progress says, and survives whatever it is handed. No Spark."""

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
from streamops.observe.listener import facts_of
from streamops.testing import at

ID, RUN = uuid.UUID(int=1), uuid.UUID(int=2)


def progress(batch: int = 0, run: uuid.UUID = RUN, **said: Any) -> Any:
    told: dict[str, Any] = {
        "id": ID,
        "runId": run,
        "name": "views",
        "batchId": batch,
        "timestamp": "2024-01-01T00:00:00.000Z",
        "numInputRows": 10,
        "eventTime": {},
        "sources": [],
        "stateOperators": [],
        "observedMetrics": {},
        **said,
    }
    return SimpleNamespace(progress=SimpleNamespace(**told))


def late(rows: int, **said: Any) -> Any:
    return progress(observedMetrics={"w": Row(on_time=0, stragglers=rows, too_late=None)}, **said)


def test_facts_are_read_off_a_progress() -> None:
    event = progress(
        7,
        name=None,
        eventTime={"watermark": "2023-12-31T23:59:50.000Z", "max": "2024-01-01T00:00:01.500Z"},
        sources=[SimpleNamespace(description="Kafka[a]", numInputRows=10)],
        stateOperators=[SimpleNamespace(operatorName="dedupe", numRowsDroppedByWatermark=3)],
        observedMetrics={"w": Row(rows=3)},
    )
    facts = facts_of(event.progress)
    start = int(at(0).timestamp()) * 1_000_000
    assert (facts.query, facts.run, facts.batch, facts.rows) == (str(ID), str(RUN), 7, 10)
    assert facts.started == start
    assert (facts.watermark, facts.newest) == (start - 10_000_000, start + 1_500_000)
    assert [(source.description, source.rows) for source in facts.sources] == [("Kafka[a]", 10)]
    assert facts.counts == {
        "w": {"rows": 3},
        "stateOperators[0] (dedupe)": {"rows": 10, "dropped": 3},
    }
    bare = facts_of(progress().progress)
    assert (bare.query, bare.watermark, bare.newest, bare.counts) == ("views", None, None, {})


def test_rows_behind_a_clock_of_producers_are_counted_once() -> None:
    native = [SimpleNamespace(operatorName="dedupe", numRowsDroppedByWatermark=2)]

    def came(rows: int, *clocks: int | None) -> int:
        told = {f"p{n}": Row(rows=each, held_by="a") for n, each in enumerate(clocks)}
        event = progress(numInputRows=rows, stateOperators=native, observedMetrics=told)
        facts = facts_of(event.progress)
        assert facts.counts["stateOperators[0] (dedupe)"] == {"rows": facts.rows, "dropped": 2}
        return facts.rows

    assert (came(200), came(200, 100), came(0, None), came(230, 100)) == (200, 100, 0, 130)
    assert came(300, 100, 50) == 150


def test_alarms_are_handed_to_the_function_once_per_episode_and_run() -> None:
    told: list[observe.Alarm] = []
    listener = observe.AlarmListener(observe.LateRows(5), notify=told.append)
    for event in (late(4), late(5, batch=1), late(9, batch=2), late(0, batch=3), late(5, batch=4)):
        listener.onQueryProgress(event)
    assert [(alarm.query, alarm.batch, alarm.operator) for alarm in told] == [
        ("views", 1, "w"),
        ("views", 4, "w"),
    ]
    other = uuid.UUID(int=3)
    listener.onQueryProgress(late(5, run=other))
    assert [alarm.run for alarm in told] == [str(RUN), str(RUN), str(other)]
    listener.onQueryTerminated(SimpleNamespace(runId=RUN))
    listener.onQueryTerminated(SimpleNamespace(runId=uuid.UUID(int=9)))
    listener.onQueryStarted(SimpleNamespace())
    listener.onQueryIdle(SimpleNamespace())
    listener.onQueryProgress(late(5))
    assert len(told) == 4


def test_without_a_function_an_alarm_is_a_warning_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = observe.AlarmListener(observe.LateRows(5))
    with caplog.at_level(logging.WARNING, logger="streamops.observe"):
        listener.onQueryProgress(late(5))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("streamops.observe", logging.WARNING)
    assert record.getMessage().startswith("[LATE_ROWS] query views, micro-batch 0: too many rows")


def test_a_function_that_fails_is_logged_with_the_alarm_and_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = []

    def fail(alarm: observe.Alarm) -> None:
        calls.append(alarm)
        raise OSError("no line to the pager")

    rules = observe.LateRows(5), observe.LateRows(5, counts="stragglers")
    listener = observe.AlarmListener(*rules, notify=fail)
    listener.onQueryProgress(late(5))
    assert len(calls) == len(caplog.records) == 2
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    assert "no line to the pager" in caplog.text
    assert "[LATE_ROWS] query views, micro-batch 0" in caplog.text
    listener.onQueryProgress(late(0))
    listener.onQueryProgress(late(5))
    assert len(calls) == 4


def test_a_progress_that_cannot_be_read_is_logged_and_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[observe.Alarm] = []
    listener = observe.AlarmListener(observe.LateRows(5), notify=told.append)
    listener.onQueryProgress(late(5, timestamp="soon"))
    assert "a progress could not be judged" in caplog.text
    listener.onQueryProgress(late(5))
    assert len(told) == 1


def test_micro_batches_may_be_told_by_many_threads() -> None:
    told: list[observe.Alarm] = []
    listener = observe.AlarmListener(observe.LateRows(800, batches=1_000), notify=told.append)
    threads = [
        threading.Thread(target=lambda: [listener.onQueryProgress(late(1)) for _ in range(100)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1
    assert "800 rows in the last 800 micro-batches" in told[0].numbers


@pytest.mark.parametrize(
    ("rules", "notify", "text"),
    [
        (
            (),
            None,
            "[NO_RULE] observe.AlarmListener: nothing to raise an alarm by\n"
            "  got:       no rule\n"
            "  expected:  one rule or more\n"
            "  fix:       AlarmListener(observe.StuckWatermark(), observe.PoisonedWatermark())",
        ),
        (
            ([observe.StuckWatermark()],),
            None,
            "[NOT_A_RULE] observe.AlarmListener: something other than a rule was given as one\n"
            "  got:       [StuckWatermark(batches=10)] of type list\n"
            "  expected:  LateRows, LateShare, StuckWatermark or PoisonedWatermark of observe\n"
            "  fix:       give each rule by itself: AlarmListener(observe.LateShare(0.01))",
        ),
        (
            (observe.StuckWatermark(),),
            "mail",
            "[NOT_A_FUNCTION] observe.AlarmListener: `notify` cannot be called\n"
            "  got:       'mail' of type str\n"
            "  expected:  a function of one alarm\n"
            "  fix:       notify=print, say; leave it out for a warning in the log",
        ),
    ],
    ids=["none", "a list", "text"],
)
def test_a_listener_that_could_not_work_is_refused(
    rules: tuple[Any, ...], notify: Any, text: str
) -> None:
    with pytest.raises(SpecError) as caught:
        observe.AlarmListener(*rules, notify=notify)
    assert str(caught.value) == text


class FakeFrame:
    """A frame that is nothing but its columns."""

    def __init__(self, schema: Any, streaming: bool = False) -> None:
        self.schema = schema
        self.isStreaming = streaming


def frame(streaming: bool = False, **kinds: Any) -> Any:
    from pyspark.sql.types import StructField, StructType

    return FakeFrame(StructType([StructField(n, k) for n, k in kinds.items()]), streaming)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"time": 1}, "NOT_A_NAME"),
        ({"by": 1}, "NOT_A_NAME"),
        ({"by": ["a", "A"]}, "NAME_TAKEN"),
        ({"by": "Newest"}, "NAME_TAKEN"),
        ({"most": 0}, "ROWS_OUT_OF_RANGE"),
        ({"most": True}, "ROWS_OUT_OF_RANGE"),
        ({"most": 1.0}, "ROWS_OUT_OF_RANGE"),
    ],
    ids=repr,
)
def test_a_question_for_the_furthest_out_of_range_is_refused(
    said: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        observe.furthest_ahead(**{"time": "ts", **said})
    assert (caught.value.code, caught.value.where) == (code, "observe.furthest_ahead")


def test_a_frame_in_which_nobody_can_be_ahead_is_refused() -> None:
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
        "[BATCH_ONLY] observe.furthest_ahead: a stream has no furthest row, for it has no end\n"
        "  got:       a streaming frame\n"
        "  expected:  a batch\n"
        "  fix:       call it in foreachBatch, on the batch"
    )


@pytest.mark.parametrize("name", ["furthest", "listener"])
def test_the_examples_of_the_docstrings_are_right(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"streamops.observe.{name}"))
    assert tried >= 2
    assert failed == 0
