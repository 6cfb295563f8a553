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


@contextmanager
def running(installed: Path) -> Iterator[str]:
    """Start a server, yield its connection string, and stop it."""
    with tempfile.TemporaryDirectory(prefix="streamops-") as folder:
        own: dict[str, Any] = {"cwd": folder}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "postgres", "postgres")
            own |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        log_file, data = Path(folder) / "log", f"{folder}/data"
        with log_file.open("wb") as log:
            own |= {"stdout": log, "stderr": log}
            options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
            subprocess.run([installed / "initdb", "--no-sync", *options, data], check=True, **own)
            # A test that is killed takes its server with it.
            command = ["setpriv", "--pdeathsig", "QUIT", installed / "postgres", "-D", data]
            command += [part for setting in SETTINGS.items() for part in ("-c", "=".join(setting))]
            server = subprocess.Popen([*command, "-k", folder], **own)
        try:
            where = f"host={folder} user=postgres dbname=postgres"
            _await(server, where, log_file)
            yield where
        finally:
            server.send_signal(signal.SIGINT)  # does not wait for clients
            server.wait(PATIENCE)


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
