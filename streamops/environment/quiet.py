"""Drop the progress lines of Spark from what the JVM writes to stderr, and pass on everything else.

With each query, the Python worker that prepares ``transformWithStateInPandas`` prints five lines about its
progress, and the JVM prints some when it starts. Spark has no setting for them: the JVM copies the output
of workers to its own stderr, where errors are, too. So the JVM gets a pipe as its stderr, and a process of
its own, which ends with the JVM, copies the lines. In a thread of this process the last lines would be
lost when Python ends before the JVM, and the JVM would wait while a debugger stops all threads.

This file is also the program of that process: it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2
_WORKER = b"Streaming TransformWithStateInPandas Python worker"
PROGRESS = (
    b"Starting " + _WORKER,
    _WORKER + b" received parameters for UDF",
    _WORKER + b" finish init stage",
    _WORKER + b" Starting execution of UDF",
    _WORKER + b" Completed execution of UDF",
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Using Spark's default log4j profile: ",
    b"Setting default log level to ",
    b"To adjust logging level use sc.setLogLevel",
    b"Setting Spark log level to ",
)
"""How the lines begin that are dropped."""

_NATIVE_CODE = b" WARN NativeCodeLoader: Unable to load native-hadoop library"


class LineFilter:
    """Drops lines from a stream of bytes.

    What cannot be such a line is passed on at once, also before the end of its line: a progress bar has
    no end of line.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._follows_dropped = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, and return those to pass on."""
        *lines, rest = (self._pending + data).split(b"\n")
        passed = [line + b"\n" for line in lines if not self._drops(line)]
        self._pending = rest if _may_begin_progress(rest) else b""
        if rest and not self._pending:
            self._follows_dropped = False
            passed.append(rest)
        return b"".join(passed)

    def end(self) -> bytes:
        """Return what was not passed on because its line did not end."""
        return self._pending

    def _drops(self, line: bytes) -> bool:
        """Whether a line is dropped: a progress line, or the empty line that follows one."""
        is_progress = line.startswith(PROGRESS) or _NATIVE_CODE in line
        is_dropped = is_progress or (self._follows_dropped and not line.strip())
        self._follows_dropped = is_progress
        return is_dropped


def _may_begin_progress(rest: bytes) -> bool:
    return bool(rest) and any(line.startswith(rest) or rest.startswith(line) for line in PROGRESS)


@contextmanager
def filter_stderr() -> Iterator[None]:
    """Give processes that start in this block a filtered stderr.

    This process writes through the filter within the block, too, and directly after it. Where there is
    no stderr or no way to start the filter, nothing changes.
    """
    original = _start_filter()
    try:
        yield
    finally:
        if original is not None:
            os.dup2(original, _STDERR)
            os.close(original)


def _start_filter() -> int | None:
    """Replace the stderr of this process by a pipe to a filter; return a copy of the original one."""
    if not (hasattr(os, "posix_spawn") and sys.executable and os.path.isfile(__file__)):
        return None
    try:
        original = os.dup(_STDERR)
    except OSError:  # closed
        return None
    reading, writing = os.pipe()
    try:
        # Isolated, and without site packages: it starts in a fiftieth of a second.
        command = [sys.executable, "-I", "-S", __file__]
        files = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_DUP2, original, _STDERR)]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=files)
        os.dup2(writing, _STDERR)
    except OSError:
        os.close(original)
        return None
    finally:
        os.close(reading)
        os.close(writing)
    return original


def _copy() -> None:
    """Copy stdin to stderr, through the filter, until it ends."""
    # Ctrl-C is for the program that started the session: what it makes the JVM print must arrive.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = LineFilter()
    while data := os.read(0, 1 << 16):
        _write(lines.feed(data))
    _write(lines.end())


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_STDERR, data) :]


if __name__ == "__main__":
    _copy()
