"""`spark-pipelines run` on the example project, and on a project with the most common mistake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamops.environment.java import find_java

pytest.importorskip("grpc")

pytestmark = [pytest.mark.connect, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "pipeline"
WITH_METASTORE = ("--conf", "spark.sql.catalogImplementation=hive")
"""Without it, the next run does not know the tables of this one, but finds their folders."""

INSIDE = """
from pyspark import pipelines as dp
from streamops import aggregates as agg, windows

views = spark.readStream.format("rate").load()

@dp.table
def per_minute():
    return views.transform(
        windows.tumbling("1 minute", time="timestamp", agg={"n": agg.count()}, delay="1 minute")
    )
"""


def copy_project(folder: Path) -> Path:
    """The example project, with its checkpoints below ``folder``."""
    project = folder / "project"
    shutil.copytree(PROJECT, project)
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/streamops-page-views" in text
    spec.write_text(text.replace("file:///tmp/streamops-page-views", f"file://{folder}/storage"))
    return project


def run(project: Path, command: str = "run") -> subprocess.CompletedProcess[str]:
    import pyspark

    environ = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    environ |= {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [Path(pyspark.__file__).parent / "bin" / "spark-pipelines", *WITH_METASTORE, command],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=480,
    )


def table(project: Path, name: str) -> list[tuple[object, ...]]:
    rows = pq.read_table(project / "spark-warehouse" / name).to_pylist()
    return sorted(
        (row["page"], row["window_start"].strftime("%H:%M"), row["views"]) for row in rows
    )


def test_an_operator_inside_of_a_table_function_is_refused_with_the_remedy(tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    (project / "transformations" / "page_views.py").write_text(INSIDE)
    done = run(project, "dry-run")
    assert done.returncode != 0
    printed = done.stdout + done.stderr
    assert "[SESSION_TYPE] windows.tumbling: " in printed
    assert "apply the operator outside of the function" in printed


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example project after one run."""
    project = copy_project(tmp_path_factory.mktemp("pipeline"))
    done = run(project)
    assert done.returncode == 0, done.stdout + done.stderr
    return project


CLOSED = [("cart", "09:00", 1), ("cart", "09:20", 2), ("home", "09:00", 2), ("home", "09:20", 1)]


def test_windows_go_to_a_pipeline_table_and_a_materialized_view(project: Path) -> None:
    assert set(CLOSED) <= set(table(project, "views_per_page"))
    assert {("cart", "09:20", 2), ("home", "09:00", 2)} <= set(table(project, "busiest_windows"))


def test_the_next_run_continues_with_the_state_and_the_new_files(project: Path) -> None:
    assert table(project, "views_per_page") == CLOSED
    instants = ("2026-01-05T10:31:00Z", "2026-01-05T12:00:00Z")
    more = "\n".join(f'{{"page": "home", "ts": "{instant}"}}' for instant in instants)
    (project / "input" / "more.json").write_text(more)
    done = run(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert table(project, "views_per_page") == [*CLOSED, ("home", "10:20", 2)]
