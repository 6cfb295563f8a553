"""Start an OpenSearch server for the tests: what scripts/get-opensearch fetched, a temporary folder, free ports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops.environment.java import find_java
from tests.kafka.broker import free_port

VERSION = "2.19.0"
"""As in scripts/get-opensearch."""
PATIENCE = 60  # seconds
_LOCALHOST = "127.0.0.1"
_NEWEST_JAVA = 23  # later ones have no security manager


def program() -> Path | None:
    """The folder of the server, if it was fetched and there is a Java that runs it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = cache / "streamops" / f"opensearch-{VERSION}"
    return found if found.is_dir() and find_java().version <= _NEWEST_JAVA else None


@dataclass
class Server:
    """A single node.

    Parameters
    ----------
    folder : Path
        Its program, its log, and its data, which outlive its process.
    port : int
        Of clients.
    settings : mapping of str to str
        Further settings.
    """

    folder: Path
    port: int
    settings: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://{_LOCALHOST}:{self.port}"

    def start(self) -> None:
        """Start the process, on the data of the previous one, and wait until it answers."""
        assert self.process is None, "the server is running"
        home = self.folder / "program"
        # A test that is killed takes its server with it.
        command = ["setpriv", "--pdeathsig", "KILL"]
        if os.geteuid() == 0:  # OpenSearch refuses to run as root
            command += ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        command += [str(find_java().home / "bin" / "java"), "-Xms512m", "-Xmx512m"]
        command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.security.manager=allow"]
        command += [f"-Djava.io.tmpdir={self.folder}/tmp", f"-Dopensearch.path.home={home}"]
        command += [f"-Dopensearch.path.conf={home}/config", "-Dopensearch.distribution.type=zip"]
        command += ["-cp", f"{home}/lib/*", "org.opensearch.bootstrap.OpenSearch"]
        settings = {
            "discovery.type": "single-node",
            "http.port": self.port,
            "transport.port": free_port(),
            "path.data": f"{self.folder}/data",
            "path.logs": f"{self.folder}/logs",
            # Disks of test machines may be nearly full.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            **self.settings,
        }
        command += [part for name, value in settings.items() for part in ("-E", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self._await()

    def kill(self) -> None:
        """End the process as a crash does; `start` recovers its data."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE)
            self.process = None

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request, by a client that is independent of the library."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """All documents of an index, by id, with their versions."""
        self.request("POST", f"/{index}/_refresh")
        query: dict[str, Any] = {"size": 10_000, "version": True, "sort": ["_doc"]}
        found = {}
        scroll = self.request("POST", f"/{index}/_search?scroll=1m", query)
        while scroll["hits"]["hits"]:
            found |= {hit["_id"]: hit for hit in scroll["hits"]["hits"]}
            more = {"scroll": "1m", "scroll_id": scroll["_scroll_id"]}
            scroll = self.request("POST", "/_search/scroll", more)
        self.request("DELETE", "/_search/scroll", {"scroll_id": scroll["_scroll_id"]})
        return found

    def _await(self) -> None:
        assert self.process is not None
        end = time.monotonic() + PATIENCE
        while True:
            try:
                health = self.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=30s")
                if health.get("status") in {"yellow", "green"}:
                    return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "log").read_text()) from error
            time.sleep(0.1)


@contextmanager
def running(installed: Path, **settings: str) -> Iterator[Server]:
    """Start a server, yield it, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-opensearch-") as name:
        folder = Path(name)
        # The folder of the user's cache may be closed to the user that the server runs as.
        shutil.copytree(installed, folder / "program")
        for part in ("data", "logs", "tmp"):
            (folder / part).mkdir()
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "nobody:nogroup", str(folder)], check=True)
        server = Server(folder, free_port(), settings)
        try:
            server.start()
            yield server
        finally:
            server.kill()  # nobody reads the data again
