"""The folder of a run, made without Spark: the job's own windows, replayed over the log."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streamops.demo.contents import QUERIES, WINDOWS
from streamops.demo.flights import borders, departures, flights, of_days, write_log
from streamops.demo.job import OPERATORS
from streamops.demo.promises import gather_promises
from streamops.demo.report import Facts, gather, report
from streamops.demo.tables import Run, write_tables
from streamops.kernel.contract import Counts
from streamops.testing import BatchResult, replay

EVERY = 30


@pytest.fixture(scope="session")
def all_flights() -> pd.DataFrame:
    return flights()


@pytest.fixture(scope="session")
def left(all_flights: pd.DataFrame) -> pd.DataFrame:
    return departures(all_flights)


@pytest.fixture(scope="session")
def days(left: pd.DataFrame) -> pd.DataFrame:
    """The day of the storm and the day after it."""
    return of_days(left, 2)


def make_run(
    out: Path,
    rows: pd.DataFrame,
    every: int,
    days: int | None,
    operators: Mapping[str, Any] = OPERATORS,
) -> Run:
    """What the job would leave in the folder."""
    files = write_log(rows, borders(dt.timedelta(minutes=every)), out / "log")
    log = [pq.read_table(path) for path in sorted((out / "log").glob("*.parquet"))]
    watermarks: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for query, about in QUERIES.items():
        batches = [pa.concat_tables(log[n : n + about.files]) for n in range(0, files, about.files)]
        results = {windows: replay(operators[windows], batches) for windows in about.windows}
        # The micro-batch without data that a watermark asks for has nothing for these.
        least = max(map(len, results.values())) - len(batches)
        script = [routed(rows) for rows in batches + [batches[0].slice(0, 0)] * least]
        results |= {name: replay(operators[name], script) for name in about.running}
        for together in zip(*results.values(), strict=True):
            put(out, query, dict(zip(results, together, strict=True)))
        watermarks[query] = results[about.windows[0]][-1].watermark.isoformat()
        for name, ours in results.items():
            told = total(each.counts for each in ours)
            counts[name] = of_running(told) if name in about.running else told
    run = Run(days, every, files, watermarks, counts)
    run.write(out)
    write_tables(out)
    (out / ".streamops-demo").touch()
    return run


def put(out: Path, query: str, results: dict[str, BatchResult]) -> None:
    """Write what a micro-batch of a query put out."""
    for name, kind in (("changes", "table"), ("late", "late")):
        tables = [
            getattr(result, kind).append_column(
                "windows", pa.repeat(windows, len(getattr(result, kind)))
            )
            for windows, result in results.items()
        ]
        if name == "late" and not any(map(len, tables)):
            continue
        number = next(iter(results.values())).batch
        folder = out / name / query / f"batch={number:04d}"
        folder.mkdir(parents=True)
        together = pa.concat_tables(tables, promote_options="default")
        pq.write_table(together, folder / "part.parquet")


def total(counts: Iterable[Counts]) -> dict[str, int]:
    return asdict(sum(counts, Counts()))


def of_running(told: dict[str, int]) -> dict[str, int]:
    """As Spark names them where there are no windows."""
    said = {
        "rows": "rows",
        "ignored": "rejected",
        "results": "results",
        "corrections": "corrections",
    }
    return {name: told[theirs] for name, theirs in said.items()}


def routed(rows: pa.Table) -> pa.Table:
    """As the job does it in Spark."""
    route = pc.binary_join_element_wise(rows["origin"], rows["dest"], "-")
    return rows.append_column("route", route)


def facts_of(out: Path, rows: pd.DataFrame) -> dict[str, Facts]:
    return {windows: gather(out, rows, Run.read(out), windows) for windows in WINDOWS}


def text_of(out: Path, rows: pd.DataFrame) -> str:
    """The report of a run."""
    run = Run.read(out)
    return report(facts_of(out, rows), gather_promises(out, rows, run), run)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory, days: pd.DataFrame) -> Path:
    out = tmp_path_factory.mktemp("demo")
    make_run(out, days, EVERY, 2)
    return out


@pytest.fixture
def out(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a good run, to spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "out"))
