"""Topics of Kafka as sources: the ranges that Spark planned, and what the brokers have deleted since."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from streamops import observe
from streamops.kernel.errors import RequirementError, SpecError
from tests.kafka.broker import Broker
from tests.observe.test_explain import simulate, table, tumbling

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def prepare(records: pa.Table) -> pa.Table:
    """The key, the time of the record, and the value as a number."""
    return pa.table(
        {
            "k": records.column("key").cast(pa.string()),
            "ts": records.column("timestamp"),
            "v": records.column("value").cast(pa.string()).cast(pa.int64()),
        }
    )


def test_the_records_of_each_micro_batch(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    topic, checkpoint, operator = kafka.create_topic(partitions=2), tmp_path / "c", tumbling()
    written: list[tuple[int, str, int]] = []

    def produce(*records: tuple[str, int, int, int]) -> None:
        kafka.produce(
            topic,
            [
                {"key": k, "value": str(v), "timestamp": 1_704_067_200_000 + second * 1_000,
                 "partition": partition}
                for k, second, v, partition in records
            ],
        )  # fmt: skip

    def run() -> None:
        frame = spark.readStream.format("kafka").option("subscribe", topic)
        frame = frame.option("kafka.bootstrap.servers", kafka.bootstrap)
        frame = frame.option("startingOffsets", json.dumps({topic: {"0": 1, "1": 0}}))
        rows = frame.load().select(
            F.col("key").cast("string").alias("k"),
            F.col("timestamp").alias("ts"),
            F.col("value").cast("string").cast("long").alias("v"),
        )
        query = rows.transform(operator).writeStream.foreachBatch(
            lambda batch, number: written.extend((number, r.k, r.total) for r in batch.collect())
        )
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()

    # The first record is before the offset at which the query begins.
    produce(("a", 1, 100, 0), ("a", 5, 1, 0), ("a", 6, 2, 1), ("b", 7, 4, 1))
    run()
    produce(("a", 20, 8, 0), ("b", 300, 1, 0), ("b", 300, 1, 1))
    run()
    produce(("b", 301, 1, 1), ("a", 10, 16, 0))
    run()
    source = observe.topics(kafka.bootstrap, prepare=prepare)
    found = observe.explain(checkpoint, operator, source, where={"k": "a"})
    expected = [(number, total) for number, k, total in written if k == "a"]
    assert [(of.batch, of.row["total"]) for of in found.key_results] == expected
    assert expected
    assert sorted(of.arrived.row["v"] for of in found.key_rows) == [1, 2, 8, 16]
    assert found.notes == ()

    from confluent_kafka import TopicPartition

    admin = kafka.admin()
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(60)
    found = observe.explain(checkpoint, operator, source, where={"k": "a"})
    assert sorted(of.arrived.row["v"] for of in found.key_rows) == [2, 8, 16]
    note = f"the topic {topic} does not have offsets 1 to 1 of partition 0 any more"
    assert found.notes == (note,)


def test_ends_at_an_aborted_transaction(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(60)
    for is_committed in (True, False):
        producer.begin_transaction()
        producer.produce(topic, key="a", value="1", timestamp=1_704_067_205_000)
        if is_committed:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    simulate(tmp_path / "c", tumbling(), [table()])
    # A record and a marker, twice.
    file = tmp_path / "c" / "offsets" / "0"
    file.write_text("\n".join([*file.read_text().splitlines()[:2], json.dumps({topic: {"0": 4}})]))
    for isolation, count in (("read_uncommitted", 2), ("read_committed", 1)):
        source = observe.topics(
            kafka.bootstrap, client={"isolation.level": isolation}, prepare=prepare
        )
        found = observe.explain(tmp_path / "c", tumbling(), source, where={"k": "a"})
        assert len(found.key_rows) == count


def test_settings_that_the_client_refuses_are_not_displayed(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="servers"):
        observe.topics("")
    simulate(tmp_path / "c", tumbling(), [table()])
    file = tmp_path / "c" / "offsets" / "0"
    file.write_text("\n".join([*file.read_text().splitlines()[:2], json.dumps({"t": {"0": 4}})]))
    source = observe.topics("localhost:1", client={"password": "s3cret"}, prepare=prepare)
    with pytest.raises((RequirementError, SpecError), match="INVALID_PARAMETER") as error:
        observe.explain(tmp_path / "c", tumbling(), source, where={"k": "a"})
    assert "s3cret" not in str(error.value)
