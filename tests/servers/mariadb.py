"""Start a MariaDB server for the tests: installed programs, a temporary folder, a socket in it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 60  # seconds


def program() -> Path | None:
    """The server's program, if it is installed."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    return Path(found) if found else None


@dataclass
class Server:
    """A server that loses nothing that it has committed.

    Parameters
    ----------
    installed : Path
        Its program.
    folder : Path
        Its socket, its log, and its data, which outlive its process.
    settings : sequence of str
        Options of its program; without any it has no port.
    """

    installed: Path
    folder: Path
    settings: Sequence[str] = ("--skip-networking",)
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return str(self.folder / "socket")

    def url(self, database: str = "test", dialect: str = "mariadb", **options: str) -> str:
        """The address of a database for SQLAlchemy."""
        given = "".join(f"&{name}={value}" for name, value in options.items())
        return f"{dialect}+pymysql://root@localhost/{database}?unix_socket={self.socket}{given}"

    def connect(self, database: str | None = "test", **options: Any) -> Any:
        """A client that is independent of the library."""
        import pymysql

        return pymysql.connect(
            unix_socket=self.socket, user="root", database=database, autocommit=True, **options
        )

    def start(self) -> None:
        """Start the process, on the data of the previous one, and wait until it answers."""
        assert self.process is None, "the server is running"
        data = self.folder / "data"
        user = "mysql" if os.geteuid() == 0 else None  # MariaDB refuses to run as root
        own = [f"--user={user}"] if user else []
        if user:
            shutil.chown(self.folder, user, user)
        with (self.folder / "log").open("ab") as log:
            if not data.exists():
                create = shutil.which("mariadb-install-db") or "/usr/bin/mariadb-install-db"
                options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
                command = [create, "--no-defaults", f"--datadir={data}", *options, *own]
                subprocess.run(command, check=True, stdout=log, stderr=log)
            # A test that is killed takes its server with it.
            command = ["setpriv", "--pdeathsig", "KILL", str(self.installed), "--no-defaults", *own]
            command += [f"--datadir={data}", f"--socket={self.socket}", *self.settings]
            # Another server that starts removes the temporary tables that it finds in its folder.
            command += [f"--tmpdir={self.folder}"]
            # What is committed is with the operating system, which survives.
            command += [f"--pid-file={self.folder}/pid", "--innodb-flush-log-at-trx-commit=2"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self._await()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process, as a crash does by default; `start` recovers its data."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def _await(self) -> None:
        assert self.process is not None
        end = time.monotonic() + PATIENCE
        while True:
            try:
                # PyMySQL does not close a socket that does not connect.
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(self.socket)
                break
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "log").read_text()) from error
                time.sleep(0.05)
        with self.connect(database=None) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS test")


@contextmanager
def running(installed: Path, *settings: str) -> Iterator[Server]:
    """Start a server with a database `test` and other settings, yield it, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-") as folder:
        server = Server(installed, Path(folder), *([settings] if settings else []))
        try:
            server.start()
            yield server
        finally:
            server.kill(signal.SIGTERM)
