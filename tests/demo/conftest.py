"""The folder of a run, made without Spark: the job's own windows, replayed over the log."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamops.demo.flights import borders, departures, flights, of_days, write_log
from streamops.demo.job import HOURLY, THREE_HOURS
from streamops.demo.tables import Run, write_tables
from streamops.kernel.contract import Counts
from streamops.testing import replay

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


def make_run(out: Path, rows: pd.DataFrame, every: int, days: int | None) -> Run:
    """What the job would leave in the folder."""
    batches = write_log(rows, borders(dt.timedelta(minutes=every)), out / "log")
    log = [pq.read_table(path) for path in sorted((out / "log").glob("*.parquet"))]
    results = {each.options.name: replay(each, log) for each in (HOURLY, THREE_HOURS)}
    for together in zip(*results.values(), strict=True):
        for name, kind in (("changes", "table"), ("late", "late")):
            tables = [
                getattr(result, kind).append_column("windows", pa.repeat(windows, len(table)))
                for windows, result in zip(results, together, strict=True)
                for table in [getattr(result, kind)]
            ]
            folder = out / name / f"batch={together[0].batch:04d}"
            folder.mkdir(parents=True)
            pq.write_table(pa.concat_tables(tables), folder / "part.parquet")
    run = Run(
        days,
        every,
        batches,
        results["hourly"][-1].watermark.isoformat(),
        {windows: total(batch.counts for batch in each) for windows, each in results.items()},
    )
    run.write(out)
    write_tables(out)
    (out / ".streamops-demo").touch()
    return run


def total(counts: Iterable[Counts]) -> dict[str, int]:
    return asdict(sum(counts, Counts()))


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory, days: pd.DataFrame) -> Path:
    out = tmp_path_factory.mktemp("demo")
    make_run(out, days, EVERY, 2)
    return out


@pytest.fixture
def out(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a good run, to spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "out"))
