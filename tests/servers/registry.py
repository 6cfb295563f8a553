"""A schema registry for the tests: what Confluent's client asks for, over HTTP, in this process.

    with running() as registry:
        registry.url
        number = registry.register("views-value", schema, format="AVRO")
        registry.stop()   # an outage
        registry.start()  # on the same port, with the same schemas

It keeps schemas as they are sent, and checks no compatibility. A schema has one id in all subjects.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Registry:
    """Subjects with their versions, and schemas by their ids.

    Parameters
    ----------
    user, password : str, optional
        What clients must send as basic authentication.
    status : int, optional
        Answer all requests with this status, as a registry that cannot be reached does.
    answer : bytes, optional
        Answer all requests with these bytes.
    delay : float
        Seconds before each answer.
    requests : list of str
        Method and path of each request.
    """

    user: str | None = None
    password: str | None = None
    status: int | None = None
    answer: bytes | None = None
    delay: float = 0.0
    requests: list[str] = field(default_factory=list)
    port: int = 0
    _ids: dict[str, int] = field(default_factory=dict)
    _subjects: dict[str, list[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Listen, on the port of the last time."""
        handler = type("_Bound", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections, also those that clients have kept."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @property
    def is_stopped(self) -> bool:
        """Whether nobody listens."""
        return self._server is None

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """Confluent's client, which keeps what it has read: a context manager."""
        from confluent_kafka.schema_registry import SchemaRegistryClient

        login = {"basic.auth.user.info": f"{self.user}:{self.password}"} if self.user else {}
        return SchemaRegistryClient({"url": self.url, **login})

    def register(
        self, subject: str, schema: str, *, format: str, references: Sequence[dict[str, Any]] = ()
    ) -> int:
        """Register a schema, and return its id."""
        body = {"schema": schema, "schemaType": format, "references": list(references)}
        return int(self._register(subject, body)["id"])

    def handle(self, method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        """The status and the answer to a request."""
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "POST", ["subjects", subject, "versions"]:
                return 200, self._register(subject, body)
            case "POST", ["subjects", subject]:
                number = self._ids.get(_canonical(body))
                if number not in self._subjects.get(subject, ()):
                    return 404, _error(40403)
                return 200, self._described(subject, self._subjects[subject].index(number) + 1)
            case "GET", ["subjects"]:
                return 200, sorted(self._subjects)
            case "GET", ["subjects", subject, "versions"] if subject in self._subjects:
                return 200, list(range(1, len(self._subjects[subject]) + 1))
            case "GET", ["subjects", subject, "versions", version] if subject in self._subjects:
                count = len(self._subjects[subject])
                number = count if version == "latest" else int(version)
                if not 0 < number <= count:
                    return 404, _error(40402)
                return 200, self._described(subject, number)
            case "GET", ["subjects", *_]:
                return 404, _error(40401)
            case "GET", ["schemas", "ids", number]:
                found = self._schema(int(number))
                return (200, found) if found else (404, _error(40403))
        return 404, {"message": "no such path"}

    def _register(self, subject: str, body: Any) -> dict[str, Any]:
        with self._lock:
            number = self._ids.setdefault(_canonical(body), len(self._ids) + 1)
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return self._described(subject, versions.index(number) + 1)

    def _described(self, subject: str, version: int) -> dict[str, Any]:
        number = self._subjects[subject][version - 1]
        return {"subject": subject, "version": version, "id": number, **self._schema(number)}

    def _schema(self, number: int) -> dict[str, Any]:
        if not 0 < number <= len(self._ids):
            return {}
        schema: dict[str, Any] = json.loads(list(self._ids)[number - 1])
        if schema["schemaType"] == "AVRO":
            del schema["schemaType"]  # as the servers of Confluent do
        return schema

    def is_allowed(self, header: str | None) -> bool:
        """Whether a request has the user and the password."""
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return self.user is None or header == f"Basic {login}"


def _canonical(body: Any) -> str:
    stored = {
        "schema": body["schema"],
        "schemaType": body.get("schemaType") or "AVRO",
        "references": body.get("references") or [],
    }
    return json.dumps(stored)


def _error(code: int) -> dict[str, Any]:
    return {"error_code": code, "message": "not found"}


class _Handler(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer would wait for an acknowledgement

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self, body: Any) -> None:
        url, registry = urlsplit(self.path), self.registry
        if registry.is_stopped:
            self.close_connection = True
            return
        time.sleep(registry.delay)
        registry.requests.append(f"{self.command} {url.path}")
        status, answer = registry.status or 200, registry.answer
        if registry.status:
            answer = json.dumps({"error_code": registry.status, "message": "refused"}).encode()
        elif not registry.is_allowed(self.headers.get("Authorization")):
            status, answer = 401, b'{"error_code": 401, "message": "Unauthorized"}'
        elif answer is None:
            status, found = registry.handle(self.command, url.path, parse_qs(url.query), body)
            answer = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@contextmanager
def running(user: str | None = None, password: str | None = None) -> Iterator[Registry]:
    """Start a registry without schemas, yield it, and stop it."""
    registry = Registry(user, password)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()
