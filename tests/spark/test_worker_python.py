"""A local session whose workers run another Python is refused while the plan is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamops.environment.java import find_java
from streamops.spark.identity import _missing_in

OF_ANOTHER_PYTHON = """
from pyspark.sql import SparkSession
from streamops import aggregates as agg, windows

spark = SparkSession.builder.master("local[1]").getOrCreate()
counts = windows.running(by="k", agg={"n": agg.count()})
try:
    spark.sql("SELECT 1 AS k").transform(counts)
except Exception as error:
    print(error)
spark.stop()
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without packages."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


def test_a_python_without_the_packages_is_found(bare: str, tmp_path: Path) -> None:
    assert "No module named" in _missing_in(bare)
    assert _missing_in(sys.executable) == ""
    assert _missing_in("no-such-python") == "no-such-python, which is not on PATH"
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    assert _missing_in(str(wrapper)) == ""


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_with_another_python_is_refused(bare: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", OF_ANOTHER_PYTHON],
        env=os.environ | {"PYSPARK_PYTHON": bare, "JAVA_HOME": str(find_java(os.environ).home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "[PACKAGE_MISSING] windows.running: the workers of this session" in found.stdout
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in found.stdout
