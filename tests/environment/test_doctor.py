"""What the doctor looks at, what it finds and what it advises."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamops
from streamops import __main__ as command_line
from streamops.environment import doctor, smoke_query
from streamops.environment.doctor import Finding, diagnose, examine, run_smoke_query
from streamops.environment.extras import Extra
from streamops.environment.java import Java
from streamops.environment.requirements import REQUIRED, numbers, requirement
from streamops.environment.settings import MASTER, PARTITIONS, PROVIDER, TIMEZONE, local_settings
from streamops.kernel.errors import RequirementError
from streamops.kernel.versions import has_transform

ROOT = Path(__file__).parents[2]
HERE = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}


class FakeSession:
    """A session that is nothing but its version and its configuration."""

    def __init__(self, settings: dict[str, str], version: str = "4.3.0") -> None:
        self.settings = settings
        self.version = version
        self.conf = self

    def get(self, key: str) -> str:
        return self.settings[key]


def named(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


def diagnosis(name: str, settings: dict[str, str], environ: dict[str, str] = HERE) -> Finding:
    return named(diagnose(FakeSession(local_settings() | settings), environ), name)


def fake_python(folder: Path, text: str) -> dict[str, str]:
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return {"PATH": str(folder)}


# --- the environment


@pytest.mark.skipif(not has_transform(), reason="of Spark 4")
def test_an_environment_as_it_should_be_has_no_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", lambda environ: Java(Path("/java"), 17, "PATH"))
    findings = examine(HERE)
    assert [finding for finding in findings if not finding.ok] == []
    names = ["streamops", "platform", "Python", "Java", *REQUIRED, "state API", "Python workers"]
    assert [of.name for of in findings if not of.name.startswith("extra")] == names


def test_the_bounds_are_those_of_the_package_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = [*project["dependencies"], project["optional-dependencies"]["spark"][0]]
    assert sorted(packages) == sorted(map(requirement, REQUIRED))


def test_a_missing_java_comes_with_the_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(environ: dict[str, str]) -> Java:
        raise RequirementError("X", "no Java", where="", got="Java 8", expected="", fix="get one")

    monkeypatch.setattr(doctor, "find_java", find_none)
    assert named(examine(HERE), "Java") == Finding("Java", False, "Java 8", "get one")


@pytest.mark.parametrize(
    ("package", "version", "verdict"),
    [
        ("pyspark", "3.4.4", "too old"),
        ("pyspark", "3.5.0", ""),
        ("pyspark", "4.10.0", ""),
        ("pyspark", "5.0.0.dev1", "too new"),
        ("pandas", "1.5.2", "too old"),
        ("pandas", "3.0.0rc1", "too new"),
        ("pyarrow", "13.0.0", "too old"),
        ("pyarrow", "14.0.1", ""),
        ("numpy", "2.4.6", ""),
    ],
)
def test_a_version_is_held_against_its_bounds(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str, verdict: str
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    found = doctor._package(package)
    assert found.ok == (verdict == "")
    assert verdict in found.found
    assert found.remedy == ("" if found.ok else f'pip install "{requirement(package)}"')


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("6.33.5", (6, 33, 5)),
        ("5rc1", (5,)),
        ("5.0.0.dev1", (5, 0, 0)),
        ("4.3.0+vendor.2", (4, 3, 0)),
        ("unknown", ()),
    ],
)
def test_a_version_is_compared_by_its_release(version: str, release: tuple[int, ...]) -> None:
    assert numbers(version) == release


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing)
    found = doctor._package("pandas")
    assert found == Finding("pandas", False, "not installed", 'pip install "pandas>=1.5.3,<3"')


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Start neither Java nor a worker."""
    monkeypatch.setattr(doctor, "_java", lambda environ: Finding("Java", True, ""))
    monkeypatch.setattr(doctor, "_worker", lambda environ: Finding("Python workers", True, ""))
    return monkeypatch


def test_a_missing_pyspark_is_reported_with_its_extra(quick: pytest.MonkeyPatch) -> None:
    quick.setitem(sys.modules, "pyspark", None)
    findings = examine(HERE)
    remedy = 'pip install "streamops[spark]"'
    assert named(findings, "pyspark") == Finding("pyspark", False, "cannot be imported", remedy)
    assert "state API" not in [finding.name for finding in findings]


def test_on_a_platform_no_second_pyspark_is_advised(quick: pytest.MonkeyPatch) -> None:
    quick.setitem(sys.modules, "pyspark", None)
    found = named(examine(HERE | {"GLUE_VERSION": "5.0"}), "pyspark")
    assert not found.ok
    assert "pip install" not in found.remedy


def test_a_pyspark_that_pip_does_not_know_is_found(quick: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    quick.setattr(metadata, "version", nothing)
    assert named(examine(HERE), "pyspark").ok


def test_a_platform_is_named_and_has_its_own_spark(quick: pytest.MonkeyPatch) -> None:
    findings = examine(HERE | {"DATABRICKS_RUNTIME_VERSION": "15.4"})
    assert named(findings, "platform").found == "Databricks Runtime 15.4"
    names = {finding.name for finding in findings}
    assert {"Java", "Python workers", "extra delta"} <= names
    assert not {"extra spark", "extra connect", "extra java"} & names


def test_where_spark_runs_elsewhere_java_and_workers_are_not_examined() -> None:
    findings = examine(HERE | {"DATABRICKS_RUNTIME_VERSION": "client.4.9"})
    assert named(findings, "platform").found == "Databricks serverless 4.9"
    assert not {"Java", "Python workers"} & {finding.name for finding in findings}
    limits = [finding for finding in findings if finding.name == "not there"]
    assert "availableNow" in limits[0].remedy
    assert all(finding.ok for finding in limits)


@pytest.mark.skipif(not has_transform(), reason="of Spark 4")
def test_what_a_version_of_spark_lacks_is_listed_with_the_version_that_has_it(
    quick: pytest.MonkeyPatch,
) -> None:
    assert "not there" not in [finding.name for finding in examine(HERE)]
    quick.setattr(doctor, "has_arrow_functions", lambda: False)
    assert "erasure.shred" in named(examine(HERE), "not there").found
    quick.setattr(doctor, "has_transform", lambda: False)
    missing = [finding for finding in examine(HERE) if finding.name == "not there"]
    assert ["Spark 4.0" in of.remedy for of in missing] == [True, False]
    assert "sources.outbox" in missing[0].found


def test_an_extra_whose_package_is_too_old_is_a_hint(quick: pytest.MonkeyPatch) -> None:
    old = Extra("delta", {"deltalake": "1.1.4"}, True, ["deltalake>=1.6.6"])
    none = Extra("redis", {"redis": ""}, False, [])
    quick.setattr(doctor, "extras", lambda with_spark: [old, none])
    findings = examine(HERE)
    assert named(findings, "extra delta") == Finding(
        "extra delta",
        True,
        "deltalake 1.1.4 is too old or too new",
        'pip install "deltalake>=1.6.6"',
    )
    assert named(findings, "extras not there").found == "redis"


def test_a_sink_that_needs_a_later_pyarrow_is_not_there(quick: pytest.MonkeyPatch) -> None:
    complete = Extra("delta", {"deltalake": "1.6.6"}, True, [])
    quick.setattr(doctor, "extras", lambda with_spark: [complete])
    quick.setattr(doctor, "has_views", lambda: False)
    found = [of for of in examine(HERE) if "PyArrow 16" in of.found]
    assert [of.name for of in found] == ["not there"]


def test_workers_that_lack_a_package_are_found_out(tmp_path: Path) -> None:
    text = "echo 'Traceback' >&2; echo \"No module named 'pandas'\" >&2; exit 1"
    environ = fake_python(tmp_path, text) | {"PYSPARK_PYTHON": "python3"}
    found = named(examine(environ), "Python workers")
    assert not found.ok
    assert "PYSPARK_PYTHON=python3 cannot import" in found.found
    assert "No module named 'pandas'" in found.found
    assert found.remedy == f"export PYSPARK_PYTHON={sys.executable}"


def test_workers_of_another_python_are_found_out(tmp_path: Path) -> None:
    environ = fake_python(tmp_path, "echo 3.8") | {"PYSPARK_PYTHON": "python3"}
    found = named(examine(environ), "Python workers")
    assert not found.ok
    assert "is Python 3.8" in found.found


def test_another_python_on_the_path_is_a_hint_that_a_local_session_does_not_need(
    tmp_path: Path,
) -> None:
    found = named(examine(fake_python(tmp_path, "echo 3.8")), "Python workers")
    assert found.ok
    assert "python3 on PATH (PYSPARK_PYTHON is not set) is Python 3.8" in found.found
    assert found.remedy.startswith(f"export PYSPARK_PYTHON={sys.executable} for your own sessions")


def test_a_workers_interpreter_that_does_not_exist_is_found_out() -> None:
    environ = HERE | {"PYSPARK_PYTHON": "/no/such/python"}
    found = named(examine(environ), "Python workers")
    assert not found.ok
    assert "PYSPARK_PYTHON=/no/such/python does not exist" in found.found


# --- a running session


def test_the_librarys_own_local_session_has_no_problems() -> None:
    findings = diagnose(FakeSession(local_settings()), HERE)
    assert [finding for finding in findings if not finding.ok] == []
    assert [finding.name for finding in findings] == [
        "Spark",
        "state store",
        "time zone",
        "shuffle partitions",
        "retries",
        "worker interpreter",
    ]


def test_a_spark_that_is_too_old_is_found_out() -> None:
    found = named(diagnose(FakeSession(local_settings(), version="3.4.4"), HERE), "Spark")
    assert (found.ok, found.found) == (False, "3.4.4 is too old")


def test_a_setting_that_a_platform_hides_is_reported_as_not_set() -> None:
    found = named(diagnose(FakeSession({}), HERE), "state store")
    assert (found.ok, found.found) == (True, "not set: one stateful operator per query")


@pytest.mark.parametrize("provider", ["", "org.x.HDFSBackedStateStoreProvider"])
def test_another_state_store_than_rocksdb_comes_with_the_setting_for_chains(provider: str) -> None:
    found = diagnosis("state store", {PROVIDER: provider})
    assert found.ok
    assert found.found.endswith(": one stateful operator per query")
    assert "RocksDBStateStoreProvider" in found.remedy
    assert found.remedy.endswith("to chain operators")


def test_a_local_time_zone_is_a_problem() -> None:
    assert not diagnosis("time zone", {TIMEZONE: "Europe/Berlin"}).ok


@pytest.mark.parametrize(
    ("master", "partitions", "ok"),
    [
        ("local[2,4]", "8", True),
        ("local[2,4]", "9", False),
        ("local[8,4]", "32", True),
        ("local[8,4]", "200", False),
        ("local[*,4]", "200", (os.cpu_count() or 1) >= 50),
        ("local", "200", False),
    ],
)
def test_far_more_partitions_than_cores_are_a_problem(
    master: str, partitions: str, ok: bool
) -> None:
    settings = {MASTER: master, PARTITIONS: partitions}
    assert diagnosis("shuffle partitions", settings).ok == ok


@pytest.mark.parametrize(
    ("master", "ok"),
    [("local", False), ("local[2]", False), ("local[*]", False), ("local[2,1]", False)],
)
def test_a_local_master_without_retries_is_a_problem(master: str, ok: bool) -> None:
    found = diagnosis("retries", {MASTER: master})
    assert found.ok == ok
    assert ",4]" in found.remedy


def test_partitions_and_retries_of_a_cluster_are_not_checked() -> None:
    settings = local_settings() | {MASTER: "spark://host:7077", PARTITIONS: "200"}
    findings = diagnose(FakeSession(settings), {})
    assert [finding.name for finding in findings] == ["Spark", "state store", "time zone"]


def test_workers_on_another_interpreter_are_a_problem(tmp_path: Path) -> None:
    assert not diagnosis("worker interpreter", {}, {"PYSPARK_PYTHON": "/usr/bin/env"}).ok
    assert not diagnosis("worker interpreter", {}, fake_python(tmp_path, "")).ok
    assert not diagnosis("worker interpreter", {}, {"PATH": ""}).ok


def test_the_first_python_on_the_path_may_be_the_right_one() -> None:
    folder = os.path.dirname(sys.executable)
    assert diagnosis("worker interpreter", {}, {"PATH": folder}).ok


def test_the_interpreter_of_a_remote_server_is_not_checked() -> None:
    environ = {"SPARK_CONNECT_MODE_ENABLED": "1"}
    findings = diagnose(FakeSession(local_settings()), environ)
    assert "worker interpreter" not in [finding.name for finding in findings]
    assert not diagnosis("worker interpreter", {}, environ | {"SPARK_LOCAL_REMOTE": "1"}).ok


# --- the proof


def test_a_stateful_query_that_fails_is_reported_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(spark: Any) -> dict[int, int]:
        message = "STORE_BACKEND_NOT_SUPPORTED\nand a stack"
        raise RuntimeError(message)

    monkeypatch.setattr(smoke_query, "count_in_state", fail)
    found = run_smoke_query(FakeSession({}))
    assert (found.ok, found.found) == (False, "RuntimeError: STORE_BACKEND_NOT_SUPPORTED")


def test_a_stateful_query_that_counts_wrongly_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke_query, "count_in_state", lambda spark: {0: 10, 1: 5})
    assert not run_smoke_query(FakeSession({})).ok


@pytest.mark.spark
def test_a_running_session_is_diagnosed_and_runs_the_smoke_query(spark: SparkSession) -> None:
    assert {finding.name: finding.ok for finding in diagnose(spark)} == {
        "Spark": True,
        "state store": True,
        "time zone": True,
        "shuffle partitions": True,
        "retries": True,
        "worker interpreter": True,
    }
    assert run_smoke_query(spark).ok


CONNECT = """
from pyspark.sql import SparkSession
from streamops.environment.doctor import diagnose
spark = SparkSession.builder.remote("local[2]").getOrCreate()
for finding in diagnose(spark):
    print(finding.name, finding.ok)
spark.stop()
"""


@pytest.mark.connect
@pytest.mark.slow
def test_a_connect_session_is_diagnosed_as_a_classic_one_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONNECT],
        env=os.environ | HERE | {"TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "Spark True",
        "state store True",
        "time zone True",
        "shuffle partitions False",
        "retries False",
        "worker interpreter True",
    ], done.stderr


# --- the command


def test_the_command_prints_a_line_a_finding_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "examine", lambda: [Finding("Java", True, "17")])
    assert command_line.main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok      Java                17",
        "all is well",
    ]


def test_the_command_prints_the_remedy_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "examine", lambda: [Finding("Java", False, "8", "upgrade")])
    assert command_line.main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "PROBLEM Java                8",
        "                            remedy: upgrade",
    ]


def test_the_command_prints_a_hint_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "examine", lambda: [Finding("Java", True, "8", "upgrade")])
    assert command_line.main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "hint    Java                8",
        "                            remedy: upgrade",
        "all is well",
    ]


def test_a_session_that_does_not_start_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from streamops.environment import session

    def refuse(**settings: Any) -> SparkSession:
        raise RequirementError("NO", "no Java", where="w", got="g", expected="e", fix="f")

    monkeypatch.setattr(command_line, "examine", list)
    monkeypatch.setattr(session, "local_session", refuse)
    assert command_line.main(["doctor", "--session"]) == 1
    assert "PROBLEM session             [NO] w: no Java" in capsys.readouterr().out


def test_a_command_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main([])
    assert "doctor" in capsys.readouterr().err


def test_the_command_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"streamops {streamops.__version__}\n"
