"""The local session: what it sets, and what it leaves alone."""

from __future__ import annotations

import doctest
import os
import sys
import warnings
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamops
from streamops.environment import session, settings
from streamops.environment.session import SessionDiffersWarning
from streamops.environment.settings import (
    PARTITIONS,
    PROVIDER,
    ROCKSDB,
    Difference,
    differences,
    local_settings,
)
from streamops.kernel.errors import RequirementError, SpecError


class FakeSession:
    """A session that is nothing but its configuration."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.conf = self

    def get(self, key: str) -> str:
        return self.settings[key]


def test_the_settings_are_those_that_stateful_streaming_needs() -> None:
    wanted = local_settings()
    assert wanted["spark.master"] == "local[2,4]"
    assert wanted["spark.sql.session.timeZone"] == "UTC"
    assert wanted["spark.sql.shuffle.partitions"] == "2"
    assert wanted["spark.ui.enabled"] == "false"
    assert wanted[PROVIDER] == ROCKSDB


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_has_a_progress_bar(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: is_terminal and descriptor == 2)
    wanted = local_settings()
    assert wanted["spark.ui.showConsoleProgress"] == str(is_terminal).lower()
    # It changes no result, so a session with another one is as good.
    other = FakeSession(wanted | {"spark.ui.showConsoleProgress": "other"})
    assert differences(other, wanted) == []


def test_without_stderr_there_is_no_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: int) -> bool:
        raise OSError("bad file descriptor")

    monkeypatch.setattr(os, "isatty", closed)
    assert local_settings()["spark.ui.showConsoleProgress"] == "false"


def test_the_number_of_partitions_may_differ_from_that_of_cores() -> None:
    assert local_settings(cores=4)[PARTITIONS] == "4"
    assert local_settings(cores=4, shuffle_partitions=1)[PARTITIONS] == "1"


def test_the_users_own_settings_win() -> None:
    wanted = local_settings(memory="2g", conf={"spark.driver.memory": "3g", "spark.x": "y"})
    assert wanted["spark.driver.memory"] == "3g"
    assert wanted["spark.x"] == "y"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"cores": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"shuffle_partitions": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"shuffle_partitions": -1}, "PARAMETER_OUT_OF_RANGE"),
        ({"cores": "2"}, "PARAMETER_OUT_OF_RANGE"),
        ({"cores": 2.0}, "PARAMETER_OUT_OF_RANGE"),
        ({"shuffle_partitions": True}, "PARAMETER_OUT_OF_RANGE"),
    ],
)
def test_what_is_not_a_whole_number_above_zero_is_refused(wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))) as refused:
        streamops.local_session(**wrong)
    assert refused.value.code == code


def test_the_examples_in_the_docstrings_are_true() -> None:
    outcome = doctest.testmod(settings)
    assert (outcome.attempted, outcome.failed) == (2, 0)


def test_a_session_as_asked_for_has_no_differences() -> None:
    assert differences(FakeSession(local_settings()), local_settings()) == []


def test_each_difference_names_what_was_found_and_what_was_wanted() -> None:
    running = local_settings() | {PARTITIONS: "200"}
    del running["spark.ui.enabled"]
    assert differences(FakeSession(running), local_settings()) == [
        Difference(PARTITIONS, "200", "2"),
        Difference("spark.ui.enabled", None, "false"),
    ]


def test_the_name_of_the_application_is_no_difference() -> None:
    assert differences(FakeSession(local_settings(app_name="a")), local_settings()) == []


def test_a_rocksdb_of_another_vendor_is_no_difference() -> None:
    running = FakeSession(local_settings() | {PROVIDER: "com.vendor.RocksDBStateStoreProvider"})
    assert differences(running, local_settings()) == []
    running = FakeSession(local_settings() | {PROVIDER: "HDFSBackedStateStoreProvider"})
    assert [difference.key for difference in differences(running, local_settings())] == [PROVIDER]


def test_where_the_environment_asks_for_a_remote_session_a_local_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_running_session", lambda: None)
    monkeypatch.setenv("SPARK_REMOTE", "sc://example:15002")
    with pytest.raises(RequirementError, match="sc://example:15002") as refused:
        streamops.local_session()
    assert refused.value.code == "SESSION_TYPE"


def test_a_running_session_is_returned_unchanged_with_a_warning_of_its_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = FakeSession(local_settings())
    monkeypatch.setattr(session, "_running_session", lambda: running)
    with pytest.warns(SessionDiffersWarning, match=r"partitions: 2 \(requested: 7\)") as warned:
        assert streamops.local_session(shuffle_partitions=7) is running
    assert warned[0].filename == __file__  # it points at the caller
    assert running.settings == local_settings()


def test_a_running_session_as_asked_for_is_returned_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = FakeSession(local_settings(cores=3))
    monkeypatch.setattr(session, "_running_session", lambda: running)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert streamops.local_session(cores=3) is running


@pytest.mark.spark
def test_a_second_call_changes_nothing_in_a_real_session(spark: SparkSession) -> None:
    before = {key: settings.effective(spark, key) for key in local_settings()}
    with pytest.warns(SessionDiffersWarning, match="requested: 7"):
        again = streamops.local_session(shuffle_partitions=7, timezone="Asia/Tokyo")
    assert again is spark
    assert {key: settings.effective(spark, key) for key in before} == before


@pytest.mark.spark
def test_workers_run_the_interpreter_of_the_driver(spark: SparkSession) -> None:
    def interpreter(batches: Any) -> Any:
        import sys

        import pyarrow as pa

        for _ in batches:
            yield pa.record_batch({"program": [sys.executable]})

    rows = spark.range(1).mapInArrow(interpreter, "program string").collect()
    assert os.path.dirname(rows[0].program) == os.path.dirname(sys.executable)


@pytest.mark.spark
def test_an_error_of_a_plan_is_raised_and_not_also_logged(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        spark.range(1).selectExpr("ghost")
    assert "UNRESOLVED_COLUMN" not in capfd.readouterr().err
