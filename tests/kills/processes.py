"""The processes of a driver: itself, its JVM, Python workers, executors."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.kills.job import Settings, go_file

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds
_TICK = 0.003
_END_OF_WORKERS = 20  # seconds


@dataclass(frozen=True, slots=True)
class Process:
    """A process of Linux.

    Parameters
    ----------
    pid, parent, session : int
        Its number, the one of its parent, and the one of the first process of its session.
    command : str
        Its command line.
    """

    pid: int
    parent: int
    session: int
    command: str


def processes() -> Iterator[Process]:
    """All processes that have not ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            _, _, facts = (folder / "stat").read_text().rpartition(") ")
            state, parent, _, session, *_ = facts.split()
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue  # it has ended meanwhile
        if state not in "ZX":
            yield Process(int(folder.name), int(parent), int(session), command)


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_until(condition: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Wait until a condition holds; False if it does not in time."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_TICK)
    return True


@dataclass
class Driver:
    """A driver that runs, in a session and a process group of its own.

    Parameters
    ----------
    settings : Settings
        What it runs.
    log : Path
        What it prints.
    """

    settings: Settings
    log: Path
    started: float = 0.0

    def __post_init__(self) -> None:
        """Start its process, which waits for `go` when its session has started."""
        path = self.log.with_suffix(".json")
        self.settings.write(path)
        # A driver does not outlive the program that kills it.
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.kills.job", path]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        if self.settings.executors:
            environment["SPARK_HOME"] = str(_spark_home(Path(self.settings.folder, "spark")))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def age(self) -> float:
        """Seconds since it may start its query."""
        return time.monotonic() - self.started

    def go(self) -> None:
        """Let it start its query."""
        self.started = time.monotonic()
        go_file(self.log.with_suffix(".json")).touch()

    def members(self) -> list[Process]:
        """All processes of its session."""
        return [process for process in processes() if process.session == self.process.pid]

    def workers(self) -> list[int]:
        """The Python workers of Spark: the children of the process that forks them."""
        members = self.members()
        forking = {p.pid for p in members if "pyspark.daemon" in p.command}
        return [p.pid for p in members if p.parent in forking and "pyspark.daemon" in p.command]

    def executors(self) -> list[int]:
        """The executors of a cluster."""
        return [p.pid for p in self.members() if "CoarseGrainedExecutorBackend" in p.command]

    def kill(self) -> None:
        """Send SIGKILL to the process group: Python and the JVM."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.clear()

    def clear(self) -> None:
        """Wait until its workers and executors have ended, too, and end those that do not."""
        if not wait_until(lambda: not self.members(), _END_OF_WORKERS):
            send([process.pid for process in self.members()], signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all its processes where they are."""
        send([process.pid for process in self.members()], signal.SIGSTOP)

    def resume(self) -> None:
        """Let its processes go on."""
        send([process.pid for process in self.members()], signal.SIGCONT)

    def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        code = self.process.wait(PATIENCE)
        self.clear()
        return code


def _spark_home(folder: Path) -> Path:
    """A copy of Spark's folder by links: a cluster writes into it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder
