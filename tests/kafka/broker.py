"""A real Kafka broker for the tests: jars that scripts/get-kafka fetched, a temporary folder, free ports.

    def test_something(kafka: Broker) -> None:
        topic = kafka.create_topic(partitions=2)
        kafka.produce(topic, [{"key": "a", "value": "1"}])
        assert [record.value() for record in kafka.read(topic)] == [b"1"]

The fixture `kafka` is one broker for all tests, so a test uses topics of its own. A test that kills its
broker starts one of its own: `with running() as broker: ... broker.kill(); broker.start()`.
"""

from __future__ import annotations

import base64
import logging
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamops.environment.java import find_java

VERSION = "4.2.0"
"""Of the broker, as in scripts/get-kafka."""
PATIENCE = 60  # seconds
_LOG = logging.getLogger(__name__)  # a client would print that its broker was killed
_LOCALHOST = "127.0.0.1"
_BELOW_EPHEMERAL = range(20_000, 32_000)
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    # After a crash the controller accepts the broker again once its session has timed out.
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 500,
    # Or records with old timestamps would be deleted within minutes.
    "log.retention.ms": -1,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


def jars(part: str) -> list[Path]:
    """The jars of the "broker" or of Spark's "connector", sorted; none if they were not fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return sorted((cache / "streamops" / f"kafka-{VERSION}" / part).glob("*.jar"))


@dataclass
class Broker:
    """A broker that is its own controller.

    Parameters
    ----------
    folder : Path
        Its settings, its log, and its data, which outlive its process.
    port : int
        Of clients.
    listeners : mapping of str to int
        Further ports, by security protocol such as "SSL".
    settings : mapping of str to str
        Further settings, such as those of these protocols.
    """

    folder: Path
    port: int
    listeners: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`, and `kafka.bootstrap.servers` of Spark."""
        return f"{_LOCALHOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process of the broker, while it runs."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start the process, on the data of the previous one, and wait until it answers.

        Call it in a thread that lives as long as the broker: the process ends with this thread.
        """
        assert self.process is None, "the broker is running"
        # A test that is killed takes its broker with it.
        command = ["setpriv", "--pdeathsig", "KILL", *_java("kafka.Kafka"), self._settings]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self._await()

    def kill(self) -> None:
        """End the process as a crash does; `start` recovers its data."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut the process down."""
        self._end(signal.SIGTERM)

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, by default with a name that no other test uses, and return its name."""
        from confluent_kafka.admin import NewTopic

        name = name or f"topic-{uuid.uuid4().hex}"
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin = self.admin()  # held until there is a result
        admin.create_topics([topic])[name].result(PATIENCE)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """Add partitions to a topic."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE)

    def admin(self) -> Any:
        """An `AdminClient`."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "logger": _LOG})

    def producer(self, **settings: Any) -> Any:
        """A `Producer`; dots of settings are underscores: `transactional_id="t"`."""
        from confluent_kafka import Producer

        own = {"bootstrap.servers": self.bootstrap, "logger": _LOG}
        return Producer({**own, **_dotted(settings)})

    def consumer(self, **settings: Any) -> Any:
        """A `Consumer` of committed records, by default from the beginning."""
        from confluent_kafka import Consumer

        defaults = {
            "bootstrap.servers": self.bootstrap,
            "logger": _LOG,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        return Consumer({**defaults, **_dotted(settings)})

    def produce(self, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Write records, the arguments of `Producer.produce`, and wait until they are stored."""
        producer, failed = self.producer(), []
        for record in records:
            producer.produce(
                topic, **record, on_delivery=lambda error, _: error and failed.append(error)
            )
            producer.poll(0)
        assert producer.flush(PATIENCE) == 0, "records were not delivered"
        assert not failed, failed

    def read(self, topic: str, **settings: Any) -> list[Any]:
        """All records of a topic up to its present end, by partition and offset.

        Settings are those of the consumer: `isolation_level="read_uncommitted"` also shows records
        of transactions that were aborted or are open.
        """
        from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

        consumer = self.consumer(enable_partition_eof=True, **settings)
        try:
            found = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in found])
            records, unfinished, end = [], set(found), time.monotonic() + PATIENCE
            while unfinished:
                assert time.monotonic() < end, f"no end of partitions {unfinished}"
                for message in consumer.consume(1_000, timeout=0.5):
                    if message.error() is None:
                        records.append(message)
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        unfinished.discard(message.partition())
        finally:
            consumer.close()
        return sorted(records, key=lambda record: (record.partition(), record.offset()))

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _format(self) -> None:
        """Write the settings, and prepare the folder of the data."""
        controller = f"{_LOCALHOST}:{free_port()}"
        ports = {"PLAINTEXT": self.port, **self.listeners}
        clients = ",".join(f"{name}://{_LOCALHOST}:{port}" for name, port in ports.items())
        protocols = ",".join(f"{name}:{name}" for name in ports)
        settings = _SETTINGS | {
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{clients},CONTROLLER://{controller}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.folder / "data",
            **self.settings,
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._settings.write_text("".join(lines))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = _java("kafka.tools.StorageTool")
        command = [*tool, "format", f"--cluster-id={cluster}", "--config", self._settings]
        with self._log.open("ab") as log:
            done = subprocess.run(command, cwd=self.folder, stdout=log, stderr=log)
        if done.returncode:
            raise RuntimeError(self._log.read_text())

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def _await(self) -> None:
        from confluent_kafka import KafkaException

        assert self.process is not None
        end = time.monotonic() + PATIENCE
        while True:
            try:
                # An attempt to connect costs less than a client that waits before its next one.
                socket.create_connection((_LOCALHOST, self.port), timeout=1).close()
                if self.admin().list_topics(timeout=5).brokers:
                    return
            except (OSError, KafkaException) as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(self._log.read_text()) from error
            time.sleep(0.1)


@contextmanager
def running(
    listeners: Mapping[str, int] | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """Start a broker on an empty folder, yield it, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-kafka-") as folder:
        broker = Broker(Path(folder), free_port(), listeners or {}, settings or {})
        broker._format()
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()  # nobody reads the data again


def _java(main: str) -> list[str]:
    path = ":".join(map(str, jars("broker")))
    small = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [str(find_java().home / "bin" / "java"), *small, log, "-cp", path, main]


def free_port() -> int:
    """A port that no outgoing connection takes while the broker is down."""
    for port in random.sample(_BELOW_EPHEMERAL, 100):
        with socket.socket() as probe:
            if probe.connect_ex((_LOCALHOST, port)) != 0:
                return port
    message = "no port is free"
    raise RuntimeError(message)


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
