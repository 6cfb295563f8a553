"""Metrics of Prometheus and OpenTelemetry, from progress that Spark reported. No Spark, no server."""

from __future__ import annotations

import doctest
import json
import re
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import StreamingQueryProgress

from streamops import observe
from streamops.errors import RequirementError, SpecError
from streamops.observe import exporters
from tests.observe.recorded import QUERIES, assert_no_values, recorded

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def play(listener: Any, *queries: str, times: int = 1) -> None:
    """Pass recorded progress to a listener."""
    for query in queries * times:
        for progress in recorded(query):
            event = SimpleNamespace(progress=StreamingQueryProgress.fromJson(progress))
            listener.onQueryProgress(event)


def end(listener: Any, query: str) -> None:
    listener.onQueryTerminated(SimpleNamespace(runId=uuid.UUID(recorded(query)[0]["runId"])))


def samples(registry: CollectorRegistry) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def labels(**names: str) -> frozenset[tuple[str, str]]:
    return frozenset(names.items())


VIEWS = labels(query="views")
TUMBLING = labels(query="views", operator="tumbling")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_prometheus_has_counters_and_gauges(registry: CollectorRegistry) -> None:
    listener = observe.PrometheusListener(registry)
    assert generate_latest(registry) == b""
    play(listener, *QUERIES)
    found = samples(registry)
    assert found["streamops_micro_batches_total", VIEWS] == 12
    assert found["streamops_input_rows_total", VIEWS] == 30
    assert found["streamops_operator_stragglers_total", TUMBLING] == 1
    assert found["streamops_watermark_timestamp_seconds", VIEWS] == 1_704_067_290
    dedupe = labels(query="clocks", operator="stateOperators[0] (dedupeWithinWatermark)")
    assert found["streamops_operator_dropped_total", dedupe] == 2
    text = generate_latest(registry).decode()
    assert "# TYPE streamops_operator_state_size_bytes gauge" in text
    assert "# TYPE streamops_input_rows_total counter" in text


def test_no_value_of_a_row_is_exported_to_prometheus(registry: CollectorRegistry) -> None:
    play(observe.PrometheusListener(registry), *QUERIES)
    assert_no_values(generate_latest(registry).decode())


def test_labels_are_the_query_the_operator_and_the_phase(registry: CollectorRegistry) -> None:
    listener = observe.PrometheusListener(registry)
    play(listener, *QUERIES)
    once = samples(registry)
    assert {name for _, found in once for name, _ in found} == {"query", "operator", "phase"}
    play(listener, *QUERIES, times=3)
    assert samples(registry).keys() == once.keys()  # no series per run or micro-batch
    assert len(once) < 100


def test_a_query_that_has_ended_stays_until_its_room_is_needed(registry: CollectorRegistry) -> None:
    listener = observe.PrometheusListener(registry, max_queries=1)
    listener.onQueryStarted(SimpleNamespace())
    listener.onQueryIdle(SimpleNamespace())
    play(listener, "views")
    end(listener, "views")
    assert samples(registry)["streamops_query_active", VIEWS] == 0
    assert samples(registry)["streamops_micro_batches_total", VIEWS] == 12
    play(listener, "clocks")
    assert {dict(found)["query"] for _, found in samples(registry)} == {"clocks"}


def test_a_listener_that_is_closed_exports_nothing(registry: CollectorRegistry) -> None:
    listener = observe.PrometheusListener(registry)
    play(listener, "views")
    listener.close()
    assert generate_latest(registry) == b""
    observe.PrometheusListener(registry).close()


def test_the_default_registry_is_that_of_the_client() -> None:
    listener = observe.PrometheusListener()
    try:
        play(listener, "views")
        assert REGISTRY.get_sample_value("streamops_input_rows_total", {"query": "views"}) == 30
        with pytest.raises(ValueError, match="Duplicated"):
            observe.PrometheusListener()
    finally:
        listener.close()


def test_a_progress_that_cannot_be_parsed_is_logged_and_skipped(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    listener = observe.PrometheusListener(registry)
    listener.onQueryProgress(SimpleNamespace(progress=None))
    assert "a micro-batch could not be exported" in caplog.text
    play(listener, "views")
    assert samples(registry)["streamops_micro_batches_total", VIEWS] == 12


def points(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {metric.name: metric for scope in scopes for metric in scope.metrics}


@pytest.fixture
def meters() -> Iterator[tuple[InMemoryMetricReader, Any]]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    yield reader, provider.get_meter("streamops")
    provider.shutdown()


def test_opentelemetry_has_names_units_and_attributes(meters: Any) -> None:
    reader, meter = meters
    listener = observe.OpenTelemetryListener(meter)
    assert points(reader) == {}
    play(listener, "views")
    found = points(reader)
    late = found["streamops.operator.too_late"]
    assert (late.unit, late.data.is_monotonic) == ("{row}", True)
    (point,) = late.data.data_points
    assert (point.value, dict(point.attributes)) == (1, {"query": "views", "operator": "tumbling"})
    size = found["streamops.operator.state.size"]
    assert (size.unit, len(size.data.data_points)) == ("By", 2)
    assert found["streamops.watermark.delay"].unit == "s"
    assert_no_values(" ".join(metric.to_json() for metric in found.values()))
    listener.close()
    assert points(reader) == {}


def test_opentelemetry_and_prometheus_export_the_same(registry: CollectorRegistry) -> None:
    before = {*REGISTRY._collector_to_names}
    reader = PrometheusMetricReader()  # of the default registry
    provider = MeterProvider([reader])
    try:
        play(observe.OpenTelemetryListener(provider.get_meter("streamops")), *QUERIES)
        play(observe.PrometheusListener(registry), *QUERIES)
        wanted = samples(registry)
        exported = samples(REGISTRY)
        scope = re.compile("otel_scope_.*")
        found = {
            (name, frozenset((key, value) for key, value in of if not scope.match(key))): value
            for (name, of), value in exported.items()
            if name.startswith("streamops_")
        }
        assert found == wanted
        assert len(wanted) > 50
    finally:
        provider.shutdown()
        for collector in {*REGISTRY._collector_to_names} - before:
            REGISTRY.unregister(collector)


@pytest.mark.parametrize("number", [0, -1, True, 1.0, None], ids=repr)
@pytest.mark.parametrize("listener", ["PrometheusListener", "OpenTelemetryListener"])
def test_a_limit_below_one_is_refused(listener: str, number: Any) -> None:
    with pytest.raises(SpecError) as caught:
        getattr(observe, listener)(max_queries=number)
    assert (caught.value.code, caught.value.where) == (
        "PARAMETER_OUT_OF_RANGE",
        f"observe.{listener}",
    )


@pytest.mark.parametrize(
    ("call", "module", "extra"),
    [
        (observe.PrometheusListener, "prometheus_client", "prometheus"),
        (observe.OpenTelemetryListener, "opentelemetry.metrics", "opentelemetry"),
        (lambda: observe.history([]).plot(), "matplotlib.figure", "watch"),
    ],
    ids=["prometheus", "opentelemetry", "watch"],
)
def test_a_package_that_is_missing_is_named(
    call: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(RequirementError, match=re.escape(f"pip install 'streamops[{extra}]'")):
        call()


def test_every_metric_of_the_dashboard_is_exported() -> None:
    from streamops.observe.core.instruments import INSTRUMENTS

    dashboard = json.loads(observe.grafana_dashboard())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    text = json.dumps(dashboard)
    used = {*re.findall(r"streamops_\w+", text)}
    assert used <= {instrument.prometheus_name for instrument in INSTRUMENTS}
    fixed = {i.prometheus_name for i in INSTRUMENTS if not i.name.startswith("streamops.operator")}
    assert fixed <= used


def test_docstring_examples_run() -> None:
    outcome = doctest.testmod(exporters)
    assert (outcome.attempted > 1, outcome.failed) == (True, 0)
