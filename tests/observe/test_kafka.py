"""What is asked of Kafka, and what is not displayed. No broker, and no Spark."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from prometheus_client import CollectorRegistry

from streamops import observe
from streamops.errors import SpecError
from streamops.observe import kafka
from streamops.observe.core.progress import Loss, Source
from tests.observe.core.history import micro_batch
from tests.observe.test_listener import progress

NOWHERE = "127.0.0.1:1"
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "reader",
    "sasl.password": "s3cret",
}
VIEWS = Source("KafkaV2", 1, (), (("views", 0, 7), ("views", 1, 9)))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: observe.KafkaRetention(""), "PARAMETER_TYPE|INVALID_PARAMETER"),
        (lambda: observe.KafkaRetention(NOWHERE, refresh="soon"), "INVALID"),
        (
            lambda: observe.KafkaRetention(NOWHERE, client={"password": "s3cret"}),
            "INVALID_PARAMETER",
        ),
        (lambda: observe.ConsumerGroupListener(NOWHERE, {"a": "g", "b": "g"}), "INVALID_PARAMETER"),
        (lambda: observe.ConsumerGroupListener(NOWHERE, {"a": ""}), "INVALID_PARAMETER"),
        (lambda: observe.KafkaRetention(7), "PARAMETER_TYPE"),
        (lambda: observe.ConsumerGroupListener(NOWHERE, "g"), "INVALID_PARAMETER"),
        (lambda: observe.AlarmListener(observe.DataLoss("1 hour")), "PARAMETER_MISSING"),
        (lambda: observe.AlarmListener(observe.DataLoss("1 hour"), retention=7), "PARAMETER_TYPE"),
        (lambda: observe.PrometheusListener(CollectorRegistry(), retention=7), "PARAMETER_TYPE"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, code: str) -> None:
    with pytest.raises(SpecError, match=code) as error:
        make()
    assert "s3cret" not in str(error.value)


def test_the_least_offset_counts_where_a_query_reads_a_topic_twice() -> None:
    again = Source("KafkaV2", 1, (), (("views", 0, 3), ("clicks", 0, 1)))
    found = kafka._positions(replace(micro_batch(), sources=(VIEWS, again)))
    assert found == {("views", 0): 3, ("views", 1): 9, ("clicks", 0): 1}


def test_a_query_without_kafka_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    retention = observe.KafkaRetention(NOWHERE)
    monkeypatch.setattr(retention, "_forecast", pytest.fail)
    batch = micro_batch()
    assert retention.look_up(batch) is batch


def test_the_last_answer_counts_while_the_brokers_do_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT", 0.3)
    caplog.set_level(logging.DEBUG)
    retention = observe.KafkaRetention(NOWHERE, client=CLIENT, refresh="1 hour")
    loss = Loss("views", 0, 1, "retention.ms=1")
    batch = replace(micro_batch(), sources=(VIEWS,))
    with monkeypatch.context() as answering:
        answering.setattr(retention, "_forecast", lambda query, positions: (loss,))
        assert retention.look_up(batch).losses == (loss,)
    assert retention.look_up(batch).losses == (loss,)  # not asked for within the hour
    assert "could not be read" not in caplog.text
    retention._refresh = 0.0
    assert retention.look_up(batch).losses == (loss,)
    assert retention.look_up(replace(batch, query="other")).losses == ()
    assert caplog.text.count("the retention of topics could not be read: _") == 2
    assert "s3cret" not in f"{caplog.text}{retention!r}"
    assert repr(retention) == "observe.KafkaRetention('127.0.0.1:1')"


def test_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    retention = observe.KafkaRetention(NOWHERE)
    monkeypatch.setattr(retention, "_forecast", lambda query, positions: ())
    for n in range(250):
        retention.look_up(replace(micro_batch(), sources=(VIEWS,), query=f"query {n}"))
    assert list(retention._answers) == [f"query {n}" for n in range(150, 250)]


def test_a_commit_that_fails_is_logged_without_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT", 0.3)
    caplog.set_level(logging.DEBUG)
    listener = observe.ConsumerGroupListener(NOWHERE, {"views": "g"}, client=CLIENT)
    source = type("S", (), {})()
    source.description, source.numInputRows = "KafkaV2", 1
    source.endOffset, source.latestOffset = '{"views": {"0": 7}}', '{"views": {"0": 9}}'
    started = time.monotonic()
    listener.onQueryProgress(progress(sources=[source]))
    assert time.monotonic() - started < 5
    assert "the progress could not be committed to its group: _" in caplog.text
    assert "s3cret" not in caplog.text
    before = caplog.text
    listener.onQueryProgress(progress(sources=[source], name="another"))
    listener.onQueryProgress(progress(sources=[]))
    assert caplog.text == before
