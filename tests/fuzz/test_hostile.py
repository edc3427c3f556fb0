"""Hostile or broken clients: the server stays up, keeps its memory bounded and serves others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil
import pytest

from rota.api.limits import HEAD_S_MAX
from tests.fuzz.raw import Raw
from tests.process.cell import Cell, until

pytestmark = pytest.mark.process

MIB = 1024 * 1024
GROWTH_MAX = 150 * MIB
"""Generous: a body of the largest size allowed, read and decoded, is 32 MiB and some."""
IDLE = 200
STREAMS = 50
NOOP = b'{"name": "n", "task": {"kind": "noop"}}'


@pytest.fixture(scope="module")
def attacked_cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cell, int]]:
    """One server for all tests, and its memory at the start."""
    with Cell(tmp_path_factory.mktemp("hostile")) as one:
        one.up()
        assert one.client().submit({"name": "warm", "task": {"kind": "noop"}}).job_id
        yield one, memory(one)


@pytest.fixture
def cell(attacked_cell: tuple[Cell, int]) -> Iterator[Cell]:
    """The server, which must be healthy after each test."""
    one, before = attacked_cell
    yield one
    assert one.client().submit({"name": "after", "task": {"kind": "noop"}}).job_id
    assert memory(one) - before < GROWTH_MAX
    assert "Traceback" not in one.server.text()


def memory(cell: Cell) -> int:
    return int(psutil.Process(cell.server.pid).memory_info().rss)


def test_a_gigabyte_is_refused_by_its_length_alone(cell: Cell) -> None:
    with Raw(cell) as raw:
        raw.send(raw.head("POST /jobs", f"Content-Length: {1 << 30}"))
        assert raw.status() == 413


def test_an_endless_body_is_cut_off(cell: Cell) -> None:
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with Raw(cell) as raw:
        raw.send(raw.head("POST /jobs", "Transfer-Encoding: chunked"))
        sent = 0
        while sent < 100 * MIB and raw.send(piece):
            sent += len(piece)
        assert raw.status() in (413, None)
    assert sent < 100 * MIB


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"name": "n", "task": {"kind": "noop"}, "payload": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":' * 100_000,
        NOOP[:-1] + b', "priority": ' + b"9" * 100_000 + b"}",
        NOOP[:-1] + b', "priority": NaN}',
        NOOP[:-1] + b', "name": "twice"}',
        NOOP[:-1] + b', "payload": "\\ud800"}',
        b'{"name": "\xff\xfe", "task": {"kind": "noop"}}',
        b'{"name": "\\u0000", "task": {"kind": "noop"}}',
        NOOP[:-1] + b', "labels": {' + b",".join(b'"%d": ""' % n for n in range(200_000)) + b"}}",
        b"\x00" * 1000,
        b"",
    ],
    ids=lambda body: repr(body[:60]),
)
def test_hostile_json_is_answered_with_a_client_error(cell: Cell, body: bytes) -> None:
    with Raw(cell) as raw:
        raw.send(raw.head("POST /jobs", f"Content-Length: {len(body)}") + body)
        assert raw.status() in (201, 400, 413, 422)


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\n\r\n\x00\x00",
        b"GET /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"GET /%ff%00%0d%0a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /jobs HTTP/1.1\r\n\r\n",
    ],
    ids=lambda request_: repr(request_[:60]),
)
def test_garbage_is_refused_without_further_effect(cell: Cell, request_: bytes) -> None:
    with Raw(cell) as raw:
        raw.send(request_)
        raw.send(b"\r\n\r\n" + bytes(range(256)) * 16)
        status = raw.status()
    assert status is None or 400 <= status < 500


def test_pipelined_requests_are_answered_in_order(cell: Cell) -> None:
    with Raw(cell) as raw:
        one = raw.head("POST /jobs", f"Content-Length: {len(NOOP)}") + NOOP
        raw.send(one * 50 + raw.head("GET /healthz", "Connection: close"))
        got = b""
        while piece := raw.socket.recv(65_536):
            got += piece
    assert got.count(b"HTTP/1.1 201") == 50
    assert got.count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"x\r\nX-More: " * 5000])
def test_a_head_without_end_is_cut_off(cell: Cell, piece: bytes) -> None:
    with Raw(cell) as raw:
        raw.send(b"GET /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
        sent = 0
        while sent < 64 * MIB and raw.send(piece):
            sent += len(piece)
        assert raw.status() in (431, None)
    assert sent < 64 * MIB


def test_a_head_that_is_too_large_is_refused_with_a_message(cell: Cell) -> None:
    with Raw(cell) as raw:
        raw.send(b"GET /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 66_000)
        assert raw.status() == 431
    with Raw(cell) as raw:
        raw.send(raw.head("GET /jobs", "X-Long: " + "x" * 60_000))
        assert raw.status() == 200


def test_trailers_without_end_are_cut_off(cell: Cell) -> None:
    with Raw(cell) as raw:
        raw.send(raw.head("POST /jobs", "Transfer-Encoding: chunked") + b"1\r\n{\r\n0\r\n")
        sent = 0
        while sent < 64 * MIB and raw.send(b"X-Trailer: " + b"x" * 65_000 + b"\r\n"):
            sent += 65_000
    assert sent < 64 * MIB


@pytest.mark.fuzz
@pytest.mark.parametrize("sent", [b"", b"GET /jobs HTTP/1.1\r\nHost: 127"])
def test_a_client_that_does_not_finish_its_head_is_dropped(cell: Cell, sent: bytes) -> None:
    with Raw(cell) as raw:
        raw.send(sent)
        raw.socket.settimeout(HEAD_S_MAX + 20)
        assert raw.status() is None


def test_slow_and_silent_clients_do_not_block_others(cell: Cell) -> None:
    with contextlib.ExitStack() as held:
        for number in range(IDLE):
            raw = held.enter_context(Raw(cell))
            if number % 3 == 1:
                raw.send(b"POST /jobs HTTP/1.1\r\nHost: 127.0")
            elif number % 3 == 2:
                raw.send(raw.head("POST /jobs", "Content-Length: 1000") + b'{"name"')
        for _ in range(STREAMS):
            raw = held.enter_context(Raw(cell))
            raw.send(raw.head("GET /stream", "Last-Event-ID: 0.0"))
            assert raw.status() == 200  # and from now on nobody reads
        client = cell.client()
        big = {"name": "big", "task": {"kind": "noop"}, "payload": {"text": "x" * 1000}}
        ids = [client.submit_batch([big] * 100)[0] for _ in range(20)]
        assert client.job(ids[0]).status == "queued"
        worker = cell.worker("busy")
        until(lambda: client.job(ids[-1]).status == "succeeded", "work done meanwhile")
        assert worker.stop() == 0
