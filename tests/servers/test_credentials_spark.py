"""Passwords of a query are neither in logs, nor in errors, nor in checkpoints."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops import sinks, sources
from streamops.sinks.kafka import KafkaSink
from streamops.testing import micro_batches
from tests.kafka.broker import jars
from tests.servers.certificates import LOCALHOST
from tests.servers.postgres import Server
from tests.servers.registry import running
from tests.servers.secured import PASSWORD, USER, Secured, Trust

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kafka]


@contextmanager
def logged(spark: SparkSession, file: Path) -> Iterator[None]:
    """Let Spark write all from INFO on to a file."""
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    root, level = context.getConfiguration().getRootLogger(), log4j.Level.INFO
    before = root.getLevel()
    builder = log4j.core.appender.FileAppender.newBuilder().withFileName(str(file))
    appender = builder.setName("all").build()
    appender.start()
    root.addAppender(appender, level, None)
    root.setLevel(level)
    context.updateLoggers()
    try:
        yield
    finally:
        root.removeAppender("all")
        root.setLevel(before)
        context.updateLoggers()
        appender.stop()


def run(frame: DataFrame, sink: Any, checkpoint: Path) -> str:
    """What a query reports."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    finally:
        query.stop()
    plan = query._jsq.explainInternal(True)  # type: ignore[attr-defined]
    return plan + "".join(progress.json for progress in query.recentProgress)


def test_passwords_stay_in_memory(
    spark: SparkSession,
    server: Server,
    secured: Secured,
    trust: Trust,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not jars("connector"):
        pytest.skip("the connector is not there: scripts/get-kafka")
    caplog.set_level(logging.DEBUG)
    # Its log of every call to the JVM, at this level, has the options of readers.
    caplog.set_level(logging.INFO, "py4j")
    monkeypatch.setattr(sys.modules[KafkaSink.__module__], "_TIMEOUT", 10)
    topics = [secured.broker.create_topic() for _ in range(2)]
    secured.broker.produce(topics[0], [{"value": '{"id": 1}'}])
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} username="{USER}" password="{PASSWORD}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(trust.right),
    }
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(trust.right),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    servers = secured.servers["SASL_SSL"]
    address = f"{USER}:{PASSWORD}@{LOCALHOST}:{server.settings['port']}"
    displayed = ""

    def make(user: str = "postgres", password: str = PASSWORD) -> Any:
        url = f"postgresql://{address.replace(USER, user)}/postgres?sslmode=verify-full"
        table = sinks.postgres(f"{url}&sslrootcert={trust.right}", "events")
        settings = {**client, "sasl.password": password}
        topic = sinks.kafka(topics[1], servers=servers, client=settings)
        return sinks.fan_out({"table": table, "topic": topic})

    with logged(spark, tmp_path / "log"):
        plan = sources.replay(topics[0], servers=servers, options=options, client=client)
        stream = plan.read_stream(spark, since="start").selectExpr("CAST(value AS string) AS v")
        displayed += repr(plan) + repr(make())
        displayed += run(stream, make(), tmp_path / "checkpoint")
        # A user that does not exist, and a password that is wrong.
        for number, sink in enumerate(
            (make("nobody"), make(password=f"{PASSWORD}-2").sinks["topic"])
        ):
            with pytest.raises(StreamingQueryException) as error:
                run(stream, sink, tmp_path / f"checkpoint {number}")
            displayed += str(error.value)
            assert "TARGET_UNAVAILABLE" in str(error.value)
    assert [record.value() for record in secured.broker.read(topics[1])] == [
        b'{"v":"{\\"id\\": 1}"}'
    ]
    log = (tmp_path / "log").read_text()
    assert "kafka.clients" in log or "Kafka" in log
    stored = b"".join(
        path.read_bytes() for path in tmp_path.rglob("checkpoint*/**/*") if path.is_file()
    )
    assert json.dumps({topics[0]: {"0": 1}}, separators=(",", ":")).encode() in stored
    check(displayed, log, caplog.text, capfd, stored)


def check(
    displayed: str, log: str, logged: str, capfd: pytest.CaptureFixture[str], stored: bytes
) -> None:
    """Refuse a password in all that a query leaves."""
    captured = capfd.readouterr()
    for name, text in {
        "what is displayed": displayed,
        "the log of Spark": log,
        "the log of Python": logged,
        "the terminal": captured.out + captured.err,
        "the checkpoints": stored.decode(errors="replace"),
    }.items():
        assert PASSWORD not in text, name


def test_the_password_of_a_registry_stays_in_memory(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of a query that reads with it, and of one whose password is wrong."""
    pytest.importorskip("confluent_kafka.schema_registry.avro", reason="no extra registry")
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "py4j")
    fields = [{"name": "id", "type": "long"}]
    schema = json.dumps({"type": "record", "name": "Event", "fields": fields})
    others = {
        "key": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
    }
    found: list[Any] = []
    displayed = ""

    def collect(batch: DataFrame, _: int) -> None:
        found.extend(batch.collect())

    with running(USER, PASSWORD) as registry, logged(spark, tmp_path / "log"):
        number = registry.register("events-value", schema, format="AVRO")
        rows = [{"value": number.to_bytes(5, "big") + b"\x02"}]
        stream = micro_batches(spark, [rows], directory=tmp_path / "in").selectExpr(
            "value", *(f"CAST(NULL AS {dtype}) AS {name}" for name, dtype in others.items())
        )
        for n, password in enumerate((PASSWORD, f"{PASSWORD}-2")):
            login = {"url": registry.url, "basic.auth.user.info": f"{USER}:{password}"}
            parse = sources.kafka_events("id bigint", registry=login)
            displayed += repr(parse) + repr(parse.parameters)
            parsed = stream.transform(parse)
            if password == PASSWORD:
                displayed += run(parsed, collect, tmp_path / f"checkpoint {n}")
                continue
            with pytest.raises(StreamingQueryException, match="HTTP status 401") as error:
                run(parsed, collect, tmp_path / f"checkpoint {n}")
            displayed += str(error.value)
    assert [row["id"] for row in found] == [1]
    log = (tmp_path / "log").read_text()
    assert "SOURCE_UNAVAILABLE" in log
    stored = b"".join(
        path.read_bytes() for path in tmp_path.rglob("checkpoint*/**/*") if path.is_file()
    )
    check(displayed, log, caplog.text, capfd, stored)
