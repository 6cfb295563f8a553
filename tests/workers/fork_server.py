"""Forks the Python processes that Spark starts one by one, not from its daemon.

For each ``transformWithStateInPandas`` and each streaming source in Python of a plan, Spark starts a process of
its own when the query starts. It imports pandas, PyArrow and streamops, a CPU second, for a few milliseconds of
work; on a busy machine Spark does not wait that long. Forked from a process that has imported them, it starts at once.

``launcher`` writes an executable that Spark takes for the Python interpreter. It passes what this server
can run to `tests/workers/launch.py`, and everything else to the real interpreter.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import tests.workers.preload  # noqa: F401
from tests.workers.launch import FILES, SIZE

with suppress(ImportError):  # Spark 3.5
    importlib.import_module("pyspark.sql.worker.plan_data_source_read")

FORKED = (
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
)


@contextmanager
def launcher(folder: Path) -> Iterator[Path]:
    """Run the server, and return the executable, which is in the folder."""
    address, executable = folder / "socket", folder / "python"
    python, client = (
        shlex.quote(sys.executable),
        shlex.quote(str(Path(__file__).with_name("launch.py"))),
    )
    executable.write_text(
        f'#!/bin/sh\ncase "$2" in {"|".join(FORKED)})\n'
        f'    exec {python} -S -I {client} {shlex.quote(str(address))} "$@"\n'
        f'esac\nexec {python} "$@"\n'
    )
    executable.chmod(0o755)
    # It ends with its input, so also if the tests are killed.
    command = [sys.executable, "-m", "tests.workers.fork_server", str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()  # it listens now
        yield executable


def serve(address: str) -> None:
    """Fork a process for each connection, until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        parent = os.getpid()
        if os.fork() == 0:
            sys.stdin.buffer.read()
            os.kill(parent, signal.SIGTERM)
            os._exit(0)
        sys.stdin.close()
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os._exit(_run(connection))
            connection.close()


def _run(connection: socket.socket) -> int:
    """Become the process that was asked for. The launcher waits until the connection is closed."""
    size, files, _, _ = socket.recv_fds(connection, SIZE.size, FILES)
    request = connection.recv(SIZE.unpack(size)[0], socket.MSG_WAITALL)
    wanted = json.loads(request)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate("rww"))
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["directory"])
    _, module, *sys.argv[1:] = wanted["arguments"]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
