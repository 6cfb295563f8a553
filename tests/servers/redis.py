"""Start a Redis server, or a cluster of three, for the tests: Debian's program, a temporary folder, free ports."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka.broker import free_port

PATIENCE = 60  # seconds
_SLOTS = 16_384


def program() -> str | None:
    """The server's program, if it is installed."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


@dataclass
class Server:
    """A server that loses nothing that it has acknowledged.

    Parameters
    ----------
    installed : str
        Its program.
    folder : Path
        Its log, and its data, which outlive its process.
    port : int
        Of clients.
    options : tuple of str
        Further options of the program.
    """

    installed: str
    folder: Path
    port: int
    options: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the process, on the data of the previous one, and wait until it answers."""
        assert self.process is None, "the server is running"
        # A test that is killed takes its server with it.
        command = ["setpriv", "--pdeathsig", "KILL", self.installed, "--bind", "127.0.0.1"]
        command += ["--port", str(self.port), "--dir", str(self.folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always", *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self._await()

    def kill(self) -> None:
        """End the process as a crash does; `start` recovers its data."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE)
            self.process = None

    def connect(self, **options: Any) -> Any:
        """A client that is independent of the library."""
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True, **options)

    def _await(self) -> None:
        import redis

        assert self.process is not None
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with self.connect() as client:
                    client.ping()
                return
            except redis.AuthenticationError:
                return
            except redis.ConnectionError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "log").read_text()) from error
                time.sleep(0.05)


@contextmanager
def running(installed: str, *options: str) -> Iterator[Server]:
    """Start a server, yield it, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-redis-") as folder:
        server = Server(installed, Path(folder), free_port(), options)
        try:
            server.start()
            yield server
        finally:
            server.kill()  # nobody reads the data again


@contextmanager
def cluster(installed: str, nodes: int = 3) -> Iterator[list[Server]]:
    """Start a cluster without replicas, yield its servers, and stop them."""
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-port")
        servers = [
            stack.enter_context(running(installed, *options, str(free_port())))
            for _ in range(nodes)
        ]
        bounds = [number * _SLOTS // nodes for number in range(nodes + 1)]
        first = servers[0]
        bus = first.options[-1]
        for number, server in enumerate(servers):
            with server.connect() as client:
                slots = bounds[number], bounds[number + 1] - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", *slots)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                if server is not first:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", first.port, bus)
        end = time.monotonic() + PATIENCE
        for server in servers:
            while True:
                with server.connect() as client:
                    info = client.execute_command("CLUSTER INFO")
                if "cluster_state:ok" in str(info) or "'cluster_state': 'ok'" in str(info):
                    break
                assert time.monotonic() < end, info
                time.sleep(0.1)
        yield servers
