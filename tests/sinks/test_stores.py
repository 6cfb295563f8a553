"""A search index that refuses requests, marks of deleted rows, and stores with passwords and certificates."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from streamops import sinks
from streamops.errors import SinkError
from tests.kafka.broker import free_port
from tests.servers import opensearch, redis
from tests.servers.certificates import LOCALHOST, Authority, Identity
from tests.servers.installed import skip
from tests.sinks import planned
from tests.sinks.planned import Change

PASSWORD = "s3cret-w0rd"


@pytest.fixture(scope="module")
def authority() -> Authority:
    pytest.importorskip("cryptography")
    return Authority()


@pytest.fixture
def pems(authority: Authority, tmp_path: Path) -> dict[str, str]:
    """Files of an identity of this host, of the authority that signed it, and of another one."""
    own = authority.sign(LOCALHOST)
    texts = {
        "certificate": own.certificate,
        "key": own.key,
        "right": authority.certificate,
        "wrong": Authority("another").certificate,
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.pem").write_text(text)
    return {name: str(tmp_path / f"{name}.pem") for name in texts}


@pytest.mark.redis
def test_a_cache_with_a_password_and_a_certificate(pems: dict[str, str]) -> None:
    program = redis.program()
    if program is None:
        skip("Redis is not installed: apt-get install -y redis-server")
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no", "--requirepass", PASSWORD]
    for name, path in (("cert", "certificate"), ("key", "key"), ("ca-cert", "right")):
        options += [f"--tls-{name}-file", pems[path]]
    with redis.running(program, *options) as server:

        def sink(password: str = PASSWORD, authority: str = "right") -> Any:
            url = f"rediss://:{password}@{LOCALHOST}:{port}/0"
            client = {"ssl_ca_certs": pems[authority]}
            return sinks.redis(url, "orders", key="id", patience="1 second", client=client)

        assert planned.deliver(sink(), [Change("a", 0)])["written"] == 1
        with server.connect(password=PASSWORD) as own:
            assert own.keys() == ["orders:a"]
        refused = {"wrong": sink(authority="wrong"), "other-passw0rd": sink("other-passw0rd")}
        for name, wrong in refused.items():
            with pytest.raises(SinkError, match=r"TARGET_(UNAVAILABLE|REFUSED)") as error:
                wrong.check()
            assert name not in str(error.value)
            assert PASSWORD not in str(error.value) + repr(wrong)


@contextmanager
def guarding(own: Identity, folder: Path, url: str) -> Iterator[int]:
    """A port with TLS and a password in front of a server: OpenSearch has both in a plugin that Maven lacks."""
    (folder / "own.pem").write_text(own.certificate + own.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem")
    granted = f"Basic {base64.b64encode(f'user:{PASSWORD}'.encode()).decode()}"

    class Guard(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != granted:
                self.answer(401, b'{"error": "Unauthorized", "status": 401}')
                return
            headers = {"Content-Type": "application/json"}
            request = Request(url + self.path, body or None, headers, method=self.command)
            try:
                with urlopen(request) as found:
                    self.answer(found.status, found.read())
            except HTTPError as error:
                self.answer(error.code, error.read())

        do_GET = do_PUT = do_POST = forward

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def get_request(self) -> tuple[socket.socket, Any]:
            given, address = super().get_request()
            # The handshake is left to the thread of the connection.
            options = {"server_side": True, "do_handshake_on_connect": False}
            return context.wrap_socket(given, **options), address

        def handle_error(self, *_: Any) -> None:
            """A client that does not trust the certificate."""

    with Server((LOCALHOST, 0), Guard) as guard:
        thread = threading.Thread(target=guard.serve_forever)
        thread.start()
        yield guard.server_port
        guard.shutdown()
        thread.join()


@pytest.mark.opensearch
def test_an_index_with_a_password_and_a_certificate(
    opensearch: Any, authority: Authority, pems: dict[str, str], tmp_path: Path
) -> None:
    with guarding(authority.sign(LOCALHOST), tmp_path, opensearch.url) as port:
        url = f"https://{LOCALHOST}:{port}"

        def sink(user: Any = ("user", PASSWORD), name: str = "right", url: str = url) -> Any:
            client = {"ca_certs": pems[name]} | ({"http_auth": user} if user else {})
            # Who does not trust the certificate, or is not let in, does not try again.
            options: Any = {"key": "id", "patience": "10 minutes", "client": client}
            return sinks.opensearch(url, "tls", **options)

        in_url = sink(None, url=url.replace("//", f"//user:{PASSWORD}@"))
        for number, right in enumerate((sink(), in_url)):
            assert planned.deliver(right, [Change(str(number), 0)])["written"] == 1
        assert opensearch.documents("tls").keys() == {"0", "1"}
        for wrong, code in (
            (sink(name="wrong"), "TARGET_UNAVAILABLE"),
            (sink(None), "TARGET_REFUSED"),
            (sink(("user", "other-passw0rd")), "TARGET_REFUSED"),
        ):
            for act in (wrong.check, lambda sink=wrong: planned.deliver(sink, [Change("c", 0)])):
                with pytest.raises(SinkError, match=code) as error:
                    act()
                text = str(error.value) + repr(wrong)
                assert PASSWORD not in text
                assert "other-passw0rd" not in text


@pytest.mark.parametrize(
    "store",
    [
        pytest.param("opensearch", marks=pytest.mark.opensearch),
        pytest.param("redis", marks=pytest.mark.redis),
    ],
)
def test_a_delete_is_remembered_for_the_horizon(store: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(store)
    times: Any = {"timeout": "4 seconds", "patience": "1 second", "horizon": "6 seconds"}
    sink = getattr(sinks, store)(server.url, "horizon", key="id", **times)
    with sink._client() as client:
        sink._look(client, create=True, patience=60_000_000)
    planned.deliver(sink, [Change("a", 1), Change("a", 1, deletes=True)])
    deleted = time.monotonic()
    found = planned.deliver(sink, [Change("a", 0), Change("a", 1)])
    assert time.monotonic() - deleted < 6, "the machine is too slow for this test"
    assert (found["written"], found["older"]) == (0, 1)
    time.sleep(deleted + 7 - time.monotonic())
    assert planned.deliver(sink, [Change("a", 0)])["written"] == 1


@pytest.mark.opensearch
def test_deleted_rows_are_marked(opensearch: Any) -> None:
    sink = sinks.opensearch(opensearch.url, "marked", key="id", deletes="mark")
    newer = [Change("a", 0), Change("a", 0, deletes=True), Change("b", 1), Change("c", 0)]
    planned.deliver(sink, newer)
    planned.deliver(sink, [Change("a", 0), Change("b", 0), Change("c", 0, deletes=True)])
    found = {key: hit["_source"] for key, hit in opensearch.documents("marked").items()}
    assert found == {
        "a": {"_deleted": True},
        "b": Change("b", 1).row,
        "c": {"_deleted": True},
    }
    planned.deliver(sink, [Change("a", 1)])
    assert opensearch.documents("marked")["a"]["_source"] == Change("a", 1).row


@pytest.mark.opensearch
@pytest.mark.slow
def test_an_index_that_refuses_requests_gets_all_rows() -> None:
    """The server has one thread and a queue of one: it answers others with 429."""
    program = opensearch.program()
    if program is None:
        skip("OpenSearch is not there, or no Java that runs it: scripts/get-opensearch")
    settings = {"thread_pool.write.size": "1", "thread_pool.write.queue_size": "1"}
    with opensearch.running(program, **settings) as server:
        options = {"key": "id", "request_rows": 200, "patience": "2 minutes"}
        sink = sinks.opensearch(server.url, "busy", **options)
        server.request("PUT", "/busy", {"settings": {"index.number_of_shards": 1}})
        parts = [[Change(f"{n}-{k}", 0) for k in range(1_000)] for n in range(8)]
        writers = [threading.Thread(target=planned.deliver, args=(sink, part)) for part in parts]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        found = {key: hit["_source"] for key, hit in server.documents("busy").items()}
        assert found == planned.expected(change for part in parts for change in part)
        nodes = server.request("GET", "/_nodes/stats/thread_pool")["nodes"].values()
        assert sum(node["thread_pool"]["write"]["rejected"] for node in nodes) > 0
