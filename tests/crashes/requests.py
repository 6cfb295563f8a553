"""Every request to a server of which a sink does not learn the outcome: ``python -m tests.crashes.requests``.

A proxy is between a sink and its server. At one request of a micro-batch it

    lost      cuts the connection: the request took no effect,
    unheard   sends the request, and cuts the connection instead of the answer: it took effect,
    repeated  sends the request twice, as a transport that repeats does, and passes the second answer on.

Then the sink returns or raises an error, and the query starts again: it delivers the micro-batch again, and
the next one. The target must have the truth, and what failed must not state that nothing was written.
Requests are counted; each of them is one point with each outcome.
"""

from __future__ import annotations

import argparse
import itertools
import json
import select
import socket
import socketserver
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity
from tests.laws.sink_histories import FIXED, History, comparable
from tests.sinks import planned
from tests.sinks.attempts import Attempts, deliver
from tests.sinks.planned import Change

OUTCOMES = ("lost", "unheard", "repeated")
_ANSWER = 0.2  # seconds in which a server answers
Address = str | tuple[str, int]


@dataclass
class Proxy:
    """A port in front of a server, which interferes with one request.

    Parameters
    ----------
    server : address
        A path of a socket, or a host and a port.
    at, outcome : int, str
        Which request since `arm`, and what becomes of it.
    """

    server: Address
    at: int = 0
    outcome: str = ""
    requests: int = 0
    is_cut: bool = False
    port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, at: int, outcome: str) -> None:
        """Interfere with a request from now on; 0 with none."""
        self.at, self.outcome, self.requests, self.is_cut = at, outcome, 0, False

    def _turn(self) -> str:
        with self._lock:
            self.requests += 1
            if self.requests != self.at:
                return ""
            self.is_cut = True
            return self.outcome

    def open(self) -> socket.socket:
        """A connection to the server."""
        if isinstance(self.server, str):
            opened = socket.socket(socket.AF_UNIX)
            opened.connect(self.server)
            return opened
        return socket.create_connection(self.server)

    def serve(self, client: socket.socket) -> None:
        """Pass on what a client and the server send, until one of them ends."""
        with self.open() as server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    data = server.recv(1 << 20)
                    if not data:
                        return
                    client.sendall(data)
                if client in ready:
                    data = client.recv(1 << 20)
                    if not data:
                        return
                    turn = self._turn()
                    if turn == "lost":
                        return
                    server.sendall(data)
                    if turn == "unheard":
                        self._answer(server)
                        return
                    if turn == "repeated":
                        with self.open() as other:
                            other.sendall(data)
                            self._answer(other)

    def _answer(self, server: socket.socket) -> None:
        """Wait until the server has answered."""
        ready, _, _ = select.select([server], [], [], 5)
        while ready and server.recv(1 << 20):
            ready, _, _ = select.select([server], [], [], _ANSWER)


@contextmanager
def proxied(server: Address) -> Iterator[Proxy]:
    """A proxy of a server."""
    proxy = Proxy(server)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                proxy.serve(self.request)
            except OSError:
                return  # one of them has ended

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address = True, True

    with Server(("127.0.0.1", 0), Handler) as listener:
        proxy.port = listener.server_address[1]
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        yield proxy
        listener.shutdown()


class Target(NamedTuple):
    """What is behind a proxy: it makes a new table, and plays a micro-batch of the new table; its truth, and what it has."""

    new: Callable[[], None]
    play: Callable[[int, int], None]
    truth: Any
    find: Callable[[], Any]


def of_tables(
    make: Callable[..., Any], read: Callable[[str], list[Any]], history: History, way: str
) -> Target:
    """A table of a database."""
    name = [""]

    def new() -> None:
        name[0] = f"t {uuid.uuid4().hex[:12]}"

    def play(batch: int, run: int) -> None:
        sink = make(name[0], **history.options)
        identity = Identity("query", f"run {run}")
        try:
            if way == "tasks":
                deliver(sink, Attempts(history.batches[batch], seed=1), batch, identity)
            else:
                sink._deliver_rows(history.batches[batch], batch, identity)
        finally:
            sink.session.close()

    names = [n for n in history.batches[0].column_names if n != "_change_type"]

    def find() -> list[str]:
        return comparable(read(f"SELECT {', '.join(names)} FROM {{0}}{name[0]}{{0}}"))

    return Target(new, play, comparable(history.expected), find)


@contextmanager
def postgres(form: str, way: str) -> Iterator[tuple[Proxy, Target]]:
    """PostgreSQL, by the sink of its own."""
    server, psycopg = import_module("tests.servers.postgres"), import_module("psycopg")
    with (
        server.running(server.programs()) as where,
        psycopg.connect(where, autocommit=True) as own,
        proxied(f"{where.split()[0].partition('=')[2]}/.s.PGSQL.5432") as proxy,
    ):
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?sslmode=disable&gssencmode=disable"

        def read(statement: str) -> list[Any]:
            return list(own.execute(statement.format('"').encode()).fetchall())

        def make(name: str, **options: Any) -> Any:
            return sinks.postgres(url, name, **options)

        yield proxy, of_tables(make, read, FIXED[form], way)


@contextmanager
def mariadb(form: str, way: str) -> Iterator[tuple[Proxy, Target]]:
    """MariaDB, by SQLAlchemy."""
    module = import_module("tests.servers.mariadb")
    with module.running(module.program()) as server, proxied(server.socket) as proxy:
        url = f"mariadb+pymysql://root@127.0.0.1:{proxy.port}/test"

        def read(statement: str) -> list[Any]:
            with server.connect() as own, own.cursor() as cursor:
                cursor.execute(statement.format("`"))
                return list(cursor.fetchall())

        def make(name: str, **options: Any) -> Any:
            return sinks.sqlalchemy(url, name, **options)

        yield proxy, of_tables(make, read, FIXED[form], way)


CHANGES = [
    [Change("a", 0), Change("b", 0), Change("c", 0)],
    [Change("a", 1), Change("b", 0, deletes=True), Change("d", 0)],
]


def of_stores(make: Callable[[str], Any], read: Callable[[str], dict[str, Any]]) -> Target:
    """An index or a cache."""
    name = [""]

    def new() -> None:
        name[0] = f"s{uuid.uuid4().hex[:12]}"

    def play(batch: int, run: int) -> None:
        sink = make(name[0])
        with sink._client() as client:
            sink._look(client, create=True, patience=sink.patience)
        planned.deliver(sink, CHANGES[batch])

    changes = list(itertools.chain.from_iterable(CHANGES))
    return Target(new, play, planned.expected(changes), lambda: read(name[0]))


@contextmanager
def redis(form: str, way: str) -> Iterator[tuple[Proxy, Target]]:
    """Redis."""
    module = import_module("tests.servers.redis")
    with (
        module.running(module.program()) as server,
        proxied(("127.0.0.1", server.port)) as proxy,
        server.connect() as own,
    ):

        def make(prefix: str) -> Any:
            url = f"redis://127.0.0.1:{proxy.port}/0"
            return sinks.redis(url, prefix, key="id", patience="5 seconds", timeout="5 seconds")

        def read(prefix: str) -> dict[str, Any]:
            found = {key: json.loads(own.get(key)) for key in own.keys(f"{prefix}:*")}
            for row in found.values():
                del row["_version"]
            return {key.removeprefix(f"{prefix}:"): row for key, row in found.items()}

        yield proxy, of_stores(make, read)


@contextmanager
def opensearch(form: str, way: str) -> Iterator[tuple[Proxy, Target]]:
    """OpenSearch."""
    module = import_module("tests.servers.opensearch")
    with (
        module.running(module.program()) as server,
        proxied(("127.0.0.1", server.port)) as proxy,
    ):

        def make(index: str) -> Any:
            url = f"http://127.0.0.1:{proxy.port}"
            return sinks.opensearch(url, index, key="id", patience="9 seconds", timeout="9 seconds")

        def read(index: str) -> dict[str, Any]:
            return {key: hit["_source"] for key, hit in server.documents(index).items()}

        yield proxy, of_stores(make, read)


SYSTEMS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    # A request of a database belongs to a connection with a login: no transport repeats it.
    "PostgreSQL": (postgres, tuple(FIXED), ("driver", "tasks"), OUTCOMES[:2]),
    "MariaDB": (mariadb, tuple(FIXED), ("driver", "tasks"), OUTCOMES[:2]),
    "Redis": (redis, ("changes",), ("tasks",), OUTCOMES),
    "OpenSearch": (opensearch, ("changes",), ("tasks",), OUTCOMES),
}


class Figures(NamedTuple):
    """Points, those at which the sink raised an error, and wrong targets or errors."""

    points: int = 0
    failed: int = 0
    wrong: int = 0


def pass_points(proxy: Proxy, target: Target, outcome: str, *, every: int = 1) -> Figures:
    """Interfere with each request of the second micro-batch in turn, or with some of them."""
    failed = wrong = 0
    for points, at in enumerate(itertools.count(1, every)):
        proxy.arm(0, "")
        target.new()
        target.play(0, 0)
        proxy.arm(at, outcome)
        try:
            target.play(1, 0)
        except SinkError as error:
            failed += 1
            stated = (
                error.code not in {"TARGET_UNAVAILABLE", "FENCED"}
                or "nothing was written" in error.fix
            )
            wrong += stated
        was_cut = proxy.is_cut
        proxy.arm(0, "")
        target.play(1, 1)
        wrong += target.find() != target.truth
        if not was_cut:
            return Figures(points, failed, wrong)
    raise AssertionError


def main() -> None:
    """Print a line for each system, form, way and outcome."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.requests")
    parser.add_argument("systems", nargs="*", help=", ".join(SYSTEMS))
    options = parser.parse_args()
    print("| system | form | by | outcome | points | errors | wrong | s |")
    print("|---|---|---|---|---:|---:|---:|---:|", flush=True)
    total = Figures()
    for name in options.systems or SYSTEMS:
        run, forms, ways, outcomes = SYSTEMS[name]
        for form, way in itertools.product(forms, ways):
            with run(form, way) as (proxy, target):
                for outcome in outcomes:
                    start = time.monotonic()
                    found = pass_points(proxy, target, outcome)
                    numbers = " | ".join(f"{count:,}" for count in found)
                    seconds = f"{time.monotonic() - start:.0f}"
                    print(
                        f"| {name} | {form} | {way} | {outcome} | {numbers} | {seconds} |",
                        flush=True,
                    )
                    total = Figures(*map(sum, zip(total, found, strict=True)))
    print(f"| all | | | | {' | '.join(f'{count:,}' for count in total)} | |")
    raise SystemExit(total.wrong > 0)


if __name__ == "__main__":
    main()
