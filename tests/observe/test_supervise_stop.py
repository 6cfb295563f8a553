"""How a supervised job ends: an exit in a function, a file, a POST; and what `spark-submit` does with signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from streamops import observe
from streamops.environment.java import find_java
from streamops.errors import SpecError
from streamops.observe import health
from streamops.observe.core import supervision
from streamops.sinks import conditions


class Query:
    """A query without Spark that waits for data."""

    lastProgress = None
    recentProgress = ()
    isActive = True

    @property
    def status(self) -> dict[str, Any]:
        return {"message": "Waiting", "isTriggerActive": False, "isDataAvailable": False}

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


def ended(start: Callable[[], Any], **given: Any) -> tuple[int, list[tuple[str, str]]]:
    events: list[tuple[str, str]] = []
    code = observe.supervise(
        {"good": Query, "other": start},
        backoff="10 milliseconds",
        restarts=1,
        on_event=lambda event: events.append((event.member, event.type)),
        **given,
    )
    return code, events


def exits() -> None:
    sys.exit("no configuration")


def waits_in_vain() -> None:
    raise conditions.WAIT_TIMEOUT.error(tokens="kafka:t:0:1", got="offsets")


@pytest.mark.parametrize("port", [0, -1, 65_536, True, "8080"])
def test_a_port_that_does_not_exist_is_refused(port: Any) -> None:
    with pytest.raises(SpecError, match="PARAMETER_"):
        observe.supervise({"good": Query}, port=port)


def test_a_port_of_another_process_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SpecError, match="PARAMETER_OUT_OF_RANGE"):
            observe.supervise({"good": Query}, port=port, host="127.0.0.1")


@pytest.mark.parametrize("start", [exits, waits_in_vain])
def test_a_function_that_ends_its_process_is_reported_and_started_again(start: Any) -> None:
    code, events = ended(start)
    assert code == 1
    assert [type for member, type in events if member == "other"] == ["restarting", "failed"]
    assert ("good", "stopped") in events


def test_a_file_stops_the_job_and_is_removed(tmp_path: Path) -> None:
    for until in (tmp_path / "stop", str(tmp_path / "halt")):
        threading.Timer(0.5, Path(until).touch).start()
        code, events = ended(Query, until=until)
        assert (code, sorted(events)[1::2]) == (0, [("good", "stopped"), ("other", "stopped")])
        assert not Path(until).exists()


@pytest.mark.parametrize("until", ["", 5, True])
def test_what_is_neither_an_event_nor_a_path_is_refused(until: Any) -> None:
    with pytest.raises(SpecError, match="PARAMETER_TYPE"):
        ended(Query, until=until)


def post(port: int, path: str = "/stop", **headers: str) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", method="POST", headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_post_stops_the_job_unless_it_is_of_a_page() -> None:
    stopped = threading.Event()
    port = free_port()
    with health.serve(lambda: supervision.Health(()), stopped.set, "127.0.0.1", port, None):
        assert post(port, Origin="http://evil.example") == 403
        assert post(port, "/live") == 404
        assert not stopped.is_set()
        assert post(port) == 202
        assert stopped.is_set()


JOB = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from streamops import observe

folder, port = Path(sys.argv[1]), int(sys.argv[2])
spark = SparkSession.builder.getOrCreate()

def write(batch, number):
    with (folder / "begun").open("a") as log:
        log.write(f"{number} ")
    time.sleep(1)
    with (folder / "done").open("a") as log:
        log.write(f"{number} ")

def start():
    query = spark.readStream.format("rate").load().writeStream.foreachBatch(write)
    query = query.trigger(processingTime="3 seconds")
    return query.option("checkpointLocation", str(folder / "checkpoint")).start()

def report(event):
    with (folder / "events").open("a") as log:
        log.write(event.type + " ")

code = observe.supervise({"one": start}, port=port, until=folder / "stop", on_event=report)
(folder / "code").write_text(str(code))
sys.exit(code)
"""


def entries(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().split() if file.exists() else []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "post", "signal to all"])
def test_a_job_of_spark_submit_is_stopped_after_its_micro_batch(tmp_path: Path, how: str) -> None:
    (tmp_path / "main.py").write_text(JOB)
    submit, port = Path(str(pyspark.__file__)).parent / "bin" / "spark-submit", free_port()
    command = [str(submit), "--master", "local[1]", str(tmp_path / "main.py"), str(tmp_path)]
    environment = os.environ | {
        "JAVA_HOME": str(find_java(os.environ).home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(
        [*command, str(port)],
        env={k: v for k, v in environment.items() if k != "SPARK_HOME"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 240
        while len(entries(tmp_path, "begun")) < 2:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        if how == "file":
            (tmp_path / "stop").touch()
        elif how == "post":
            assert post(port) == 202
        else:
            os.killpg(process.pid, signal.SIGTERM)
        code = process.wait(120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    events = entries(tmp_path, "events")
    if how == "signal to all":
        # The JVM ends at once, whatever Python does: the micro-batch may be cut.
        assert code != 0
        return
    assert (code, entries(tmp_path, "code"), events) == (0, ["0"], ["started", "stopped"])
    assert entries(tmp_path, "begun") == entries(tmp_path, "done")
