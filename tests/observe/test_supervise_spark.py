"""Queries as one job, and queries that are stopped after a micro-batch, on Spark."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from streamops import observe, sinks
from streamops.testing import micro_batches
from tests.kafka.broker import free_port
from tests.observe import supervised

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
WITHIN = 10.0  # seconds: what docs/observe.md promises


class Log(list[tuple[float, observe.SupervisionEvent]]):
    """Events, and when they were reported."""

    def __call__(self, event: observe.SupervisionEvent) -> None:
        self.append((time.monotonic(), event))

    def of(self, member: str, *types: str) -> list[tuple[float, observe.SupervisionEvent]]:
        return [(at, event) for at, event in self if event.member == member and event.type in types]


def rate(
    spark: SparkSession, folder: Path, write: Callable[[Any, int], None], **trigger: Any
) -> Callable[[], Any]:
    """A function that starts a query over a few rows per second."""

    def start() -> Any:
        source = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
        how = trigger or {"processingTime": "0 seconds"}
        query = source.writeStream.foreachBatch(write).trigger(**how)
        return query.option("checkpointLocation", str(folder)).start()

    return start


def unfinished(checkpoint: Path) -> set[str]:
    """Micro-batches that were begun, and not committed."""
    offsets, commits = (
        {file.name for file in (checkpoint / name).iterdir() if file.name.isdigit()}
        for name in ("offsets", "commits")
    )
    return offsets - commits


def request(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.smoke
def test_a_job_restarts_a_query_and_ends_with_the_last_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    failures, log, port, answers = [1], Log(), free_port(), {}

    def write(batch: Any, number: int) -> None:
        if failures:
            failures.pop()
            raise OSError("secret")
        answers.update(
            {path: request(port, path) for path in ("/live", "/ready", "/metrics", "/x")}
        )

    frame = micro_batches(spark, [[{"v": 1}]], directory=tmp_path, source="files")

    def start() -> Any:
        query = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
        return query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    job = {"views": start}
    registry = CollectorRegistry()
    code = observe.supervise(
        job, backoff="100 milliseconds", on_event=log, port=port, registry=registry
    )
    assert [e.type for _, e in log] == ["started", "restarting", "started", "ended"]
    assert "secret" not in str(log)
    assert "secret" in str(log[1][1].exception)
    assert code == 0
    assert {path: status for path, (status, _) in answers.items()} == {
        "/live": 200,
        "/ready": 200,
        "/metrics": 200,
        "/x": 404,
    }
    assert json.loads(answers["/ready"][1])["views"]["restarts"] == 1
    assert 'streamops_supervised_restarts_total{query="views"} 1.0' in answers["/metrics"][1]
    assert list(registry.collect()) == []
    with pytest.raises(OSError, match="refused"):
        request(port, "/live")


def test_a_query_with_a_wrong_plan_ends_the_job_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Log()

    def wrong() -> Any:
        return spark.readStream.format("rate").load().select("nothing")

    def nothing(batch: Any, number: int) -> None:
        batch.select("nothing").count()

    good = rate(spark, tmp_path / "good", lambda batch, number: None)
    assert observe.supervise({"good": good, "wrong": wrong}, on_event=log) == 1
    assert log.of("good", "stopped")
    assert log.of("wrong", "failed")
    assert not log.of("wrong", "restarting")
    later = {"later": rate(spark, tmp_path / "later", nothing)}
    assert observe.supervise(later, on_event=log) == 1
    assert log.of("later", "failed")
    assert not log.of("later", "restarting")


@pytest.mark.slow
def test_each_of_20_queries_is_reported_within_10_seconds(
    spark: SparkSession, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Failures, ends and hangs at random: what happened, and when it was reported."""
    draw, log, port = random.Random(7), Log(), free_port()
    happened: dict[str, list[float]] = {}
    release, done = threading.Event(), threading.Event()

    def behave(name: str, how: str, batch_at: int) -> Callable[[Any, int], None]:
        def write(batch: Any, number: int) -> None:
            if number < batch_at:
                return
            if how == "hang" and not release.is_set():
                happened.setdefault(name, []).append(time.monotonic())
                release.wait(240)
            if how == "fail" or (how == "fail_once" and name not in happened):
                happened.setdefault(name, []).append(time.monotonic())
                raise OSError("planted")
            if how == "end":
                happened[name] = [time.monotonic()]

        return write

    plan = ["fine"] * 5 + ["fail"] * 3 + ["fail_once"] * 4 + ["end"] * 4 + ["hang"] * 4
    job = {}
    for index, how in enumerate(plan):
        name = f"{how}{index}"
        trigger: dict[str, Any] = {"processingTime": "1 second"}
        at = draw.randrange(1, 4)
        if how == "end":
            trigger, at = {"availableNow": True}, 0
        job[name] = rate(spark, tmp_path / name, behave(name, how, at), **trigger)

    def watch() -> None:
        """Release what hangs when all of it was reported, and then end the job."""
        end = time.monotonic() + 300
        hanging = [name for name in job if name.startswith("hang")]
        failing = [name for name in job if name[:-1].rstrip("1") == "fail" or "fail" in name]
        while time.monotonic() < end and not (
            all(name in happened and log.of(name, "stuck") for name in hanging)
            and all(log.of(name, "restarting", "failed") for name in failing)
        ):
            time.sleep(0.2)
        answers.append(request(port, "/live")[0])
        release.set()
        while time.monotonic() < end and not all(log.of(name, "recovered") for name in hanging):
            time.sleep(0.2)
        done.set()

    answers: list[int] = []
    watcher = threading.Thread(target=watch)
    watcher.start()
    code = observe.supervise(
        job,
        restarts=1,
        stuck_after="20 seconds",
        when_failed="continue",
        on_event=log,
        port=port,
        until=done,
    )
    watcher.join()
    assert code == 1
    assert answers == [503]
    delays = {}
    for name, times in happened.items():
        how = name.rstrip("0123456789")
        types = {"hang": ["stuck"], "end": ["ended"]}.get(how, ["restarting", "failed"])
        # A query may also be stuck while 20 queries start on two cores.
        reported = [at for at, _ in log.of(name, *types) if at >= times[0]]
        due = 20.0 if how == "hang" else 0.0
        assert len(reported) >= len(times)
        for begun, at in zip(times, reported, strict=False):
            delays[name] = max(delays.get(name, 0.0), at - begun - due)
    assert {name.rstrip("0123456789") for name in delays} == {"fail", "fail_once", "end", "hang"}
    record_property("worst delay", max(delays.values()))
    print(f"worst of {len(delays)} delays: {max(delays.values()):.2f} s")
    assert max(delays.values()) <= WITHIN, delays
    assert all(log.of(name, "stopped", "interrupted") for name in job if name.startswith("fine"))
    assert all(
        len(log.of(name, "failed")) == 1 for name in job if name.rstrip("0123456789") == "fail"
    )


@pytest.mark.smoke
def test_a_query_is_stopped_after_its_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    calls, ends, begun = [], [], threading.Event()

    def write(batch: Any, number: int) -> None:
        calls.append(number)
        begun.set()
        time.sleep(1)
        ends.append(number)

    frame = micro_batches(spark, [[{"v": 1}], [{"v": 2}]], directory=tmp_path, source="files")
    # The second micro-batch is due at midnight: when the first one takes longer than the interval
    # of a trigger, the next one follows at once, and may be interrupted.
    writer = frame.writeStream.foreachBatch(write).trigger(processingTime="1 day")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert begun.wait(120)
    assert observe.stop_after_batch(query)
    assert not query.isActive
    assert query.exception() is None
    assert calls == ends == [0]
    assert unfinished(tmp_path / "checkpoint") == set()
    assert observe.stop_after_batch(query)


def test_a_query_is_interrupted_after_the_timeout(spark: SparkSession, tmp_path: Path) -> None:
    begun, release = threading.Event(), threading.Event()

    def write(batch: Any, number: int) -> None:
        begun.set()
        release.wait(3)
        batch.count()

    query = rate(spark, tmp_path, write)()
    assert begun.wait(120)
    assert not observe.stop_after_batch(query, timeout="100 milliseconds")
    assert not query.isActive
    assert unfinished(tmp_path)


def run_job(folder: Path, trigger: str) -> subprocess.Popen[str]:
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable]
    return subprocess.Popen(
        [*command, "-m", "tests.observe.supervised", str(folder), trigger],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_terminated_loses_nothing_and_computes_nothing_twice(
    spark: SparkSession, tmp_path: Path, number: signal.Signals
) -> None:
    supervised.write_inputs(spark, tmp_path)
    folders = [tmp_path / name for name in supervised.NAMES]
    job = run_job(tmp_path, "4 seconds")  # so that there is time between two micro-batches
    end = time.monotonic() + 240
    while not all(len(lines(folder)) >= 3 for folder in folders):
        assert time.monotonic() < end
        assert job.poll() is None, job.communicate()[1][-3_000:]
        time.sleep(0.05)
    job.send_signal(number)
    output, errors = job.communicate(timeout=120)
    assert job.returncode == 0, errors[-3_000:]
    assert all(f"query {name} stopped" in output for name in supervised.NAMES), output
    assert all(len(lines(folder)) < supervised.BATCHES for folder in folders)
    again = run_job(tmp_path, "availableNow")
    output, errors = again.communicate(timeout=400)
    assert again.returncode == 0, errors[-3_000:]
    script = [row for batch in range(supervised.BATCHES) for row in supervised.rows(batch)]
    frame = spark.createDataFrame(script).transform(supervised.PER_TEN_SECONDS)
    expected = sorted(map(tuple, frame.where("window_end < '2024-01-01 02:00:00'").collect()))
    for folder in folders:
        assert lines(folder) == sorted(set(lines(folder)))
        rows = sinks.read_parquet(str(folder / "output"), spark=spark).select(*frame.columns)
        assert sorted(map(tuple, rows.collect())) == expected
    assert len(expected) > 20


def lines(folder: Path) -> list[int]:
    """The micro-batches that the sink was called with, in order."""
    calls = folder / "calls"
    return list(map(int, calls.read_text().split())) if calls.exists() else []


CONNECT = """
import json, sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession
from streamops import observe

folder = Path(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").getOrCreate()
def start(name):
    def run():
        frame = spark.readStream.format("rate").load()
        if name == "bad":
            frame = frame.selectExpr("assert_true(value < 3)")
        query = frame.writeStream.format("noop").trigger(processingTime="1 second")
        return query.option("checkpointLocation", str(folder / name)).start()
    return run
done, log = threading.Event(), []
def on_event(event):
    log.append((event.member, event.type))
    if (event.member, event.type) == ("bad", "failed"):
        done.set()
code = observe.supervise(
    {"good": start("good"), "bad": start("bad"), "wrong": lambda: spark.readStream.format("rate").load().select("x").writeStream.format("noop").start()},
    restarts=1, when_failed="continue", until=done, on_event=on_event,
)
print(json.dumps({"code": code, "log": log}))
spark.stop()
"""


@pytest.mark.connect
@pytest.mark.slow
def test_a_job_runs_on_spark_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    log = [tuple(event) for event in found["log"]]
    assert found["code"] == 1
    assert [type_ for name, type_ in log if name == "bad"] == [
        "started",
        "restarting",
        "started",
        "failed",
    ]
    assert ("good", "stopped") in log
    assert [type_ for name, type_ in log if name == "wrong"] == ["failed"]
    assert unfinished(tmp_path / "good") == set()
