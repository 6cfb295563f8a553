"""A function for Spark's workers acknowledges what they have received, when it is unpickled."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from streamops.kernel import prompt as module
from streamops.kernel.prompt import Acknowledgement, acknowledge, prompt

_OPTION = getattr(socket, "TCP_QUICKACK", None)
_PICKLE: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]


def _delay(of: socket.socket) -> None:
    """Let acknowledgements wait for something to send with them, as after an answer."""
    assert _OPTION is not None
    of.setsockopt(socket.IPPROTO_TCP, _OPTION, 0)
    assert _delays(of)


def _delays(of: socket.socket) -> bool:
    assert _OPTION is not None
    return of.getsockopt(socket.IPPROTO_TCP, _OPTION) == 0


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """A worker's end of a TCP connection that delays acknowledgements."""
    if _OPTION is None:
        pytest.skip("TCP_QUICKACK is an option of Linux")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as worker,
        server.accept()[0],
    ):
        _delay(worker)
        yield worker


def test_a_function_acknowledges_when_it_is_unpickled(connection: socket.socket) -> None:
    pickled = _PICKLE.dumps(prompt(lambda value: value + 1))
    assert _delays(connection)
    assert _PICKLE.loads(pickled)(1) == 2
    assert not _delays(connection)


def test_so_do_partial_functions_and_objects(connection: socket.socket) -> None:
    for of in (prompt(partial(max, 1)), {"of an object": Acknowledgement()}):
        pickled = _PICKLE.dumps(of)
        _delay(connection)
        _PICKLE.loads(pickled)
        assert not _delays(connection)


def test_it_is_the_same_function(connection: socket.socket) -> None:
    def double(value: int) -> int:
        """Double."""
        return 2 * value

    assert prompt(double) is double
    again = _PICKLE.loads(_PICKLE.dumps(double))
    assert (again.__name__, again.__doc__, again(2)) == ("double", "Double.", 4)


def test_other_files_and_connections_are_left_alone(connection: socket.socket) -> None:
    left, right = socket.socketpair()
    with left, right, open(os.devnull, "rb") as file, socket.socket(type=socket.SOCK_DGRAM):
        before = len(os.listdir(module._OPEN_FILES))
        acknowledge()
        assert len(os.listdir(module._OPEN_FILES)) == before
        left.sendall(b"one")
        assert right.recv(3) == b"one"
        assert file.read() == b""


@pytest.mark.parametrize("lacks", ["the option", "the list of files"])
def test_systems_that_lack_it(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    if lacks == "the option":
        monkeypatch.setattr(module, "_OPTION", None)
    else:
        monkeypatch.setattr(module, "_OPEN_FILES", "/nowhere")
    acknowledge()
