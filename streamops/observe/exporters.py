"""Listeners that export the progress of queries to Prometheus and OpenTelemetry."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streamops.kernel.errors import located
from streamops.kernel.parameters import require_package
from streamops.observe import conditions
from streamops.observe.core.instruments import INSTRUMENTS, LABELS, Instrument, Sample
from streamops.observe.core.progress import Totals
from streamops.observe.kafka import KafkaRetention, require_retention
from streamops.observe.progress import read_progress

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_LOG = logging.getLogger("streamops.observe")


class _Exporter(StreamingQueryListener):
    """Collects the totals of the queries of a session."""

    def __init__(self, max_queries: int, retention: KafkaRetention | None) -> None:
        if type(max_queries) is not int or max_queries < 1:
            raise conditions.QUERIES_OUT_OF_RANGE.error(got=repr(max_queries))
        require_retention(retention)
        self._totals = Totals(max_queries)
        self._retention = retention
        self._lock = threading.Lock()  # Spark calls in one thread, the exporter in another one

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add a micro-batch."""
        # An error here would be logged by the JVM only; on Connect, it would end all listeners.
        try:
            progress = read_progress(event.progress)
            if self._retention is not None:
                progress = self._retention.look_up(progress)
            with self._lock:
                self._totals.add(progress)
        except Exception:
            _LOG.exception("a micro-batch could not be exported, and is skipped")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there are no rows."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that the query has ended. Its series stay, until others take their room."""
        with self._lock:
            self._totals.end(str(event.runId))

    def _samples(self, instrument: Instrument) -> list[Sample]:
        with self._lock:
            return [*instrument.samples(self._totals)]

    @abstractmethod
    def close(self) -> None:
        """Stop exporting."""


class PrometheusListener(_Exporter):
    """Exports the progress of all queries of a session to Prometheus.

    The metrics are registered with `prometheus_client`, which serves them: by
    ``start_http_server``, by a web framework, or by a push gateway. Their names begin with
    ``streamops_``, and their labels are ``query``, the name of the query or its id, ``operator`` and
    ``phase``. No values of rows are exported.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        Where the metrics are registered. Default: ``prometheus_client.REGISTRY``.
    max_queries : int, default 100
        The greatest number of queries. Beyond it, the query without progress for the longest time is
        removed, one that has ended first.
    retention : KafkaRetention, optional
        Also export when a query loses data of its Kafka topics.

    Raises
    ------
    RequirementError
        ``PACKAGE_MISSING``: prometheus-client is not installed.
    SpecError
        ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> import prometheus_client
    >>> spark.streams.addListener(observe.PrometheusListener())
    >>> prometheus_client.start_http_server(9464)

    Notes
    -----
    Counters begin when the listener is added to the session. A micro-batch that is repeated after a
    failure is counted again. On Spark Connect the listener runs in the client.

    See Also
    --------
    grafana_dashboard : a dashboard of these metrics.
    """

    @located("observe.PrometheusListener")
    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        max_queries: int = 100,
        retention: KafkaRetention | None = None,
    ) -> None:
        super().__init__(max_queries, retention)
        client = _prometheus("prometheus_client")
        self._core = _prometheus("prometheus_client.core")
        self._registry = client.REGISTRY if registry is None else registry
        self._registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """The metrics without samples: Prometheus need not collect them to learn their names."""
        return [self._family(instrument, ()) for instrument in INSTRUMENTS]

    def collect(self) -> Iterator[Metric]:
        """The metrics that have samples, as `prometheus_client` requests them."""
        for instrument in INSTRUMENTS:
            samples = self._samples(instrument)
            if samples:
                yield self._family(instrument, samples)

    def close(self) -> None:
        """Remove the metrics from the registry."""
        self._registry.unregister(self)

    def _family(self, instrument: Instrument, samples: Iterable[Sample]) -> Any:
        samples = list(samples)
        names = [name for name in LABELS if samples and name in samples[0][0]]
        types = {
            "counter": self._core.CounterMetricFamily,
            "gauge": self._core.GaugeMetricFamily,
        }
        family = types[instrument.type](
            instrument.prometheus_name, instrument.description, labels=names
        )
        for labels, value in samples:
            family.add_metric([labels[name] for name in names], value)
        return family


class OpenTelemetryListener(_Exporter):
    """Exports the progress of all queries of a session as metrics of OpenTelemetry.

    The metrics are observable instruments of a meter: the reader that you configured, such as a
    ``PeriodicExportingMetricReader`` with an OTLP exporter, collects them. Their names begin with
    ``streamops.``, and their attributes are ``query``, ``operator`` and ``phase``. Exported to
    Prometheus, they have the names of `PrometheusListener`. No values of rows are exported.

    Parameters
    ----------
    meter : Meter, optional
        The meter. Default: that of the name ``streamops`` of the global meter provider.
    max_queries, retention : int, default 100; KafkaRetention, optional
        As in `PrometheusListener`.

    Raises
    ------
    RequirementError
        ``PACKAGE_MISSING``: opentelemetry-api is not installed.
    SpecError
        ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> from opentelemetry import metrics
    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> metrics.set_meter_provider(MeterProvider([reader]))
    >>> spark.streams.addListener(observe.OpenTelemetryListener())

    Notes
    -----
    As in `PrometheusListener`.
    """

    @located("observe.OpenTelemetryListener")
    def __init__(
        self,
        meter: Meter | None = None,
        *,
        max_queries: int = 100,
        retention: KafkaRetention | None = None,
    ) -> None:
        super().__init__(max_queries, retention)
        self._metrics = require_package(
            "opentelemetry.metrics",
            package="opentelemetry-sdk",
            extra="opentelemetry",
        )
        self._is_closed = False
        used = self._metrics.get_meter("streamops") if meter is None else meter
        create = {
            "counter": used.create_observable_counter,
            "gauge": used.create_observable_gauge,
        }
        for instrument in INSTRUMENTS:
            create[instrument.type](
                instrument.name,
                callbacks=[self._callback(instrument)],
                unit=instrument.unit,
                description=instrument.description,
            )

    def close(self) -> None:
        """Report nothing from now on: OpenTelemetry cannot remove instruments."""
        self._is_closed = True

    def _callback(self, instrument: Instrument) -> Callable[[Any], list[Any]]:
        def observe(_: Any) -> list[Any]:
            if self._is_closed:
                return []
            return [
                self._metrics.Observation(value, dict(labels))
                for labels, value in self._samples(instrument)
            ]

        return observe


def grafana_dashboard() -> str:
    """A dashboard for Grafana, of the metrics that `PrometheusListener` exports.

    Returns
    -------
    str
        JSON to import in Grafana (Dashboards, New, Import). It has variables for the data source and
        the query.

    Examples
    --------
    >>> import json
    >>> json.loads(grafana_dashboard())["title"]
    'streamops'
    """
    return files("streamops.observe").joinpath("grafana.json").read_text(encoding="utf-8")


@located("observe.PrometheusListener")
def _prometheus(module: str) -> Any:
    return require_package(
        module,
        package="prometheus-client",
        extra="prometheus",
    )
