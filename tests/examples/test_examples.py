"""Every example is short, prints what examples/README.md shows, and its data is always the same."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import data
from examples.feed import OPENING, at, deliver
from tests.servers.installed import skip
from tests.servers.mariadb import program as mariadb
from tests.servers.opensearch import program as opensearch
from tests.servers.postgres import programs
from tests.servers.redis import program as redis

ROOT = Path(__file__).parents[2]
README = ROOT / "examples" / "README.md"
NOT_A_JOB = {"__init__", "data", "feed", "shop"}
JOBS = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.py")
    if path.stem not in NOT_A_JOB and not path.stem.startswith("test_")
)
OUTPUT = re.compile(
    r"^    python -m examples\.(\w+)\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def outputs() -> dict[str, str]:
    """What README.md shows for each example."""
    return dict(OUTPUT.findall(README.read_text()))


def without_margin(text: str) -> list[str]:
    """The lines that are not empty, without spaces at their ends."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_there_are_nine_jobs_and_the_readme_shows_the_output_of_all() -> None:
    assert len(JOBS) == 9
    assert sorted(outputs()) == JOBS


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_at_most_80_lines_and_a_file_of_tests(name: str) -> None:
    folder = ROOT / "examples"
    assert len((folder / f"{name}.py").read_text().splitlines()) <= 80
    assert (folder / f"test_{name}.py").exists()


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_named_and_has_a_checkpoint_a_delay_and_a_sink(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert f'queryName("{name}")' in text
    assert '"checkpointLocation"' in text
    assert "sinks." in text


@pytest.mark.parametrize("name", data.__all__)
def test_the_data_is_the_same_in_every_run(name: str) -> None:
    generate = getattr(data, name)
    assert generate() == generate()


def test_rows_are_delivered_out_of_order_late_and_twice() -> None:
    rows = [{"n": n, "sent": at(8, n / 10)} for n in range(1_000)]
    batches = deliver(rows, "sent")
    arrived = [row["n"] for batch in batches for row in batch]
    assert set(arrived) == set(range(1_000))
    assert 1_000 < len(arrived) < 1_050
    assert arrived != sorted(arrived)
    late = [
        row
        for n, batch in enumerate(batches)
        for row in batch
        if (row["sent"] - OPENING).seconds // 7_200 < n
    ]
    assert 20 < len(late) < 80


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_a_job_prints_what_the_readme_shows(
    name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "cdc_mirror" and programs() is None:
        skip("PostgreSQL is not installed: apt-get install -y postgresql")
    if name == "systems_in_sync" and None in (opensearch(), redis(), mariadb(), programs()):
        skip("OpenSearch, Redis, MariaDB or PostgreSQL is not installed")
    import_module(f"examples.{name}").main(spark, tmp_path)
    assert without_margin(capsys.readouterr().out) == without_margin(outputs()[name])


@pytest.mark.slow
def test_a_job_runs_on_the_command_line_and_continues_in_its_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.unique_visitors", str(tmp_path)]
    for _ in range(2):  # the second run finds nothing new, and its sink the same rows
        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )
        assert run.returncode == 0, run.stderr
        assert without_margin(run.stdout) == without_margin(outputs()["unique_visitors"])
