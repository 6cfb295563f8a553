"""A worker of Kafka Connect with Debezium's connectors: jars that scripts/get-debezium fetched, free ports.

    with serving(broker) as worker:
        worker.create("shop", of_postgres(server, topics="shop"))
        worker.kill(); worker.start()

Offsets, configurations and the history of schemas are in topics of the broker, so they outlive the worker.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops.environment.java import find_java
from tests.kafka.broker import PATIENCE, Broker, free_port

VERSION = "3.5.0.Final"
"""Of Debezium, as in scripts/get-debezium."""
BROKER = {
    # A worker that was killed leaves its group before the next one has started.
    "group.min.session.timeout.ms": "500",
}
"""Settings that the broker needs."""
MARIADB = (
    *("--log-bin=binlog", "--binlog-format=ROW", "--server-id=1"),
    "--character-set-server=utf8mb4",
)
"""Settings that the connector for MariaDB needs, besides a port."""
_LOCALHOST = "127.0.0.1"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_SETTINGS = {
    "group.id": "connect",
    "key.converter": _JSON,
    "value.converter": _JSON,
    **{f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")},
    **{f"{name}.storage.replication.factor": 1 for name in ("config", "offset", "status")},
    **{f"{name}.storage.partitions": 1 for name in ("offset", "status")},
    "offset.flush.interval.ms": 500,
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 1_500,
    "heartbeat.interval.ms": 400,
    "plugin.discovery": "only_scan",
}
_EVERY = {
    "tasks.max": 1,
    "topic.creation.default.replication.factor": 1,
    "topic.creation.default.partitions": 1,
    "skipped.operations": "none",
    "poll.interval.ms": 50,
    "errors.max.retries": -1,
    "retriable.restart.connector.wait.ms": 500,
}


def jars() -> list[Path]:
    """The jars of Connect and the connectors, sorted; none if they were not fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return sorted((cache / "streamops" / f"debezium-{VERSION}").glob("*.jar"))


def of_postgres(port: int, topics: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a connector for PostgreSQL; dots of settings are underscores."""
    return {
        **_EVERY,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": _LOCALHOST,
        "database.port": port,
        "database.user": "postgres",
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": topics,
        "publication.name": topics,
        "topic.prefix": topics,
        **_dotted(settings),
    }


def of_mariadb(port: int, topics: str, broker: Broker, **settings: Any) -> dict[str, Any]:
    """The configuration of a connector for MariaDB; dots of settings are underscores."""
    return {
        **_EVERY,
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": _LOCALHOST,
        "database.port": port,
        "database.user": "root",
        "database.password": "",
        "database.server.id": 7_001,
        "database.include.list": "test",
        "schema.history.internal.kafka.bootstrap.servers": broker.bootstrap,
        "schema.history.internal.kafka.topic": f"{topics}-schemas",
        "topic.prefix": topics,
        **_dotted(settings),
    }


@dataclass
class Worker:
    """A worker, the only one of its group.

    Parameters
    ----------
    folder : Path
        Its settings and its log.
    broker : Broker
    port : int
        Of its HTTP interface.
    """

    folder: Path
    broker: Broker
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What it wrote."""
        return self.folder / "log"

    def start(self) -> None:
        """Start the process, and wait until it answers; it ends with the thread that started it."""
        assert self.process is None, "the worker is running"
        settings = _SETTINGS | {
            "bootstrap.servers": self.broker.bootstrap,
            "listeners": f"http://{_LOCALHOST}:{self.port}",
        }
        file = self.folder / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        small = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        java = ["setpriv", "--pdeathsig", "KILL", str(find_java().home / "bin" / "java"), *small]
        command = [*java, log, "-cp", ":".join(map(str, jars())), main, str(file)]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=output)
        self._await(lambda: self.request("GET", "/connectors"))

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process, as a crash does by default."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def create(self, name: str, settings: Mapping[str, Any]) -> None:
        """Create a connector, or change its settings, and wait until it runs."""
        texts = {key: str(value) for key, value in settings.items()}
        self._await(lambda: self.request("PUT", f"/connectors/{name}/config", texts))
        self.await_running(name)

    def delete(self, name: str) -> None:
        """Remove a connector; the database has its slot until it is dropped."""
        self._await(lambda: self.request("DELETE", f"/connectors/{name}"))

    def await_running(self, name: str) -> None:
        """Wait until a connector and its task run; a task that failed is started again."""
        self._await(lambda: self._is_running(name))

    def await_record(self, topic: str) -> None:
        """Wait until a topic has a record."""

        def check() -> bool:
            found = self.broker.admin().list_topics(timeout=5).topics
            return topic in found and bool(self.broker.read(topic))

        self._await(check)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of its HTTP interface.

        Raises
        ------
        OSError
            It does not answer, or refuses.
        """
        connection = http.client.HTTPConnection(_LOCALHOST, self.port, timeout=10)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise OSError(f"{answer.status}: {content.decode()}")
        return json.loads(content) if content else None

    def _is_running(self, name: str) -> bool:
        status = self.request("GET", f"/connectors/{name}/status")
        states = [status["connector"], *status["tasks"]]
        if any(part["state"] == "FAILED" for part in states):
            self.request("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")
        return len(states) > 1 and all(part["state"] == "RUNNING" for part in states)

    def _await(self, check: Any) -> None:
        end = time.monotonic() + 3 * PATIENCE  # its classes are many
        while True:
            try:
                if check() is not False:
                    return
                reason = "it does not run"
            except OSError as error:
                reason = str(error)
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{reason}\n{self.log.read_text()[-8_000:]}")
            time.sleep(0.1)


@contextmanager
def serving(broker: Broker) -> Iterator[Worker]:
    """Start a worker, yield it, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-connect-") as folder:
        worker = Worker(Path(folder), broker, free_port())
        try:
            worker.start()
            yield worker
        finally:
            worker.kill()


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
