"""Start a PostgreSQL server for the tests: installed programs, a temporary folder, a socket in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
    """A server that can be killed and started again.

    Parameters
    ----------
    installed : Path
        Its programs.
    folder : Path
        Its socket, its log, and its data, which outlive its processes.
    settings : dict of str to str
        Its settings.
    """

    installed: Path
    folder: Path
    settings: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def where(self) -> str:
        """Its connection string."""
        port = self.settings.get("port", "5432")
        return f"host={self.folder} port={port} user=postgres dbname=postgres"

    @property
    def url(self) -> str:
        """Its address for `sinks.postgres`."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it, on the data of its last process, and wait until it answers.

        Call it in a thread that lives as long as the server: the server ends with this thread.
        """
        assert self.process is None, "the server is running"
        # A test that is killed takes its server with it.
        command: list[Any] = ["setpriv", "--pdeathsig", "QUIT", self.installed / "postgres"]
        command += [part for setting in self.settings.items() for part in ("-c", "=".join(setting))]
        command += ["-D", self._data, "-k", self.folder]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **self._owner())
        self._await()

    def kill(self, *, everything: bool = False) -> None:
        """End its first process as a crash does, and with `everything` those that serve connections.

        Without a first process the others end by themselves, when they notice. A server cannot be
        started while one of them runs.
        """
        assert self.process is not None
        others = _children(self.process.pid)
        self.process.kill()
        if everything:
            for pid in others:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.process = None
        end = time.monotonic() + PATIENCE
        while any(_is_alive(pid) for pid in others):
            assert time.monotonic() < end, "processes of the server do not end"
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Shut it down, without waiting for its clients; SIGQUIT is a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _owner(self) -> dict[str, Any]:
        own: dict[str, Any] = {"cwd": self.folder}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            own |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        return own

    def _initialize(self) -> None:
        """Create its data."""
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        command = [self.installed / "initdb", "--no-sync", *options, self._data]
        with self._log.open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, **self._owner())

    def _add(self, files: Mapping[str, str]) -> None:
        """Add files to its data, which only it can read."""
        for name, text in files.items():
            file = self._data / name
            file.write_text(text)
            file.chmod(0o600)
            if os.geteuid() == 0:
                shutil.chown(file, "postgres", "postgres")

    def _await(self) -> None:
        assert self.process is not None
        end = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.where).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(self._log.read_text()) from error
                time.sleep(0.05)


@contextmanager
def serving(
    installed: Path, files: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Server]:
    """Start a server with further files in its data and further settings, yield it, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-") as folder:
        server = Server(installed, Path(folder), {**SETTINGS, **settings})
        server._initialize()
        server._add(files or {})
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def running(installed: Path) -> Iterator[str]:
    """Start a server, yield its connection string, and stop it."""
    with serving(installed) as server:
        yield server.where


def _children(pid: int) -> list[int]:
    """The processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(number) for number in text.split()]


def _is_alive(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
