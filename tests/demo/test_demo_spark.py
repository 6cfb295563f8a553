from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamops.demo.__main__ import main
from streamops.demo.contents import QUERIES, WINDOWS
from streamops.demo.tables import Run, changes, read_table
from tests.demo.conftest import make_run

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.slow
def test_the_command_runs_verifies_itself_and_finds_a_planted_fault(
    tmp_path: Path, days: pd.DataFrame
) -> None:
    out = tmp_path / "out"
    words = ["--out", str(out), "--days", "2", "--every", "60"]
    ran = subprocess.run(
        [sys.executable, "-m", "streamops.demo", *words],
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
    replayed = make_run(tmp_path / "replayed", days, 60, 2)
    assert run == replayed
    for windows in WINDOWS:
        table = read_table(out, windows)
        pd.testing.assert_frame_equal(table, read_table(tmp_path / "replayed", windows))
        assert len(changes(out, windows)) == len(changes(tmp_path / "replayed", windows))

    path = out / "table" / "windows=three_hours" / "part.parquet"
    spoilt = pq.read_table(path, partitioning=None).to_pandas()
    spoilt.loc[3, "departures"] -= 1
    pq.write_table(pa.Table.from_pandas(spoilt, preserve_index=False), path)
    assert main(["--check", "--out", str(out)]) == 1
