"""Short blocking calls over lines of our own, to servers of many manners."""

from __future__ import annotations

import multiprocessing
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.sdk import Client, Patience
from rota.sdk.calls import Call
from rota.sdk.errors import SilenceError, UnreachableError
from rota.sdk.lines.blocking_lines import Lines
from rota.sdk.lines.messages import KEPT_S
from rota.sdk.request_plan import Answer
from tests.sdk.fake_server import TOKEN, SmallServer

OK = b"HTTP/1.1 200 OK\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\nok"
ASK: Call[bytes] = Call("POST", "/a", bytes, params=(("b", "1 2"),), body=b"{}", keyed=True)
Send = Callable[[], Answer]


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def elapsed_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


class Server:
    """Answers the requests of each connection with what a test has laid out, in turn."""

    def __init__(
        self, *answers: bytes, hangs_up: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self._answers = list(answers)
        self._tls = tls
        self._hangs_up = hangs_up
        self.asked: list[bytes] = []
        self.connections = 0
        self.hung_up = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        origin = "https://localhost" if tls else "http://127.0.0.1"
        self.url = f"{origin}:{self._listening.getsockname()[1]}/cell"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                talk, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(talk,), daemon=True).start()

    def _talk(self, talk: socket.socket) -> None:
        try:
            if self._tls is not None:
                talk = self._tls.wrap_socket(talk, server_side=True)
        except OSError:
            talk.close()  # it does not trust us
            return
        with talk, talk.makefile("rb") as reader:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = reader.readline()
                    if not line:
                        return
                    head += line
                size = int((head.lower().partition(b"content-length: ")[2] or b"0").split()[0])
                self.asked.append(head + reader.read(size))
                if not self._answers:
                    return
                talk.sendall(self._answers.pop(0))
                if self._hangs_up:
                    break
            talk.shutdown(socket.SHUT_RDWR)
        self.hung_up.set()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@contextmanager
def talking(server: Server, clock: Watch | None = None, quiet_s: float = 20.0) -> Iterator[Send]:
    """A call to a server."""
    lines = Lines({"Authorization": "Bearer t"}, 10.0, clock or Watch(), ssl.create_default_context)
    try:
        yield lambda: lines.send(server.url, ASK, {"X-Own": "yes"}, quiet_s)
    finally:
        lines.close()
        server.close()


def test_calls_one_after_the_other_share_a_line() -> None:
    server = Server(OK, OK)
    with talking(server) as call:
        answer = call()
        assert (answer.status, answer.body, answer.headers["retry-after"]) == (200, b"ok", "3")
        assert call().body == b"ok"
    assert server.connections == 1
    head, _, body = server.asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /cell/a?b=1+2 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer t\r\nX-Own: yes\r\nContent-Type: application/json" in head
    assert body == b"{}"


def test_a_line_that_was_hung_up_meanwhile_is_not_used() -> None:
    server = Server(OK, OK, hangs_up=True)
    with talking(server) as call:
        call()
        assert server.hung_up.wait(10)
        assert call().body == b"ok"
    assert server.connections == 2


def test_a_line_that_nobody_used_for_long_is_not_trusted() -> None:
    server, clock = Server(OK, OK), Watch()
    with talking(server, clock) as call:
        call()
        clock.sleep(KEPT_S + 1)
        call()
    assert server.connections == 2


def test_an_answer_may_be_in_pieces_have_no_length_or_come_after_a_word_in_between() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    with talking(Server(chunked, early + OK)) as call:
        assert call().body == b"ok"
        answer = call()
        assert (answer.status, answer.body, "link" in answer.headers) == (200, b"ok", False)
    with talking(Server(b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nok", hangs_up=True)) as call:
        assert call().body == b"ok"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection"),
        (OK[:-1], "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nConte", "closed the connection"),
        (b"220 mail.example ESMTP\r\n", "does not speak HTTP"),
    ],
)
def test_an_answer_that_is_none_says_so(answer: bytes, why: str) -> None:
    with (
        talking(Server(answer, hangs_up=True)) as call,
        pytest.raises(UnreachableError, match=why) as caught,
    ):
        call()
    assert not caught.value.refused


def test_silence_is_told_apart_and_its_line_is_not_used_again() -> None:
    server = Server(OK[:-1], OK)
    with talking(server, quiet_s=0.1) as call:
        with pytest.raises(SilenceError, match="no answer in time"):
            call()
        assert call().body == b"ok"
    assert server.connections == 2


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate")
def test_a_protected_line_is_kept_too_and_only_whom_one_trusts_is_spoken_to(
    tmp_path: Path,
) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")),
        ],
        capture_output=True,
        check=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    server = Server(OK, OK, tls=context)
    trusting = Lines(
        {}, 10.0, Watch(), lambda: ssl.create_default_context(cafile=str(tmp_path / "cert"))
    )
    assert trusting.send(server.url, ASK, {}, 20.0).body == b"ok"
    assert trusting.send(server.url, ASK, {}, 20.0).body == b"ok"
    assert server.connections == 1
    trusting.close()
    strict = Lines({}, 10.0, Watch(), ssl.create_default_context)
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        strict.send(server.url, ASK, {}, 20.0)
    assert caught.value.refused
    server.close()


@pytest.mark.parametrize(
    ("server", "headers", "why"),
    [
        ("ftp://127.0.0.1", {}, "no http or https URL"),
        ("http://127.0.0.1:9", {"X": "a\r\nY: b"}, "no header may have"),
        ("http://no-such-host.invalid", {}, "unknown host"),
    ],
)
def test_what_cannot_be_sent_says_why(server: str, headers: dict[str, str], why: str) -> None:
    lines = Lines({}, 10.0, Watch(), ssl.create_default_context)
    with pytest.raises(UnreachableError, match=why):
        lines.send(server, ASK, headers, 1.0)


def test_threads_share_a_client_and_each_hears_its_own_answer(server: SmallServer) -> None:
    with Client(server.url, TOKEN) as client, ThreadPoolExecutor(8) as threads:
        names = [f"job-{i}" for i in range(80)]
        jobs = list(threads.map(lambda name: client.submit({"name": name}), names))
    assert [job.name for job in jobs] == names


def test_a_process_that_was_forked_does_not_hear_its_parents_answers(server: SmallServer) -> None:
    with Client(server.url, TOKEN) as client:
        client.submit({"name": "before"})
        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=client.submit, args=({"name": "child"},))
        child.start()
        child.join(20)
        assert child.exitcode == 0
        assert client.submit({"name": "after"}).name == "after"
    assert [job.name for job in server.jobs.values()] == ["before", "child", "after"]


def test_where_a_proxy_is_named_calls_go_through_it(
    server: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small server plays the proxy: it is asked for a host that there is not."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    patience = Patience(retry_for_s=0.0)
    with Client("http://rota.invalid:7070", TOKEN, patience=patience) as client:
        assert client.submit({"name": "far"}).name == "far"
    assert server.writes()[0].headers["host"] == "rota.invalid:7070"


def test_what_comes_behind_an_answer_is_neither_part_of_it_nor_of_the_next() -> None:
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\nX: y\r\n\r\nlate"
    server = Server(OK + late, OK + late[:-1], OK)
    with talking(server) as call:
        for _ in range(3):
            answer = call()
            assert (answer.status, answer.body, "x" in answer.headers) == (200, b"ok", False)
    assert server.connections == 3


def test_a_server_that_refuses_before_it_has_heard_all_is_heard() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
    body = b"x" * 40_000_000
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            talk, _ = listening.accept()
            with talk:
                talk.recv(1000)
                talk.sendall(refusal)

        thread = threading.Thread(target=refuse)
        thread.start()
        lines = Lines({}, 10.0, Watch(), ssl.create_default_context)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        answer = lines.send(url, Call("POST", "/a", bytes, body=body), {}, 20.0)
        thread.join()
    assert (answer.status, answer.body) == (413, b"no")


def test_what_is_large_may_take_long_as_long_as_it_moves() -> None:
    body, quiet_s = b"x" * 30_000_000, 1.0
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hear_slowly() -> None:
            talk, _ = listening.accept()
            with talk:
                heard = 0
                while heard < len(body):
                    heard += len(talk.recv(1_000_000))
                    pause.wait(0.08)
                talk.sendall(OK)

        pause = threading.Event()
        thread = threading.Thread(target=hear_slowly)
        thread.start()
        lines = Lines({}, 10.0, Watch(), ssl.create_default_context)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        answer = lines.send(url, Call("POST", "/a", bytes, body=body), {}, quiet_s)
        thread.join()
        lines.close()
    assert answer.body == b"ok"
