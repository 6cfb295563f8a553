from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights.__main__ import main
from examples.flights.contents import OUTPUTS, QUERIES
from examples.flights.tables import Run, changes
from tests.examples.flights.conftest import make_run

ROOT = Path(__file__).parents[3]


@pytest.mark.spark
@pytest.mark.slow
def test_the_command_runs_verifies_itself_and_finds_a_planted_fault(
    tmp_path: Path, logs: dict[str, pd.DataFrame]
) -> None:
    out = tmp_path / "out"
    arguments = ["--out", str(out), "--days", "2", "--every", "60"]
    ran = subprocess.run(
        [sys.executable, "-m", "examples.flights", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\nVERIFIED" in ran.stdout
    assert (out / "picture.png").stat().st_size > 10_000
    run = Run.read(out)
    for query in QUERIES.values():
        batches = -(-run.files // query.files)
        lines = [line for line in ran.stdout.splitlines() if f"/{batches} " in line]
        assert len(lines) >= batches  # one each, and one without rows at the end

    # Spark and the replay of the same log say the same, to the last count.
    replayed = make_run(tmp_path / "replayed", logs, 60, 2)
    assert run == replayed
    for name in OUTPUTS:
        assert table_of(out, name).equals(table_of(tmp_path / "replayed", name)), name
        assert len(changes(out, name)) == len(changes(tmp_path / "replayed", name))
    assert table_of(out, "airline_years").equals(table_of(tmp_path / "replayed", "airline_years"))

    path = out / "table" / "windows=busiest_routes" / "part.parquet"
    good = pq.read_table(path, partitioning=None)
    (spoilt,) = good.to_pylist()
    del spoilt["routes"]["items"][0]
    pq.write_table(pa.Table.from_pylist([spoilt], good.schema), path)
    assert main(["--check", "--out", str(out)]) == 1
    pq.write_table(good, path)

    path = out / "table" / "windows=duty" / "part.parquet"
    good = pq.read_table(path, partitioning=None)
    pq.write_table(good.slice(1), path)
    assert main(["--check", "--out", str(out)]) == 1
    pq.write_table(good, path)
    assert main(["--check", "--out", str(out)]) == 0

    path = out / "table" / "windows=three_hours" / "part.parquet"
    off = pq.read_table(path, partitioning=None).to_pandas()
    off.loc[3, "departures"] -= 1
    pq.write_table(pa.Table.from_pandas(off, preserve_index=False), path)
    assert main(["--check", "--out", str(out)]) == 1


def table_of(out: Path, name: str) -> pa.Table:
    """A final table, its values as they are: also in structs and lists."""
    table = pq.read_table(out / "table" / f"windows={name}" / "part.parquet", partitioning=None)
    return pa.Table.from_pylist(table.to_pylist())
