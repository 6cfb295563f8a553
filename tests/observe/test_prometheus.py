"""A real Prometheus scrapes the metrics, and answers every expression of the dashboard and the docs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamops import observe
from streamops.observe.core.instruments import INSTRUMENTS
from tests.observe.recorded import QUERIES, assert_no_values
from tests.observe.test_exporters import play
from tests.servers.prometheus import Prometheus

DOCS = Path(__file__).parents[2] / "docs" / "observe.md"

pytestmark = pytest.mark.prometheus

Scrape = Callable[[CollectorRegistry], Prometheus]

# Of other sources than those of the recorded queries, or not measured there.
WITHOUT_SAMPLES = {
    *("streamops_consumer_lag", "streamops_consumer_data_loss_timestamp_seconds"),
    "streamops_lateness_seconds",
}


def expressions() -> list[str]:
    """The expressions of the dashboard, with its variables as Grafana fills them in."""
    panels = json.loads(observe.grafana_dashboard())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [e.replace("$query", ".*").replace("$__rate_interval", "1m") for e in found]


def documented() -> list[str]:
    """The expressions of the alerts in the documentation."""
    (rules,) = re.findall(r"```yaml\n(groups:.*?)```", DOCS.read_text(), re.DOTALL)
    return [line.partition("expr: ")[2] for line in rules.splitlines() if "expr: " in line]


@pytest.mark.smoke
def test_prometheus_stores_all_samples_and_answers_the_dashboard(prometheus: Scrape) -> None:
    registry = CollectorRegistry()
    listener = observe.PrometheusListener(registry)
    play(listener, *QUERIES)
    server = prometheus(registry)
    (rows,) = server.wait_for('streamops_input_rows_total{query="views"}')
    assert rows["value"][1] == "30"
    play(listener, *QUERIES)  # counters increase
    server.wait_for('streamops_input_rows_total{query="views"} == 60')
    server.wait_for('rate(streamops_input_rows_total{query="views"}[1m]) > 0')
    assert len(expressions()) > 20
    for expression in expressions():
        if any(name in expression for name in WITHOUT_SAMPLES):
            assert not server.query(expression), expression
        else:
            server.wait_for(
                expression
            )  # samples end for a moment if a busy machine misses a scrape
    stored = server.wait_for('{__name__=~"streamops_.*"}')
    assert_no_values(json.dumps(stored))
    names = {sample["metric"]["__name__"] for sample in stored}
    assert {"streamops_query_active", "streamops_operator_too_late_total"} <= names
    assert {key for sample in stored for key in sample["metric"]} == {
        *("__name__", "instance", "job"),
        *("query", "operator", "phase"),
    }


def test_prometheus_has_the_type_and_the_description_of_each_metric(prometheus: Scrape) -> None:
    registry = CollectorRegistry()
    play(observe.PrometheusListener(registry), *QUERIES)
    server = prometheus(registry)
    server.wait_for("streamops_query_active")
    known = server.metadata()
    # Of a counter, Prometheus has the metadata under the name without the suffix.
    described = {
        i.prometheus_name.removesuffix("_total"): (i.type, i.description) for i in INSTRUMENTS
    }
    found = {name: (of[0]["type"], of[0]["help"]) for name, of in known.items()}
    streamops = {name: of for name, of in found.items() if name.startswith("streamops_")}
    assert len(streamops) > 20
    assert streamops.items() <= described.items()


def test_alerts_of_the_documentation_are_expressions(prometheus: Scrape) -> None:
    registry = CollectorRegistry()
    listener = observe.PrometheusListener(registry)
    play(listener, "views")
    server = prometheus(registry)
    server.wait_for("streamops_query_active")
    play(listener, "views")
    assert len(documented()) >= 4
    for expression in documented():
        server.query(expression)
    # The recorded query reads rows of 2024, so its watermark is far behind the clock.
    (behind,) = (e for e in documented() if "streamops_watermark_timestamp_seconds" in e)
    server.wait_for(behind)
