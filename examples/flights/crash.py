"""Kill the process that writes the hourly windows through a sink, start it again, and compare."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from examples.flights import durable
from examples.flights.contents import OUTPUTS
from examples.flights.sums import line
from examples.flights.tables import late, read_table
from examples.flights.verify import TOLERANCE
from streamops.errors import SinkError
from tests.servers import installed

__all__ = ["Crash", "Survival", "gather_survival", "run_with_crash", "store", "survival"]

_PATIENCE = 300  # seconds
_LOOK = 0.005  # seconds


@dataclass(frozen=True, slots=True)
class Crash:
    """When the process was killed.

    Parameters
    ----------
    target : str
        What the sink wrote to.
    batch : int
        The micro-batch that was running.
    committed : bool
        Whether the target had it. Spark then had to deliver it again.
    """

    target: str
    batch: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Survival:
    """The target after the crash, compared with the tables of the query that was not killed.

    Parameters
    ----------
    crash : Crash
        When the process was killed.
    compared : int
        Windows of the query that was not killed.
    missing, unexpected, different : int
        Windows that only this one has; that only the target has, or has twice; with other values.
    late, late_wrong : int
        Rows that were too late; those that only one of both has, or has twice.
    """

    crash: Crash
    compared: int
    missing: int
    unexpected: int
    different: int
    late: int
    late_wrong: int

    @property
    def hold(self) -> bool:
        """Whether the target has every row once."""
        wrong = self.missing + self.unexpected + self.different + self.late_wrong
        return wrong == 0 and self.compared > 0


def run_with_crash(out: Path, files: int) -> None:
    """Write the windows in a process that is killed once, in the middle, and store what the target has.

    Parameters
    ----------
    out : Path
        The folder of the run.
    files : int
        Files of the log, which are micro-batches.
    """
    with installed.postgres() as server:
        url = None if server is None else server.url
        with _process(out, url, "first") as process:
            committed = _await_commit(process, out, url, files // 2)
        with _process(out, url, "second") as process:
            if process.wait(_PATIENCE):
                message = f"the process that was started again failed: see {_log(out, 'second')}"
                raise RuntimeError(message)
        crash = Crash("PostgreSQL" if url else "Parquet", files // 2, committed)
        store(out, crash, durable.read_windows(out, url), durable.read_late(out, url))


def _log(out: Path, name: str) -> Path:
    return out / f"{name} process.log"


@contextmanager
def _process(out: Path, url: str | None, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs the query. At the end of the context it is killed, if it still runs."""
    path = out / f"{name} spark.log"
    command = [sys.executable, "-m", "examples.flights.durable", str(out), str(path)]
    command += [url] if url else []
    with _log(out, name).open("wb") as log:
        # In a process group of its own: Python and its JVM.
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_PATIENCE)


def _await_commit(process: subprocess.Popen[bytes], out: Path, url: str | None, batch: int) -> bool:
    """Wait until the target, or Spark, has committed a micro-batch; whether only the target has."""
    sink, commits = durable.results(out, url), durable.checkpoint(out) / "commits"
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if (commits / str(batch)).exists():
            return False
        if _last(sink) >= batch:
            return not (commits / str(batch)).exists()
        time.sleep(_LOOK)
    message = f"the process did not reach micro-batch {batch}: see {_log(out, 'first')}"
    raise RuntimeError(message)


def _last(sink: Any) -> int:
    """The last micro-batch of the target; -1 if there is none."""
    with suppress(SinkError):
        entry = sink.read_ledger()
        return -1 if entry is None else int(entry.batch)
    return -1


def store(out: Path, crash: Crash, windows: pa.Table, missed: pa.Table) -> None:
    """Store what the target has, for this report and for later checks."""
    folder = out / "crash"
    folder.mkdir(exist_ok=True)
    (folder / "crash.json").write_text(json.dumps(asdict(crash)))
    pq.write_table(windows, folder / f"{durable.WINDOWS}.parquet")
    pq.write_table(missed, folder / f"{durable.LATE}.parquet")


def gather_survival(out: Path) -> Survival:
    """Compare what the target has with the tables of the query that was not killed."""
    folder = out / "crash"
    crash = Crash(**json.loads((folder / "crash.json").read_text()))
    found = pq.read_table(folder / f"{durable.WINDOWS}.parquet").to_pandas()
    wanted = read_table(out, durable.WINDOWS)
    key = [*OUTPUTS[durable.WINDOWS].key]
    both = wanted.merge(found, on=key, how="outer", suffixes=("", "_found"), indicator="side")
    paired = both["side"] == "both"
    exact = [name for name in OUTPUTS[durable.WINDOWS].columns if name not in (*key, "mean_delay")]
    differs = (both["mean_delay"] - both["mean_delay_found"]).abs() > TOLERANCE
    for name in exact:
        differs |= both[name] != both[f"{name}_found"]
    return Survival(
        crash=crash,
        compared=len(wanted),
        missing=int((both["side"] == "left_only").sum()),
        unexpected=int((both["side"] == "right_only").sum() + found.duplicated(key).sum()),
        different=int((paired & differs).sum()),
        late=len(late(out, durable.WINDOWS)),
        late_wrong=_late_wrong(out, folder),
    )


def _late_wrong(out: Path, folder: Path) -> int:
    stored = pq.read_table(folder / f"{durable.LATE}.parquet").column("row").to_pylist()
    found = pd.Series(
        [json.loads(row)["late"]["row"]["flight_id"] for row in stored], dtype="int64"
    )
    wanted = late(out, durable.WINDOWS)["flight_id"]
    counts = pd.concat([wanted.value_counts(), found.value_counts()], axis=1).fillna(0)
    return int((counts.iloc[:, 0] - counts.iloc[:, 1]).abs().sum())


def survival(found: Survival) -> Iterator[str]:
    """Return the comparison as lines of text."""
    crash = found.crash
    when = (
        "after the commit of the sink and before the one of Spark"
        if crash.committed
        else "after the commit of Spark"
    )
    yield line(f"every hour through a sink, to {crash.target}", ["hourly"])
    yield line("  windows compared with those above", [found.compared])
    yield line("  missing in the target", [found.missing])
    yield line("  only in the target, or twice", [found.unexpected])
    yield line("  another count, mean or revision", [found.different])
    yield line("  late rows in the target", [found.late])
    yield line("  late rows missing, or twice", [found.late_wrong])
    yield f"  The process that wrote them was killed (SIGKILL) in micro-batch {crash.batch},"
    yield f"  {when}, and started again."
