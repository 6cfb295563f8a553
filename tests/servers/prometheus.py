"""Start a Prometheus server for the tests: the installed program, a temporary folder, a free port."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

PATIENCE = 60  # seconds

_SETTINGS = """\
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: streamops
    static_configs: [{{targets: ["127.0.0.1:{target}"]}}]
"""


def program() -> str | None:
    """The server's program, if it is installed."""
    return shutil.which("prometheus")


@dataclass(frozen=True)
class Prometheus:
    """A running server, which scrapes one target.

    Parameters
    ----------
    url : str
        Its address.
    """

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that an expression in PromQL has now."""
        data: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return data

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression, as soon as it has some."""
        end = time.monotonic() + PATIENCE
        while not (found := self.query(expression)):
            assert time.monotonic() < end, f"no samples: {expression}"
            time.sleep(0.1)
        return found

    def metadata(self) -> dict[str, list[dict[str, str]]]:
        """Type and help of each metric."""
        data: dict[str, list[dict[str, str]]] = self._get("metadata")
        return data

    def _get(self, path: str, **parameters: str) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error


@contextmanager
def serving(installed: str, folder: Path, target: int) -> Iterator[Prometheus]:
    """Start a server that scrapes a port of this machine, yield it, and stop it."""
    settings = folder / "prometheus.yml"
    settings.write_text(_SETTINGS.format(target=target))
    port = free_port()
    # A test that is killed takes its server with it.
    command = ["setpriv", "--pdeathsig", "KILL", installed, f"--config.file={settings}"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + PATIENCE
        while not _is_ready(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def exposing(registry: CollectorRegistry) -> Iterator[int]:
    """Serve the metrics of a registry on a free port, and yield the port."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


def free_port() -> int:
    """A port of this machine that no process listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
