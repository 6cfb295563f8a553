"""Start a PostgreSQL server for the tests: installed programs, a temporary folder, a socket in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

SETTINGS = {
    "listen_addresses": "",
    "wal_level": "logical",
    "fsync": "off",
    "max_wal_senders": "0",
    "timezone": "UTC",
}
PATIENCE = 60  # seconds


def programs() -> Path | None:
    """The folder of the newest server's programs, if one is installed."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((program.parent for program in found), key=lambda f: int(f.parts[-2]), default=None)


@dataclass
class Server:
    """A server in a temporary folder, which can crash and start again."""

    installed: Path
    folder: Path
    own: dict[str, Any]
    settings: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def where(self) -> str:
        """The connection string."""
        return f"host={self.folder} user=postgres dbname=postgres"

    def start(self) -> None:
        log_file = self.folder / "log"
        # A test that is killed takes its server with it.
        command = ["setpriv", "--pdeathsig", "QUIT", self.installed / "postgres"]
        command += ["-D", self.folder / "data", "-k", self.folder]
        command += [part for one in self.settings.items() for part in ("-c", "=".join(one))]
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **self.own)
        _await(self.process, self.where, log_file)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop without waiting for clients; SIGQUIT is a crash."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(PATIENCE)


@contextmanager
def serving(installed: Path, **settings: str) -> Iterator[Server]:
    """Start a server with further settings, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="streamops-") as name:
        folder = Path(name)
        own: dict[str, Any] = {"cwd": folder}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "postgres", "postgres")
            own |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        with (folder / "log").open("wb") as log:
            command = [installed / "initdb", "--no-sync", *options, folder / "data"]
            subprocess.run(command, check=True, stdout=log, stderr=log, **own)
        server = Server(installed, folder, own, {**SETTINGS, **settings})
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def running(installed: Path) -> Iterator[str]:
    """Start a server, yield its connection string, and stop it."""
    with serving(installed) as server:
        yield server.where


def _await(server: subprocess.Popen[bytes], where: str, log_file: Path) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(where).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(log_file.read_text()) from error
            time.sleep(0.05)
