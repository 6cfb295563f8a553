"""The Kafka sink with a transaction per partition, on a real broker, without Spark."""

from __future__ import annotations

import gc
import pickle
import threading
import uuid
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SinkError
from streamops.sinks.core.kafka_records import KEY, VALUE
from streamops.sinks.kafka import KafkaSink
from streamops.sinks.kafka_partitions import PartitionedWrite, partitions_of
from streamops.sinks.kafka_writer import Writer
from streamops.sinks.tasks import Receipts
from streamops.spark.identity import Identity
from tests.kafka.broker import Broker
from tests.sinks.contract import RUN, D, I, LedgerContract, Target, run_of
from tests.sinks.test_kafka import ArrowSink, read
from tests.sinks.test_kafka_crashes import Crash, leave_open, planted

pytest.importorskip("confluent_kafka")

Make = Callable[..., KafkaSink]
PARTITIONS = 3


@pytest.fixture
def make(kafka: Broker) -> Make:
    """The sink of a process that has just started, for a topic of this test."""
    topic, ledger = kafka.create_topic(partitions=PARTITIONS), f"ledger-{uuid.uuid4().hex}"

    def make_sink(**options: Any) -> KafkaSink:
        options = {"atomic": "partition", "key": "k", "ledger": ledger, **options}
        return sinks.kafka(topic, servers=kafka.bootstrap, **options)

    return make_sink


def rows_of(batch: int, rows: int = 12) -> pa.Table:
    names = [f"{batch} {row}" for row in range(rows)]
    keys, values = ([f'{{"{c}": "{name}"}}' for name in names] for c in "kv")
    return pa.table({"k": names, "revision": [0] * rows, KEY: keys, VALUE: values})


def expected(*batches: int) -> list[str]:
    return sorted(text for batch in batches for text in rows_of(batch)[VALUE].to_pylist())


def values(kafka: Broker, sink: KafkaSink) -> list[str]:
    return sorted(record.value().decode() for record in kafka.read(sink.topic))


class Job:
    """A micro-batch as Spark runs it: the driver prepares it, tasks write, the driver commits the receipts."""

    def __init__(self, sink: KafkaSink, batch: int, run: Identity, rows: pa.Table | None = None):
        self.sink, self.batch, self.run = sink, batch, run
        self.rows = rows_of(batch) if rows is None else rows
        schema = self.rows.schema
        delivery = sink._delivery(schema.empty_table(), batch, run)
        self.action = sink._foresee(schema, delivery)
        self.write: PartitionedWrite | None = None
        if self.action != "skip":
            # Each attempt of a task has a copy of its own.
            self.write = pickle.loads(pickle.dumps(sink._prepare(schema, batch, self.action)))

    def task(self, partition: int) -> list[Any]:
        assert self.write is not None
        chosen = self.rows.filter(pa.array(self.write._numbers(self.rows) == partition))
        pieces = (chosen.slice(at, 2) for at in range(0, len(chosen), 2))
        return list(pickle.loads(pickle.dumps(self.write))(pieces))

    def commit(self) -> None:
        sink, rows = self.sink, self.rows
        delivery = sink._delivery(rows, self.batch, self.run)
        parts = tuple({"partition": n} for n in range(PARTITIONS))
        counted = Receipts(rows.schema, len(rows), rows.nbytes, delivery.digest, parts)
        sink._accept(counted, self.batch, self.run)

    def complete(self) -> None:
        for partition in range(PARTITIONS if self.write else 0):
            self.task(partition)
        self.commit()


class TestLedger(LedgerContract):
    @pytest.fixture
    def target(self, kafka: Broker, make: Make) -> Target:
        def make_rows(**options: Any) -> ArrowSink:
            sink = make(key=None, **options)
            return ArrowSink(**{f.name: getattr(sink, f.name) for f in fields(sink)})

        return Target(make_rows, lambda: [value for _, value in read(kafka, make())])


def test_partitions_are_those_of_the_client(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=7)
    keys = [f"{'x' * (n % 40)}ü{n}" for n in range(300)]
    producer = kafka.producer(partitioner="murmur2_random")
    for key in keys:
        producer.produce(topic, key=key.encode(), value=b"")
    producer.flush()
    found = {record.key().decode(): record.partition() for record in kafka.read(topic)}
    assert [found[key] for key in keys] == partitions_of(pa.array(keys), 7).tolist()


def test_tasks_and_the_driver_write_the_same_records(kafka: Broker, make: Make) -> None:
    Job(make(), 0, RUN).complete()
    one = make()
    one._deliver_rows(rows_of(1), 1, run_of(2))
    Job(one, 2, run_of(2)).complete()
    one._deliver_rows(rows_of(3), 3, run_of(2))
    assert values(kafka, one) == expected(0, 1, 2, 3)
    for record in kafka.read(one.topic):
        key = pa.array([record.key().decode()])
        assert partitions_of(key, PARTITIONS).tolist() == [record.partition()]
    entry = make().read_ledger()
    assert entry is not None
    assert (entry.batch, entry.rows, entry.generation) == (3, 12, 2)


STEPS = [("produce", "after"), ("finish", "before"), ("commit", "before"), ("commit", "after")]


@pytest.mark.parametrize(("function", "when"), STEPS)
def test_a_task_that_ends_at_any_step_is_repeated(
    kafka: Broker, make: Make, function: str, when: str
) -> None:
    Job(make(), 0, RUN).complete()
    sink = make()
    job = Job(sink, 1, run_of(2))
    job.task(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "close", leave_open)
        patch.setattr(Writer, function, planted(getattr(Writer, function), when))
        with pytest.raises(Crash):
            job.task(1)
    gc.collect()
    assert job.task(1) == [{"partition": 1}]  # also if its transaction was committed
    job.task(2)
    job.commit()
    assert values(kafka, sink) == expected(0, 1)


@pytest.mark.parametrize("done", range(PARTITIONS + 1))
def test_a_driver_that_dies_between_partitions_completes_the_rest(
    kafka: Broker, make: Make, done: int
) -> None:
    Job(make(), 0, RUN).complete()
    died = Job(make(), 1, run_of(2))
    for partition in range(done):
        died.task(partition)
    entry = make().read_ledger()
    assert entry is not None
    assert (entry.batch, entry.run) == (0, "run 2")
    again = Job(make(), 1, run_of(3))
    assert again.action == "write"
    again.complete()
    assert values(kafka, again.sink) == expected(0, 1)
    assert Job(make(), 1, run_of(4)).action == "skip"


def test_attempts_of_a_task_at_the_same_time_write_once(kafka: Broker, make: Make) -> None:
    sink = make()
    job = Job(sink, 0, RUN)
    reached, go_on = threading.Event(), threading.Event()
    finish = Writer.finish

    def pause(self: Writer, *arguments: Any) -> None:
        if not reached.is_set():
            reached.set()
            assert go_on.wait(60)
        finish(self, *arguments)

    outcomes: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "finish", pause)
        first = threading.Thread(target=lambda: outcomes.append(job.task(0)))
        first.start()
        assert reached.wait(60)
        outcomes.append(job.task(0))  # it fences the first attempt, which is in its transaction
        go_on.set()
        first.join(60)
    assert outcomes == [[{"partition": 0}]] * 2
    job.task(1)
    job.task(2)
    job.commit()
    assert values(kafka, sink) == expected(0)


def test_tasks_of_a_run_that_was_replaced_write_nothing(kafka: Broker, make: Make) -> None:
    Job(make(), 0, RUN).complete()
    old = Job(make(), 1, run_of(2), rows_of(7))  # other rows, which a zombie may have
    new = Job(make(), 1, run_of(3))
    with pytest.raises(SinkError, match="FENCED"):
        old.task(0)
    new.task(1)
    with pytest.raises(SinkError, match="FENCED"):
        old.task(1)
    new.complete()
    for partition in range(PARTITIONS):
        with pytest.raises(SinkError, match="FENCED"):
            old.task(partition)
    with pytest.raises(SinkError, match="FENCED"):
        old.commit()
    new.sink._deliver_rows(rows_of(2), 2, run_of(3))
    assert values(kafka, new.sink) == expected(0, 1, 2)


def test_a_task_in_its_transaction_is_fenced_by_a_new_run_without_rows_for_it(
    kafka: Broker, make: Make
) -> None:
    Job(make(), 0, RUN).complete()
    old = Job(make(), 1, run_of(2))
    reached, go_on, outcomes = threading.Event(), threading.Event(), []
    finish = Writer.finish

    def pause(self: Writer, *arguments: Any) -> None:
        if threading.current_thread() is frozen:
            reached.set()
            assert go_on.wait(60)
        finish(self, *arguments)

    def run() -> None:
        try:
            outcomes.append(old.task(0))
        except SinkError as error:
            outcomes.append(error.code)

    frozen = threading.Thread(target=run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "finish", pause)
        frozen.start()
        assert reached.wait(60)
        new = make()
        new._deliver_rows(rows_of(1).slice(0, 0), 1, run_of(3))
        new._deliver_rows(rows_of(2).slice(0, 0), 2, run_of(3))
        go_on.set()
        frozen.join(60)
    assert outcomes == ["FENCED"]
    assert values(kafka, new) == expected(0)


def test_a_repeated_partition_with_other_rows(kafka: Broker, make: Make) -> None:
    died = Job(make(), 0, RUN)
    died.task(0)
    other = rows_of(0).set_column(3, VALUE, pa.array(['{"v": "other"}'] * 12))
    with pytest.raises(SinkError, match="BATCH_DIFFERS"):
        Job(make(), 0, run_of(2), other).task(0)
    Job(make(repeated="skip"), 0, run_of(3), other).complete()
    found = values(kafka, died.sink)
    assert len(found) == 12
    assert 0 < found.count('{"v": "other"}') < 12


def test_a_partition_that_is_larger_than_memory_has_one_record_per_key(
    kafka: Broker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamops.sinks.kafka_partitions._BYTES_PER_GROUP", 100)
    older = rows_of(0).set_column(1, "revision", pa.array([-1] * 12))
    job = Job(make(), 0, RUN, pa.concat_tables([rows_of(0), older]))
    job.complete()
    assert values(kafka, job.sink) == expected(0)


def test_a_partition_without_rows_has_gaps(kafka: Broker, make: Make) -> None:
    sink = make()
    for batch in range(3):
        chosen = rows_of(batch)
        numbers = partitions_of(chosen[KEY].combine_chunks(), PARTITIONS)
        sink._deliver_rows(chosen.filter(pa.array(numbers == batch % 2)), batch, RUN)
    job = Job(sink, 3, RUN)
    job.complete()
    with pytest.raises(SinkError, match="BATCH_GAP"):
        Job(make(), 5, run_of(2))
    assert make().read_ledger().batch == 3  # type: ignore[union-attr]


def test_partitions_that_are_added_count_from_the_next_micro_batch(
    kafka: Broker, make: Make
) -> None:
    Job(make(), 0, RUN).complete()
    died = Job(make(), 1, run_of(2))
    died.task(0)
    kafka.add_partitions(died.sink.topic, 5)
    again = make()
    again._deliver_rows(rows_of(1), 1, run_of(3))
    assert {record.partition() for record in kafka.read(again.topic)} <= set(range(PARTITIONS))
    again._deliver_rows(rows_of(2), 2, run_of(3))
    assert values(kafka, again) == expected(0, 1, 2)
    assert max(record.partition() for record in kafka.read(again.topic)) >= PARTITIONS


def test_atomic_can_be_changed_between_runs(kafka: Broker, make: Make) -> None:
    make(atomic="batch")._deliver_rows(rows_of(0), 0, RUN)
    died = Job(make(), 1, run_of(2))
    died.task(0)
    whole = make(atomic="batch")
    whole._deliver_rows(rows_of(1), 1, run_of(3))  # the rest, partition by partition
    assert values(kafka, whole) == expected(0, 1)
    whole._deliver_rows(rows_of(2), 2, run_of(3))
    make()._deliver_rows(rows_of(3), 3, run_of(4))
    assert values(kafka, whole) == expected(0, 1, 2, 3)


def test_another_query_goes_on_and_the_one_before_is_fenced(kafka: Broker, make: Make) -> None:
    old = make()
    Job(old, 0, RUN).complete()
    tasks = Job(old, 1, RUN)
    with pytest.raises(SinkError, match="NEW_CHECKPOINT"):
        Job(make(), 0, run_of(2, "other"))
    tasks.task(0)  # a query that is refused does not disturb the one that writes
    new = make(new_checkpoint="continue")
    new._deliver_rows(rows_of(5), 0, run_of(2, "other"))
    for partition in (1, 2):
        with pytest.raises(SinkError, match="FENCED"):
            tasks.task(partition)
    with pytest.raises(SinkError, match="FENCED"):
        tasks.commit()
    entry = make().read_ledger()
    assert entry is not None
    assert (entry.query, entry.batch, entry.former) == ("other", 0, ("query",))


def test_check_and_the_ledger_before_the_first_micro_batch(kafka: Broker, make: Make) -> None:
    sink = make()
    (checked,) = sink.check().targets
    assert checked.creates == (f"topic '{sink.ledger}'", f"topic '{sink.ledger}-{sink.topic}'")
    Job(make(), 0, RUN).task(0)
    assert make().read_ledger() is None
    (checked,) = make().check().targets
    assert (checked.entry, checked.creates) == (None, ())


def test_changes_that_contradict_each_other(kafka: Broker, make: Make) -> None:
    sink, rows = make(), rows_of(0, 6)
    types = pa.array([I] * 6)
    sink._deliver_rows(rows.append_column("_change_type", types), 0, RUN)
    twice = pa.concat_tables([rows, rows]).append_column("_change_type", pa.array([I] * 12))
    with pytest.raises(ChangeStreamError, match="INSERTED_TWICE"):
        sink._deliver_rows(twice, 1, RUN)
    removed = rows.append_column("_change_type", pa.array([D] * 6))
    sink._deliver_rows(removed, 1, RUN)
    assert sum(record.value() is None for record in kafka.read(sink.topic)) == 6


def test_credentials_reach_tasks_and_no_error(make: Make) -> None:
    sink = replace(make(client={"sasl.password": "hunter-two", "debug": "hunter-two"}))
    write = PartitionedWrite(
        sink=sink,
        taken=sink._delivery(rows_of(0), 0, RUN).entry(1),
        offset=0,
        batch=0,
        partitions=1,
    )
    copied = pickle.loads(pickle.dumps(write))
    assert copied.sink.client["sasl.password"] == "hunter-two"
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        list(copied(iter([rows_of(0)])))
    assert "hunter-two" not in f"{error.value}{error.value.__cause__!r}{write!r}"
