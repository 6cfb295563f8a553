from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


def test_the_session_is_small_and_quiet(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_plugin_imports_no_pyspark() -> None:
    code = "import sys, streamops.testing.plugin; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_project_can_add_settings_and_the_session_ends_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import pytest
import streamops.environment.session as module

class Session:
    stopped = False
    def stop(self):
        Session.stopped = True

@pytest.fixture(scope="session")
def spark_conf():
    return {"spark.driver.memory": "2g"}

@pytest.fixture(scope="session", autouse=True)
def after():
    settings = {}
    module.local_session = lambda **arguments: settings.update(arguments) or Session()
    yield settings
    assert not Session.stopped  # set up before the session, so torn down after it

def test_it(spark, after):
    assert isinstance(spark, Session)
    assert after["conf"] == {"spark.driver.memory": "2g"}
    assert (after["cores"], after["shuffle_partitions"]) == (2, 2)
""".replace("assert not Session.stopped", "assert Session.stopped"),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if "streamops" not in pytest_plugins_installed():
        command += ["-p", "streamops.testing.plugin"]
    finished = subprocess.run(
        [*command, str(tmp_path)], check=False, capture_output=True, text=True, cwd=Path.cwd()
    )
    assert finished.returncode == 0, finished.stdout
    assert "1 passed" in finished.stdout


def pytest_plugins_installed() -> set[str]:
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group="pytest11")}


@pytest.fixture(autouse=True)
def _checkout_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
