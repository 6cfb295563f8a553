"""Start a MariaDB server for the tests: installed programs, a temporary folder, a socket in it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 60  # seconds


def program() -> Path | None:
    """The server's program, if it is installed."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    return Path(found) if found else None


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Parameters
    ----------
    socket : str
        The path of its socket.
    """

    socket: str

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


@contextmanager
def running(installed: Path) -> Iterator[Server]:
    """Start a server with a database `test`, yield it, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-") as name:
        folder = Path(name)
        user = "mysql" if os.geteuid() == 0 else None  # MariaDB refuses to run as root
        if user:
            shutil.chown(folder, user, user)
        data, path = folder / "data", folder / "socket"
        own = [f"--user={user}"] if user else []
        with (folder / "log").open("wb") as log:
            create = shutil.which("mariadb-install-db") or "/usr/bin/mariadb-install-db"
            options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
            command = [create, "--no-defaults", f"--datadir={data}", *options, *own]
            subprocess.run(command, check=True, stdout=log, stderr=log)
            # A test that is killed takes its server with it.
            command = ["setpriv", "--pdeathsig", "KILL", str(installed), "--no-defaults", *own]
            command += [f"--datadir={data}", f"--socket={path}", "--skip-networking"]
            command += [f"--pid-file={folder}/pid", "--innodb-flush-log-at-trx-commit=0"]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            server = Server(str(path))
            _await(server, process, folder / "log")
            yield server
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _await(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            # PyMySQL does not close a socket that does not connect.
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(server.socket)
            break
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(log.read_text()) from error
            time.sleep(0.05)
    with server.connect(database=None) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE test")
