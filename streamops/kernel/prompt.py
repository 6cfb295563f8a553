"""Functions for Spark's Python workers that do not wait for TCP.

Spark sends a task to its worker in two parts: the function, and the rows. Where the connection is TCP, the
operating system holds back the second part until the worker has acknowledged the first (Nagle's algorithm),
and delays the acknowledgement, for 40 milliseconds or more, in case there is something to send with it. Nothing
is sent before the rows have arrived, so every small task waits. From 4.1 on, Spark can use a Unix domain socket
(``spark.python.unix.domain.socket.enabled``), which does not wait.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Linux only, as the list of open files.
_OPTION = getattr(socket, "TCP_QUICKACK", None)
_OPEN_FILES = "/proc/self/fd"


def prompt(function: F) -> F:
    """Let a function acknowledge, when a worker unpickles it, what the worker has received."""
    vars(function)["_acknowledge"] = Acknowledgement()
    return function


class Acknowledgement:
    """A part of what Spark pickles for its workers: unpickling it acknowledges what has been received."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return acknowledge, ()


def acknowledge() -> None:
    """Acknowledge what has been received by the TCP connections of this process."""
    if _OPTION is None:
        return
    # A worker has a handful of files. One that is closed meanwhile, or is not of TCP, does not matter.
    with contextlib.suppress(OSError):
        for name in os.listdir(_OPEN_FILES):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as of:
                        of.setsockopt(socket.IPPROTO_TCP, _OPTION, 1)
