"""The health of a job, over HTTP for Kubernetes and as metrics for Prometheus."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from streamops.kernel.parameters import require_package
from streamops.observe import conditions
from streamops.observe.core.supervision import Health, Member

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_GAUGES: dict[str, tuple[str, Callable[[Member], bool]]] = {
    "running": ("1 while the query is running.", lambda member: member.status == "running"),
    "failed": ("1 if the query has failed for good.", lambda member: member.status == "failed"),
    "stuck": ("1 while the query makes no progress.", lambda member: member.is_stuck),
    "behind": ("1 while the query falls behind its sources.", lambda member: member.is_behind),
}


def _prometheus(module: str) -> Any:
    return require_package(module, package="prometheus-client", extra="prometheus")


@contextmanager
def exported(health: Callable[[], Health], registry: CollectorRegistry) -> Iterator[None]:
    """Export the state of the members to Prometheus."""
    collector = _Collector(health)
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)


class _Collector:
    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health
        self._core = _prometheus("prometheus_client.core")

    def collect(self) -> Iterator[Any]:
        """The metrics, as `prometheus_client` requests them."""
        members = self._health().members
        for name, (description, read) in _GAUGES.items():
            gauge = self._core.GaugeMetricFamily(
                f"streamops_supervised_{name}", description, labels=["query"]
            )
            for member in members:
                gauge.add_metric([member.name], float(read(member)))
            yield gauge
        restarts = self._core.CounterMetricFamily(
            "streamops_supervised_restarts", "Restarts of the query.", labels=["query"]
        )
        for member in members:
            restarts.add_metric([member.name], float(member.restarts))
        yield restarts


@contextmanager
def serve(
    health: Callable[[], Health],
    stop: Callable[[], None],
    host: str,
    port: int,
    registry: CollectorRegistry | None,
) -> Iterator[None]:
    """Serve ``/live``, ``/ready`` and ``/metrics``, and stop the job on a POST to ``/stop``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            current = health()
            if self.path in {"/live", "/ready"}:
                is_well = current.is_live if self.path == "/live" else current.is_ready
                text = json.dumps(current.to_dict()).encode()
                self._answer(200 if is_well else 503, "application/json", text)
            elif self.path == "/metrics" and registry is not None:
                client = _prometheus("prometheus_client")
                self._answer(200, client.CONTENT_TYPE_LATEST, client.generate_latest(registry))
            else:
                self._answer(404, "text/plain", b"/live, /ready, and /metrics with a registry")

        def do_POST(self) -> None:
            if self.path != "/stop":
                self._answer(404, "text/plain", b"/stop")
            elif self.headers.get("Origin") or self.headers.get("Sec-Fetch-Site"):
                self._answer(403, "text/plain", b"not from a page in a browser")
            else:
                stop()
                self._answer(202, "text/plain", b"the job stops after its micro-batches")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: a probe comes every few seconds."""

    try:
        listening = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise conditions.NOT_A_PORT.error(got=f"{host}:{port}: {error}") from None
    with listening as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
