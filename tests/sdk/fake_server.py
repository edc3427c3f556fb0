"""A small HTTP server on a real socket that speaks enough of the contract to test clients."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from rota.wire.formats import encode
from rota.wire.service import ChangeView
from tests.sdk.fake_cell import ROUTES, RefusedError, Seen, SmallCell, answer_404

TOKEN = "a-token"


class _Listener(ThreadingHTTPServer):
    """Server with a long queue of connections: beyond the usual five, TCP retries take a second."""

    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that hung up, whose traceback would end up in a test's stderr."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class SmallServer(SmallCell):
    """Serves the fake cell over HTTP, with faults that a test can order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.faults: list[int] = []
        """Statuses to answer the next requests with instead; 0 drops the connection."""
        self.lose_answers = 0
        """So many requests are done, and their answers lost."""
        self.hang: threading.Event | None = None
        """Answers nothing until this is set."""
        self.log_cut = 0
        """Ends the next log stream after so many bytes, as a server does that stops."""
        self.on_stream: Callable[[], None] = lambda: None
        """Called once, when the stream of changes has been opened."""
        self._answered: dict[str, bytes] = {}
        self._closing = False
        outer = self

        class Talk(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                outer._serve(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._http = _Listener(("127.0.0.1", 0), Talk)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def join(self, other: SmallServer) -> None:
        """Becomes another server of the same cell."""
        self.jobs, self._answered, self.changes = other.jobs, other._answered, other.changes
        self.changed = other.changed

    def end_streams(self) -> None:
        """As a server does that stops."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()

    def close(self) -> None:
        """Ends streams, then itself."""
        self.end_streams()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def writes(self) -> list[Seen]:
        """Requests that change something."""
        return [one for one in self.seen if one.method != "GET"]

    def _serve(self, talk: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(talk.path)
        body = talk.rfile.read(int(talk.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in talk.headers.items()}
        seen = Seen(talk.command, unquote(parts.path), parse_qs(parts.query), headers, body)
        self.seen.append(seen)
        if self.hang is not None:
            self.hang.wait(60)
        if self.faults:
            status = self.faults.pop(0)
            if status == 0:
                talk.close_connection = True
                return
            self._problem(talk, RefusedError(status, "not now"))
            return
        try:
            self._answer(talk, seen)
        except RefusedError as refused:
            self._problem(talk, refused)
        except BrokenPipeError:
            talk.close_connection = True

    def _answer(self, talk: BaseHTTPRequestHandler, seen: Seen) -> None:
        if seen.path not in ("/healthz", "/readyz"):
            given = seen.headers.get("authorization")
            if given != f"Bearer {TOKEN}":
                raise RefusedError(401, "who are you?")
        if seen.path == "/stream":
            self._stream(talk, seen)
            return
        if found := re.fullmatch(r"/jobs/([^/]+)/logs", seen.path):
            self._log(talk, seen, found[1])
            return
        key = seen.headers.get("idempotency-key")
        if key is not None and key in self._answered:
            self._send(talk, 200, self._answered[key])
            return
        body = encode(self._route(seen))
        if key is not None:
            self._answered[key] = body
        if self.lose_answers:
            self.lose_answers -= 1
            talk.close_connection = True
            return
        self._send(talk, 201 if seen.method == "POST" else 200, body)

    def _send(
        self,
        talk: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        media: str = "application/json",
    ) -> None:
        talk.send_response(status)
        talk.send_header("Content-Type", media)
        talk.send_header("Content-Length", str(len(body)))
        talk.end_headers()
        talk.wfile.write(body)

    def _problem(self, talk: BaseHTTPRequestHandler, refused: RefusedError) -> None:
        body = encode(refused.problem)
        self._send(talk, refused.problem.status, body, "application/problem+json")

    def _chunks(self, talk: BaseHTTPRequestHandler, media: str, chunks: Iterator[bytes]) -> None:
        talk.send_response(200)
        talk.send_header("Content-Type", media)
        talk.send_header("Transfer-Encoding", "chunked")
        talk.end_headers()
        for chunk in chunks:
            if chunk:
                talk.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                talk.wfile.flush()
        talk.wfile.write(b"0\r\n\r\n")

    def _stream(self, talk: BaseHTTPRequestHandler, seen: Seen) -> None:
        last = seen.headers.get("last-event-id")
        self._chunks(talk, "text/event-stream", self._events(int(last) + 1 if last else None))

    def _events(self, after: int | None) -> Iterator[bytes]:
        place = len(self.changes) if after is None else after
        yield b"retry: 1000\n\n"
        opened, self.on_stream = self.on_stream, lambda: None
        opened()
        while fresh := self._changes_from(place):
            for change in fresh:
                yield b"id: %d\ndata: %b\n\n" % (place, encode(change))
                place += 1

    def _changes_from(self, place: int) -> list[ChangeView]:
        """Waits for the next ones; none: the server stops."""
        with self.changed:
            self.changed.wait_for(lambda: self._closing or len(self.changes) > place)
            return self.changes[place:]

    def _log(self, talk: BaseHTTPRequestHandler, seen: Seen, job_id: str) -> None:
        job = self._job(job_id)
        execution_id = seen.one("execution_id") or job.execution_id
        text = self.logs.get(execution_id or "", b"")[int(seen.one("offset") or 0) :]
        cut, self.log_cut = self.log_cut, 0
        self._chunks(talk, "text/plain", iter((text[:cut] if cut else text,)))

    def _route(self, seen: Seen) -> Any:
        for method, pattern, answer in ROUTES:
            found = re.fullmatch(pattern, seen.path)
            if re.fullmatch(method, seen.method) and found:
                return answer(self, seen, *found.groups())
        raise answer_404(seen.path)
