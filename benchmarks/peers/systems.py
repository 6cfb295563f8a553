"""The engines that are compared, and what each of them cannot express."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import STANDARD_ERROR

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
ENVIRONMENTS = ROOT / "build" / "peers"
"""Where `scripts/get-peers` installs them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine: how to start its program, and what it is compared with."""

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    package: str = ""
    """The package whose version is recorded, in an environment of its own; by default in this one."""
    reads: str = "parquet"
    """`parquet` and `csv`: a folder with a file per micro-batch; `millis`: one Parquet file, times as integers."""
    prints: bool = False
    """Whether results of live jobs are printed, and so in the log."""
    warms_up: bool = False
    """Whether code is compiled while it runs, so that a first run over the same rows is not measured."""
    divisor: int = 1
    """Of the scale of the measured run, for those that would take minutes."""
    is_limit: bool = False
    """Whether all rows are there from the start: a batch."""
    state: str = "none"
    """What is persisted."""
    sketch_error: float = STANDARD_ERROR
    """The standard error of its sketch of distinct items; not all of them can be set."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Workloads that it cannot express, with the reason."""
    differs: dict[str, str] = field(default_factory=dict)
    """Workloads whose results differ in kind."""

    @property
    def python(self) -> str:
        """The interpreter of the program."""
        if not self.package:
            return sys.executable
        return str(ENVIRONMENTS / self.name.partition("-")[0] / "bin" / "python")

    @property
    def is_installed(self) -> bool:
        """Whether its environment is there."""
        return Path(self.python).exists()


SYSTEMS = {
    system.name: system
    for system in (
        Peer(
            "streamops",
            "on_spark.py",
            ("streamops",),
            warms_up=True,
            state="checkpoint per micro-batch",
        ),
        Peer(
            "native",
            "on_spark.py",
            ("native",),
            warms_up=True,
            state="checkpoint per micro-batch",
            lacks={
                "sliding": "no window per event on a stream",
                "temporal": "no as-of join of two streams",
                "tables": "no join of two tables that change",
            },
            differs={"corrections": "new values only: no retraction"},
        ),
        Peer(
            "flink",
            "on_flink.py",
            package="apache-flink",
            reads="millis",
            prints=True,
            warms_up=True,
            state="RocksDB, incremental checkpoint every 10 s",
            differs={"distinct": "exact: no approximate count on a stream"},
        ),
        Peer(
            "bytewax",
            "on_bytewax.py",
            package="bytewax",
            divisor=4,
            state="SQLite, snapshot every 10 s",
            lacks={
                "interval": "no join within an interval of time",
                "sliding": "no window per event; its sliding windows hop",
                "temporal": "no as-of join: `join` takes what arrived last",
                "tables": "no join of many rows to one: `join` stores one row per key and side",
                "corrections": "late rows go to a stream of their own; results are not corrected",
            },
            differs={"distinct": "exact: a set per window"},
        ),
        Peer(
            "pathway",
            "on_pathway.py",
            package="pathway",
            divisor=4,
            reads="csv",
            sketch_error=0.05,
            state="input only: state of operators needs a license",
        ),
        Peer("polars", "on_polars.py", package="polars", is_limit=True, sketch_error=0.05),
        Peer("duckdb", "on_duckdb.py", package="duckdb", is_limit=True, sketch_error=0.05),
    )
}
