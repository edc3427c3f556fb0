"""The proxy does what injectors believe of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.chaos.proxy import Mode, Proxy


@pytest.fixture
def echo() -> Iterator[int]:
    """Starts an echo server; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(line: socket.socket) -> None:
        with line:
            try:
                while piece := line.recv(1000):
                    line.sendall(piece)
            except ConnectionError:
                return

    def serve() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(line,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with closing(Proxy(echo)) as one:
        yield one


@pytest.fixture
def line(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as one:
        one.sendall(b"hello")
        assert one.recv(5) == b"hello"
        yield one


def answers(line: socket.socket, word: bytes = b"anybody?") -> bool:
    line.settimeout(0.3)
    try:
        line.sendall(word)
        return line.recv(len(word)) == word
    except TimeoutError:
        return False


def test_a_cut_resets_open_and_new_connections(proxy: Proxy, line: socket.socket) -> None:
    proxy.become(Mode.CUT)
    with pytest.raises(ConnectionResetError):
        line.recv(1)
    # The reset may come before the connection is known to be there.
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as another,
    ):
        another.recv(1)
    assert proxy.resets >= 2


@pytest.mark.parametrize("mode", [Mode.HOLE, Mode.DEAF])
def test_a_hole_swallows_all_bytes_without_closing_the_connection(
    proxy: Proxy, line: socket.socket, mode: Mode
) -> None:
    proxy.become(mode)
    assert not answers(line)
    assert proxy.swallowed
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as another:
        assert not answers(another)


def test_after_healing_a_new_connection_passes(proxy: Proxy, line: socket.socket) -> None:
    proxy.become(Mode.HOLE)
    assert not answers(line)
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        line.recv(1)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as another:
        another.settimeout(10)
        another.sendall(b"again")
        assert another.recv(5) == b"again"


def test_a_delay_delays_every_piece(proxy: Proxy, line: socket.socket) -> None:
    proxy.become(Mode.PASS, delay_s=0.5)
    assert not answers(line, b"slow")
    line.settimeout(10)
    assert line.recv(4) == b"slow"


def test_the_end_of_a_stream_is_forwarded(proxy: Proxy, line: socket.socket) -> None:
    line.shutdown(socket.SHUT_WR)
    assert line.recv(1) == b""


def test_a_target_that_refuses_connections_is_skipped(echo: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = int(listener.getsockname()[1])
    with closing(Proxy(gone, echo)) as proxy:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as line:
                line.sendall(b"hello")
                assert line.recv(5) == b"hello"
