"""CPU seconds of a whole process tree, exact also where processes come and go (Linux).

`/proc/<pid>/stat` gives a process's own time and the time of the children it has waited for. Their
sum over the living tree is conserved when a child exits and is waited for: its time moves to its
parent. Two holes are closed:

* PySpark's worker daemon *ignores* SIGCHLD, so the kernel forgets the time of an exited worker. A
  thread samples the tree; when a process vanishes whose parent ignored the signal, what it had
  used when last seen is kept. The error is at most one sampling interval per such exit. The
  number of exits is reported (zero in a warm run, as workers are reused).
* An orphan would leave the tree. The root declares itself a subreaper, so orphans become its
  children.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_PR_SET_CHILD_SUBREAPER = 36
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of a process tree, by what used them."""

    jvm: float
    """The Java process itself: Spark's driver and executor."""
    python: float
    """Python processes: driver, worker daemon, workers, also those that have exited."""
    helpers: float
    """Children of the Java process that have exited: short-lived Python processes and commands."""
    lost_exits: int = 0
    """Exited processes whose time is known only up to one sampling interval."""

    @property
    def total(self) -> float:
        """CPU seconds of the whole tree."""
        return self.jvm + self.python + self.helpers

    def since(self, before: Cpu) -> Cpu:
        """Return what was used after `before`."""
        return Cpu(
            self.jvm - before.jvm,
            self.python - before.python,
            self.helpers - before.helpers,
            self.lost_exits - before.lost_exits,
        )


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    started: int
    java: bool
    own: float
    waited: float


def read_started() -> float:
    """CPU seconds of the processes that this one has started, directly or not, also of those that ended."""
    own = os.getpid()
    living = sum(p.own + p.waited for p in _descendants(own) if p.pid != own)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return living + ended.ru_utime + ended.ru_stime


def read_processes() -> list[_Process]:
    """The calling process and all its descendants."""
    return _descendants(os.getpid())


class ProcessTree:
    """The calling process and all its descendants, watched while the context is open."""

    def __init__(self, interval: float = 1.0) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, int], tuple[_Process, bool]] = {}
        self._lost = 0.0
        self._lost_exits = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cpu-sampler", daemon=True)

    def __enter__(self) -> ProcessTree:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) was refused")
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def read(self) -> Cpu:
        """Return the CPU seconds used by the tree so far."""
        with self._lock:
            living = self._sample()
            java = [process for process in living if process.java]
            others = [process for process in living if not process.java]
            return Cpu(
                jvm=sum(process.own for process in java),
                python=sum(process.own + process.waited for process in others) + self._lost,
                helpers=sum(process.waited for process in java),
                lost_exits=self._lost_exits,
            )

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            with self._lock:
                self._sample()

    def _sample(self) -> list[_Process]:
        living = _descendants(os.getpid())
        ignores = {process.pid: _ignores_exits(process.pid) for process in living}
        now = {
            (process.pid, process.started): (process, ignores.get(process.parent, False))
            for process in living
        }
        for identity in self._seen.keys() - now.keys():
            process, forgotten = self._seen[identity]
            if forgotten:
                self._lost += process.own + process.waited
                self._lost_exits += 1
        self._seen = now
        return living


def _descendants(root: int) -> list[_Process]:
    everything = [
        _read(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    ]
    processes = [process for process in everything if process is not None]
    children: dict[int, list[_Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    tree = [process for process in processes if process.pid == root]
    for process in tree:  # grows while it is read: breadth first
        tree.extend(children.get(process.pid, []))
    return tree


def _read(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None  # gone between the listing and the reading
    # The command is in parentheses and may itself hold spaces and parentheses.
    command = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    own, waited = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return _Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        java=command == "java",
        own=own * _TICK,
        waited=waited * _TICK,
    )


def _ignores_exits(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (signal.SIGCHLD - 1) & 1)
