"""The Kafka sink on a real broker, without Spark: the rows of micro-batches are Arrow tables."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SinkError, SpecError
from streamops.sinks.core.kafka_records import KEY, VALUE, encode_entry
from streamops.sinks.core.ledger import Entry
from streamops.sinks.kafka import KafkaSink
from streamops.sinks.kafka_writer import Writer
from streamops.spark.identity import Identity
from tests.kafka.broker import Broker
from tests.sinks.contract import ODD, RUN, A, B, D, I, LedgerContract, Target, run_of

confluent_kafka = pytest.importorskip("confluent_kafka")


class ArrowSink(KafkaSink):
    """A sink of Arrow tables, to which it adds the columns that Spark computes."""

    def _deliver_rows(self, rows: pa.Table, batch_id: int, identity: Identity) -> None:
        values = [{n: v for n, v in r.items() if n != "_change_type"} for r in rows.to_pylist()]
        columns = {VALUE: values}
        if self.key is not None:
            columns[KEY] = [{name: row[name] for name in self.key} for row in values]
        for name, objects in columns.items():
            texts = [json.dumps(row, separators=(",", ":")) for row in objects]
            rows = rows.append_column(name, pa.array(texts, pa.string()))
        super()._deliver_rows(rows, batch_id, identity)


@pytest.fixture
def make(kafka: Broker) -> Callable[..., ArrowSink]:
    """The sink of a process that has just started, for a topic of this test."""
    topic = kafka.create_topic()

    def make_sink(**options: Any) -> ArrowSink:
        sink = sinks.kafka(topic, servers=kafka.bootstrap, **options)
        return ArrowSink(**{f.name: getattr(sink, f.name) for f in fields(sink)})

    return make_sink


def parsed(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)


def read(kafka: Broker, sink: KafkaSink, **settings: Any) -> list[tuple[Any, Any]]:
    """Key and value of the committed records."""
    records = kafka.read(sink.topic, **settings)
    return [(parsed(record.key()), parsed(record.value())) for record in records]


class TestLedger(LedgerContract):
    @pytest.fixture
    def target(self, kafka: Broker, make: Callable[..., ArrowSink]) -> Target:
        return Target(make, lambda: [value for _, value in read(kafka, make())])


def test_changes_become_rows_and_tombstones(kafka: Broker, make: Callable[..., ArrowSink]) -> None:
    sink = make(key="k")
    first = {"k": ["a", "b"], "v": [1, 2], "revision": [0, 0], "_change_type": [I, I]}
    sink._deliver_rows(pa.table(first), 0, RUN)
    second = {"k": ["a", "a", "b", "c", "c"], "v": [1, 5, 2, 7, 7], "revision": [0, 1, 0, 0, 0], "_change_type": [B, A, D, I, D]}  # fmt: skip
    sink._deliver_rows(pa.table(second), 1, RUN)
    assert read(kafka, sink) == [
        ({"k": "a"}, {"k": "a", "v": 1, "revision": 0}),
        ({"k": "b"}, {"k": "b", "v": 2, "revision": 0}),
        ({"k": "b"}, None),
        ({"k": "a"}, {"k": "a", "v": 5, "revision": 1}),
    ]
    wrong = {"k": ["a"], "v": [5], "revision": [1], "_change_type": [B]}
    with pytest.raises(ChangeStreamError, match="PREIMAGE_ALONE"):
        sink._deliver_rows(pa.table(wrong), 2, RUN)
    assert len(read(kafka, sink)) == 4


def test_changes_in_the_envelope_of_debezium(kafka: Broker, make: Callable[..., ArrowSink]) -> None:
    sink = make(key="k", records="debezium", name="views")
    first = {"k": ["a", "b"], "v": [1, 2], "revision": [0, 0], "_change_type": [I, I]}
    sink._deliver_rows(pa.table(first), 0, RUN)
    second = {"k": ["a", "a", "b"], "v": [1, 5, 2], "revision": [0, 1, 0], "_change_type": [B, A, D]}  # fmt: skip
    sink._deliver_rows(pa.table(second), 1, RUN)
    rows = {name: {"k": name, "v": v, "revision": 0} for name, v in (("a", 1), ("b", 2))}
    a, b = ({"k": name} for name in "ab")

    def envelope(before: Any, after: Any, op: str, batch: int) -> dict[str, Any]:
        source = {"connector": "streamops", "name": "views", "batch": batch}
        return {"before": before, "after": after, "source": source, "op": op}

    assert read(kafka, sink) == [
        (a, envelope(None, rows["a"], "c", 0)),
        (b, envelope(None, rows["b"], "c", 0)),
        (b, envelope(rows["b"], None, "d", 1)),
        (b, None),
        (a, envelope(rows["a"], {"k": "a", "v": 5, "revision": 1}, "u", 1)),
    ]


def test_of_revisions_the_latest_of_a_micro_batch_is_written(
    kafka: Broker, make: Callable[..., ArrowSink]
) -> None:
    for records in ("json", "debezium"):
        sink = make(key="k", records=records, name=records)
        rows = pa.table({"k": ["a", "b", "a"], "revision": [3, 0, 2], "v": [1, 2, 3]})
        sink._deliver_rows(rows, 0, RUN)
    found = read(kafka, make())
    expected = [{"k": "a", "revision": 3, "v": 1}, {"k": "b", "revision": 0, "v": 2}]
    assert [value for _, value in found[:2]] == expected
    assert [value["after"] for _, value in found[2:]] == expected
    assert {(value["op"], value["before"]) for _, value in found[2:]} == {("u", None)}


def test_changes_without_a_key_are_rows_with_their_type(
    kafka: Broker, make: Callable[..., ArrowSink]
) -> None:
    x, types = ["a", "a", "b", "b"], [I, I, I, D]
    make()._deliver_rows(pa.table({"x": x, "_change_type": types}), 0, RUN)
    make()._deliver_rows(pa.table({"x": ["a", "c"], "_change_type": [D, I]}), 1, run_of(2))
    make()._deliver_rows(pa.table({"_change_type": [I]}), 2, run_of(3))
    assert read(kafka, make()) == [
        (None, {"_change_type": "insert", "x": "a"}),
        (None, {"_change_type": "insert", "x": "a"}),
        (None, {"_change_type": "delete", "x": "a"}),
        (None, {"_change_type": "insert", "x": "c"}),
        (None, {"_change_type": "insert"}),
    ]
    sink = make(records="debezium", name="other")
    sink._deliver_rows(pa.table({"x": ["b", "d"], "_change_type": [D, I]}), 0, RUN)
    found = [(value["op"], value["before"], value["after"]) for _, value in read(kafka, sink)[5:]]
    assert found == [("d", {"x": "b"}, None), ("c", None, {"x": "d"})]


def test_another_checkpoint_needs_a_decision(kafka: Broker, make: Callable[..., ArrowSink]) -> None:
    writing = make()
    writing._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    other = run_of(2, "other query")
    with pytest.raises(SinkError, match="NEW_CHECKPOINT"):
        make()._deliver_rows(pa.table({"a": [2]}), 0, other)
    # A query that is refused does not disturb the one that writes.
    writing._deliver_rows(pa.table({"a": [3]}), 1, RUN)
    make(new_checkpoint="continue")._deliver_rows(pa.table({"a": [4]}), 0, other)
    with pytest.raises(SinkError, match="FENCED"):
        writing._deliver_rows(pa.table({"a": [5]}), 2, RUN)
    with pytest.raises(SinkError, match="FENCED"):
        make()._deliver_rows(pa.table({"a": [5]}), 2, run_of(4))
    assert [value for _, value in read(kafka, writing)] == [{"a": 1}, {"a": 3}, {"a": 4}]
    assert make().read_ledger().former == ("query",)  # type: ignore[union-attr]


def test_the_open_transaction_of_a_driver_that_died_is_aborted(
    kafka: Broker, make: Callable[..., ArrowSink]
) -> None:
    sink = make()
    sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    sink.session.connection = None  # the driver hangs
    zombie = kafka.producer(transactional_id=f"streamops sink {sink.name} of query")
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.produce(sink.topic, b'{"a": 2}')
    zombie.produce(sink.ledger, b"{}", sink.name.encode(), 0)
    zombie.flush()
    make()._deliver_rows(pa.table({"a": [3]}), 1, run_of(2))
    with pytest.raises(Exception, match="FENCED"):
        zombie.commit_transaction()
    assert [value for _, value in read(kafka, sink)] == [{"a": 1}, {"a": 3}]
    assert len(kafka.read(sink.topic, isolation_level="read_uncommitted")) == 3


def test_the_open_transaction_of_another_sink_hides_no_entry(
    kafka: Broker, make: Callable[..., ArrowSink]
) -> None:
    make()._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    other = kafka.producer(transactional_id="another sink")
    other.init_transactions()
    other.begin_transaction()
    other.produce(make().ledger, b"{}", b"another sink", 0)
    other.flush()
    make()  # of another process: it knows nothing yet
    ended = threading.Timer(2, other.commit_transaction)
    # Committed records after those of an open transaction are not readable until it ends.
    writing = threading.Thread(
        target=lambda: make()._deliver_rows(pa.table({"a": [2]}), 1, run_of(2))
    )
    ended.start()
    writing.start()
    writing.join()
    assert not ended.is_alive()
    assert [value for _, value in read(kafka, make())] == [{"a": 1}, {"a": 2}]
    assert make().read_ledger().batch == 1  # type: ignore[union-attr]


def test_a_crash_in_the_transaction_of_one_sink_does_not_delay_the_others(kafka: Broker) -> None:
    topics, ledger = [kafka.create_topic() for _ in range(2)], f"ledger-{uuid.uuid4().hex}"

    def deliver(topic: str, batch: int, run: Identity) -> None:
        sink = sinks.kafka(topic, servers=kafka.bootstrap, ledger=ledger)
        sink._deliver_rows(pa.table({VALUE: [f'{{"a": {batch}}}']}), batch, run)

    for topic in topics:
        deliver(topic, 0, RUN)
    deliver(topics[0], 1, RUN)
    died = kafka.producer(transactional_id=f"streamops sink {topics[1]} of query")
    died.init_transactions()
    died.begin_transaction()
    died.produce(topics[1], b'{"a": 1}')
    entry = encode_entry(Entry("query", 1, "run 1", 1, 1, 0))
    died.produce(ledger, entry, topics[1].encode(), 0)
    died.flush()
    begin = time.monotonic()
    for topic in topics:
        deliver(topic, 1, run_of(2))
    assert time.monotonic() - begin < 30  # and not the timeout of the transaction, five minutes
    for topic in topics:
        assert [record.value() for record in kafka.read(topic)] == [b'{"a": 0}', b'{"a": 1}']


def test_the_open_transaction_of_the_same_run_is_not_ended(kafka: Broker) -> None:
    topic, ledger = kafka.create_topic(), f"ledger-{uuid.uuid4().hex}"
    other = kafka.producer(transactional_id="streamops sink other of query")
    other.init_transactions()
    sinks.kafka(topic, servers=kafka.bootstrap, ledger=ledger)._require_topics()
    other.begin_transaction()
    other.produce(ledger, encode_entry(Entry("query", 1, "run 1", 0, 1, 0)), b"other", 0)
    other.flush()
    ended = threading.Timer(2, other.commit_transaction)
    ended.start()
    sink = sinks.kafka(topic, servers=kafka.bootstrap, ledger=ledger)
    sink._deliver_rows(pa.table({VALUE: ["{}"]}), 0, RUN)
    ended.join()
    assert sinks.kafka(topic, name="other", servers=kafka.bootstrap, ledger=ledger).read_ledger()


def test_of_two_racing_writers_one_writes_each_micro_batch(
    kafka: Broker, make: Callable[..., ArrowSink]
) -> None:
    outcomes: list[str] = []

    def write(writer: int) -> None:
        for batch in range(6):
            sink = make()
            while True:
                run = Identity("query", f"{writer} {batch}")
                try:
                    sink._deliver_rows(pa.table({"batch": [batch]}), batch, run)
                    outcomes.append("done")
                except SinkError as error:
                    outcomes.append(error.code)
                    if error.code in {"BATCH_GAP", "FENCED"}:
                        sink = make()
                        continue
                break

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [value["batch"] for _, value in read(kafka, make())] == list(range(6))
    assert set(outcomes) <= {"done", "CHECKPOINT_BEHIND", "BATCH_GAP", "FENCED"}


def test_a_record_that_the_topic_refuses_leaves_nothing(kafka: Broker) -> None:
    topic = kafka.create_topic(config={"max.message.bytes": "2000"})
    sink = sinks.kafka(topic, servers=kafka.bootstrap, client={"compression.type": "none"})
    sink = ArrowSink(**{f.name: getattr(sink, f.name) for f in fields(sink)})
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        sink._deliver_rows(pa.table({"a": ["small", "x" * 5_000]}), 0, RUN)
    assert read(kafka, sink) == []
    sink._deliver_rows(pa.table({"a": ["small"]}), 0, RUN)
    assert [value for _, value in read(kafka, sink)] == [{"a": "small"}]


def test_the_error_of_the_record_that_failed_is_reported() -> None:
    codes = confluent_kafka.KafkaError
    purged, in_flight, too_large, other = (
        codes(getattr(codes, name))
        for name in ("_PURGE_QUEUE", "_PURGE_INFLIGHT", "MSG_SIZE_TOO_LARGE", "_MSG_TIMED_OUT")
    )
    writer = Writer("query", "run", None)
    for error in (None, purged, in_flight, too_large, other, purged):
        writer._remember(error, None)
    assert writer.failures == [too_large]


def test_many_records_are_one_transaction(kafka: Broker, make: Callable[..., ArrowSink]) -> None:
    sink = make(client={"queue.buffering.max.messages": 1_000})
    sink._deliver_rows(pa.table({"a": range(25_000)}), 0, RUN)
    assert [value["a"] for _, value in read(kafka, sink)] == list(range(25_000))


def test_a_topic_that_does_not_exist(kafka: Broker) -> None:
    sink = sinks.kafka("not-there", servers=kafka.bootstrap)
    with pytest.raises(SinkError, match="TARGET_MISSING"):
        sink._deliver_rows(pa.table({VALUE: ["{}"]}), 0, RUN)


def test_a_ledger_that_somebody_else_writes(kafka: Broker, make: Callable[..., ArrowSink]) -> None:
    for value in ("?", "{}", '{"query": 1}'):
        topic = kafka.create_topic()
        kafka.produce(topic, [{"key": make().name, "value": value}])
        with pytest.raises(SinkError, match="LEDGER_INVALID"):
            make(ledger=topic).read_ledger()


def test_a_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.modules[KafkaSink.__module__], "_TIMEOUT", 1)
    sink = sinks.kafka("t", servers="127.0.0.1:1", client={"sasl.password": "secret words"})
    begin = time.monotonic()
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        sink._deliver_rows(pa.table({VALUE: ["{}"]}), 0, RUN)
    assert time.monotonic() - begin < 30
    assert "Connection refused" in caplog.text
    assert capfd.readouterr().err == ""
    assert "secret words" not in repr(sink)
    assert "sasl.password" in repr(sink)


def test_values_of_secret_settings_are_not_in_errors(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("sasl.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"):
        # The client repeats a value that it refuses; here it is the secret, too.
        client = {name: "hunter-two", "debug": "hunter-two"}
        sink = sinks.kafka("t", servers="127.0.0.1:1", client=client)
        with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
            sink._deliver_rows(pa.table({VALUE: ["{}"]}), 0, RUN)
        assert "***" in error.value.got
        assert "hunter-two" not in f"{error.value}{error.value.__cause__!r}{sink!r}"
    captured = capfd.readouterr()
    assert "hunter-two" not in captured.out + captured.err


@pytest.mark.parametrize("odd", ODD)
def test_names_are_quoted(kafka: Broker, make: Callable[..., ArrowSink], odd: str) -> None:
    sink = make(key=odd, name=odd, records="debezium")
    first = {odd: ["a"], "v": [odd], "revision": [0], "_change_type": [I]}
    sink._deliver_rows(pa.table(first), 0, RUN)
    second = {odd: ["a", "a"], "v": [odd, "new"], "revision": [0, 1], "_change_type": [B, A]}
    sink._deliver_rows(pa.table(second), 1, RUN)
    ((key, old), (_, new)) = read(kafka, sink)
    assert key == {odd: "a"}
    assert old["after"] == {odd: "a", "v": odd, "revision": 0} == new["before"]
    assert (new["after"]["v"], new["source"]["name"]) == ("new", odd)
    assert make(name=odd).read_ledger().batch == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["a b", "x; ls", "$(ls)", "a/b", "'", "ünï", ".", "..", "x" * 250])
def test_names_that_no_topic_can_have_are_refused(name: str) -> None:
    for wrong in ({"topic": name}, {"topic": "t", "ledger": name}):
        with pytest.raises(SpecError, match="INVALID_PARAMETER"):
            sinks.kafka(**wrong, servers="s")  # type: ignore[arg-type]


def test_parameters() -> None:
    with pytest.raises(SpecError, match="INVALID_PARAMETER"):
        sinks.kafka("t", servers="s", client={"transactional.id": "mine"})
    with pytest.raises(SpecError, match="refuse"):
        sinks.kafka("t", servers="s", new_checkpoint="replace")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="debezium"):
        sinks.kafka("t", servers="s", records="avro")  # type: ignore[arg-type]


def test_a_topic_that_was_created_again(kafka: Broker, make: Callable[..., ArrowSink]) -> None:
    sink = make()
    assert sink.check().targets[0].entry is None
    running = make()
    for batch, of in enumerate((sink, running, running)):
        of._deliver_rows(pa.table({"n": [batch]}), batch, run_of(1 if of is sink else 2))
    admin = kafka.admin()  # held until there is a result
    admin.delete_topics([sink.topic])[sink.topic].result(30)
    with pytest.raises(SinkError, match="TARGET_RECREATED"):
        make()._deliver_rows(pa.table({"n": [3]}), 3, run_of(3))
    create_again(kafka, sink.topic)
    for of in (running, make()):
        with pytest.raises(SinkError, match="TARGET_RECREATED"):
            of._deliver_rows(pa.table({"n": [3]}), 3, run_of(2 if of is running else 3))
    with pytest.raises(SinkError, match="TARGET_RECREATED"):
        make().check()
    accepting = make(new_checkpoint="continue")
    accepting._deliver_rows(pa.table({"n": [3]}), 3, run_of(4))
    make()._deliver_rows(pa.table({"n": [4]}), 4, run_of(5))
    assert [value for _, value in read(kafka, sink)] == [{"n": 3}, {"n": 4}]
    other = sinks.kafka(kafka.create_topic(), servers=kafka.bootstrap, name=sink.name)
    with pytest.raises(SinkError, match="LEDGER_OTHER_TARGET"):
        other.check()


def create_again(kafka: Broker, topic: str) -> None:
    """Create a topic of a name that another one had, once that one is gone."""
    end = time.monotonic() + 30
    while True:
        try:
            kafka.create_topic(topic)
        except confluent_kafka.KafkaException:
            assert time.monotonic() < end
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("atomic", ["batch", "partition"])
def test_a_ledger_whose_entries_expire_is_refused(
    kafka: Broker, make: Callable[..., ArrowSink], atomic: str, policy: str
) -> None:
    ledger = f"ledger-{uuid.uuid4().hex}"
    sink = make(ledger=ledger, atomic=atomic)
    own = ledger if atomic == "batch" else f"{ledger}-{sink.topic}"
    kafka.create_topic(own, config={"cleanup.policy": policy})
    for act in (sink.check, lambda: sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)):
        with pytest.raises(SinkError, match="TARGET_KIND"):
            act()
    assert read(kafka, sink) == []


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"cleanup.policy": "compact"}, "TARGET_REFUSED"),  # records without a key
        ({"max.message.bytes": "50"}, "TARGET_REFUSED"),
        ({"message.timestamp.type": "LogAppendTime"}, None),
        ({"compression.type": "zstd", "retention.ms": "600000"}, None),
        ({"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0"}, "TARGET_REFUSED"),
    ],
)
def test_settings_of_a_topic(kafka: Broker, config: dict[str, str], code: str | None) -> None:
    topic = kafka.create_topic(config=config)
    sink = sinks.kafka(topic, servers=kafka.bootstrap)
    own = ArrowSink(**{f.name: getattr(sink, f.name) for f in fields(sink)})
    rows = pa.table({"a": ["x" * 100]})
    if code is None:
        own._deliver_rows(rows, 0, RUN)
        assert read(kafka, own) == [(None, {"a": "x" * 100})]
    else:
        with pytest.raises(SinkError, match=code):
            own._deliver_rows(rows, 0, RUN)
        assert read(kafka, own) == []
