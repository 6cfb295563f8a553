"""A search index that refuses requests, marks of deleted rows, and stores with passwords and certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
def encrypting(own: Identity, folder: Path, port: int) -> Iterator[int]:
    """A port with TLS in front of one without, since OpenSearch has TLS in a plugin that Maven lacks."""
    (folder / "own.pem").write_text(own.certificate + own.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem")

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65536):
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):  # until it is closed
            while True:
                given, _ = listener.accept()
                with suppress(OSError):
                    client = context.wrap_socket(given, server_side=True)
                    server = socket.create_connection((LOCALHOST, port))
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=copy, args=pair, daemon=True).start()

    with socket.create_server((LOCALHOST, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.opensearch
def test_an_index_with_a_certificate(
    opensearch: Any, authority: Authority, pems: dict[str, str], tmp_path: Path
) -> None:
    with encrypting(authority.sign(LOCALHOST), tmp_path, opensearch.port) as port:

        def sink(name: str) -> Any:
            client = {"ca_certs": pems[name], "http_auth": ("user", PASSWORD)}
            url = f"https://{LOCALHOST}:{port}"
            return sinks.opensearch(url, "tls", key="id", patience="1 second", client=client)

        assert planned.deliver(sink("right"), [Change("a", 0)])["written"] == 1
        assert opensearch.documents("tls").keys() == {"a"}
        with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
            sink("wrong").check()
        assert PASSWORD not in str(error.value) + repr(sink("wrong"))


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
