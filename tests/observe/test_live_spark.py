"""The live view, the history and the exporters of running queries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import observe
from streamops.testing import micro_batches
from tests.observe.record import PER_TEN_SECONDS, SCHEMA, SCRIPT, observed
from tests.observe.recorded import SECRET, assert_no_values
from tests.servers.prometheus import Prometheus

pytestmark = pytest.mark.spark

LIVE = SCRIPT[4:8]  # the third has late rows


def start(spark: SparkSession, folder: Path) -> Any:
    frame = micro_batches(spark, LIVE, schema=SCHEMA, directory=folder, source="files")
    return (
        observed(frame)
        .transform(PER_TEN_SECONDS)
        .writeStream.format("noop")
        .queryName("live")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


@contextmanager
def listening(spark: SparkSession, *listeners: Any) -> Iterator[None]:
    for listener in listeners:
        spark.streams.addListener(listener)
    try:
        yield
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
            listener.close()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait: a listener is called some time after the micro-batch."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_running_query_is_watched_until_it_ends(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = start(spark, tmp_path)
    watched = observe.watch(query, refresh="200 milliseconds", display="terminal")
    displayed = capsys.readouterr().out
    assert "query live: ended, micro-batch 4" in displayed
    assert re.search(r"late rows +2\b", displayed)
    assert re.search(r"side output +2 rows", displayed)
    assert_no_values(displayed)
    history = observe.history(query)
    assert history.batches["batch"].tolist() == watched.batches["batch"].tolist() == [*range(5)]
    assert watched.batches["late"].sum() == 2
    assert watched.operators["side_output"].sum() == 2
    assert len(history.plot()) == 4


def test_a_query_that_fails_is_displayed_without_the_message(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = micro_batches(spark, SCRIPT[6:7], schema=SCHEMA, directory=tmp_path, source="files")
    numbers = frame.select(F.col("device").cast("int"))
    query = numbers.writeStream.format("noop").queryName("failing")
    failing = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    observe.watch(failing, refresh="200 milliseconds", timeout="1 minute", display="terminal")
    assert SECRET in str(failing.exception())
    displayed = capsys.readouterr().out
    assert "failed (StreamingQueryException; query.exception() has the message)" in displayed
    assert_no_values(displayed)


@pytest.mark.prometheus
def test_the_metrics_of_a_query_are_exported(
    spark: SparkSession, tmp_path: Path, prometheus: Callable[[CollectorRegistry], Prometheus]
) -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    listeners = (
        observe.PrometheusListener(registry),
        observe.OpenTelemetryListener(provider.get_meter("streamops")),
    )
    server = prometheus(registry)
    (tmp_path / "query").mkdir()
    with listening(spark, *listeners):
        assert start(spark, tmp_path / "query").awaitTermination(240)
        wait_for(lambda: b'active{query="live"} 0.0' in generate_latest(registry))
        (rows,) = server.wait_for('streamops_input_rows_total{query="live"} == 12')
        assert rows["metric"]["job"] == "streamops"
        late = 'streamops_operator_too_late_total{query="live", operator="tumbling"} == 1'
        assert server.wait_for(late)
        assert_no_values(generate_latest(registry).decode())
        data = reader.get_metrics_data()
        assert data is not None
        assert '"streamops.operator.too_late"' in data.to_json()
        assert_no_values(data.to_json())
    assert generate_latest(registry) == b""
    provider.shutdown()


CONNECT = """
import contextlib, io, json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from prometheus_client import CollectorRegistry, generate_latest
from streamops import observe
from streamops.testing import micro_batches
from tests.observe.record import PER_TEN_SECONDS, SCHEMA, SCRIPT, observed

spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
spark.conf.set(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)
registry = CollectorRegistry()
listener = observe.PrometheusListener(registry)
spark.streams.addListener(listener)
folder = Path(sys.argv[1])
frame = micro_batches(spark, SCRIPT[4:8], schema=SCHEMA, directory=folder, source="files")
query = (
    observed(frame).transform(PER_TEN_SECONDS).writeStream.format("noop").queryName("live")
    .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
)
displayed = io.StringIO()
with contextlib.redirect_stdout(displayed):
    history = observe.watch(query, refresh="200 milliseconds", display="terminal")
import time
end = time.monotonic() + 30
while b'active{query="live"} 0.0' not in generate_latest(registry) and time.monotonic() < end:
    time.sleep(0.1)
print(json.dumps({
    "displayed": displayed.getvalue(),
    "late": int(history.batches["late"].sum()),
    "rows": int(observe.history(query).batches["rows"].sum()),
    "metrics": generate_latest(registry).decode(),
}))
spark.streams.removeListener(listener)
spark.stop()
"""


@pytest.mark.connect
def test_a_query_of_spark_connect_is_watched_and_exported(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert "query live: ended" in found["displayed"]
    assert (found["late"], found["rows"]) == (2, 12)
    assert (
        'streamops_operator_too_late_total{operator="tumbling",query="live"} 1.0'
        in found["metrics"]
    )
    assert 'streamops_query_active{query="live"} 0.0' in found["metrics"]
    assert_no_values(found["displayed"])
    assert_no_values(found["metrics"])
