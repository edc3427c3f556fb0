"""Runs an `http` task: one request within the job's time, and what its response means."""

from __future__ import annotations

import asyncio
from email.message import Message
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from rota import __version__
from rota.wire.formats import Duration
from rota.wire.jobs import HttpCall
from rota.wire.limits import RESULT_BYTES_MAX
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.reports import SHUTDOWN, StopReason, report_ended, report_failed
from rota.worker.runners.http_policy import HttpSessions, refusal_in

BODY_BYTES_MAX = RESULT_BYTES_MAX
"""Read of an answer; the rest is not asked for, and the result says so."""
RETRY_AFTER_DIGITS_MAX = 8
"""A server that says to come back in three years is not meant literally."""
ERROR_BODY_CHARS_MAX = 4_096
"""Of the answer, in the error of a job that failed."""
HEADER_CHARS_MAX = 1_000
KEPT_HEADERS = (
    *("content-type", "content-length", "content-encoding", "date", "etag", "last-modified"),
    *("location", "retry-after", "x-request-id"),
)
RETRYABLE_4XX = (408, 425, 429)
"""Too slow, too early, too many: the same request may be right another time."""


class HttpResponse(msgspec.Struct):
    """What came back."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    truncated: bool


def report_response(order: OrderView, where: str, answer: HttpResponse) -> CompletedReport:
    """2xx succeeds; everything else fails, and says why."""
    if 200 <= answer.status < 300:
        report = CompletedReport(
            execution_id=order.execution_id, status="succeeded", fence=order.fence
        )
        report.result = msgspec.Raw(_result(answer))
        return report
    error: dict[str, Any] = {
        "message": f"{where} answered {answer.status} {_phrase(answer)}".rstrip(),
        "status": answer.status,
        "headers": _kept(answer.headers),
        "body": _text(answer)[:ERROR_BODY_CHARS_MAX],
    }
    if 300 <= answer.status < 400:
        target = answer.headers.get("location", "nowhere")[:HEADER_CHARS_MAX]
        error["message"] += f": redirects are not followed (to {target}); name the final URL"
    retryable = answer.status >= 500 or answer.status in RETRYABLE_4XX
    report = report_http_failure(order, error, retryable=retryable)
    after = answer.headers.get("retry-after", "")
    if after.isdigit() and len(after) <= RETRY_AFTER_DIGITS_MAX:
        report.retry_after = Duration(int(after) * 1000)
    return report


def report_http_failure(
    order: OrderView, error: dict[str, Any], *, retryable: bool = True
) -> CompletedReport:
    """A failure in these words."""
    return CompletedReport(
        execution_id=order.execution_id,
        status="failed",
        fence=order.fence,
        error=msgspec.Raw(msgspec.json.encode(error)),
        retryable=retryable,
    )


def _result(answer: HttpResponse) -> bytes:
    told: dict[str, Any] = {"status": answer.status, "headers": _kept(answer.headers)}
    told["body"] = _body(answer)
    if answer.truncated:
        told["truncated"] = True
    document = msgspec.json.encode(told)
    # As JSON it may be larger than it came: control characters are written out, for one.
    text = _text(answer)
    while len(document) > RESULT_BYTES_MAX:
        text = text[: len(text) // 2]
        document = msgspec.json.encode({**told, "body": text, "truncated": True})
    return document


def _body(answer: HttpResponse) -> Any:
    media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not answer.truncated and (media == "application/json" or media.endswith("+json")):
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # it only says that it is JSON
    return _text(answer)


def _text(answer: HttpResponse) -> str:
    header = Message()
    header["content-type"] = answer.headers.get("content-type", "text/plain")
    try:
        return answer.body.decode(header.get_content_charset("utf-8"), "replace")
    except LookupError:
        return answer.body.decode("utf-8", "replace")


def _kept(headers: dict[str, str]) -> dict[str, str]:
    return {name: headers[name][:HEADER_CHARS_MAX] for name in KEPT_HEADERS if name in headers}


def _phrase(answer: HttpResponse) -> str:
    if answer.reason:
        return answer.reason[:HEADER_CHARS_MAX]
    try:
        return HTTPStatus(answer.status).phrase
    except ValueError:
        return ""


CONNECT_S = 30.0
"""A host that does not even accept within this is away."""
ANSWER_S_MAX = 3600.0
"""For a job without a timeout: a connection that died silently must not hold it for ever."""
READ_BYTES = 64 * 1024


class HttpRunner:
    """One execution of an `http` task."""

    def __init__(self, order: OrderView, task: HttpCall, sessions: HttpSessions) -> None:
        self._order = order
        self._task = task
        self._sessions = sessions
        self._stopped: StopReason | None = None
        self.lapsed = False
        self.unsent_log: asyncio.Task[None] | None = None
        self._request: asyncio.Task[CompletedReport] | None = None

    def stop(self, reason: StopReason) -> None:
        """Breaks the request off; whether the other side has acted on it, nobody knows."""
        self._stopped = self._stopped or reason
        if self._request is not None:
            self._request.cancel()

    def abandon(self) -> None:
        """The same; nobody wants the report."""
        self.stop("shutdown")

    def hold_until(self, deadline: float) -> None:
        """Its lease was renewed: nothing outside this process has to know."""

    async def run(self) -> CompletedReport:
        """Returns when the connection has been let go."""
        order = self._order
        asking = self._request = asyncio.create_task(self._send())
        if self._stopped is not None:
            asking.cancel()
        timeout = ANSWER_S_MAX if order.timeout is None else order.timeout
        await asyncio.wait((asking,), timeout=timeout)
        timed_out = asking.cancel() and self._stopped is None
        try:
            return await asking
        except asyncio.CancelledError:
            return self._broken_off(timeout) if timed_out else self._report_stopped()

    def _broken_off(self, timeout: float) -> CompletedReport:
        message = f"timed out after {timeout:g} s; {self._where} had not answered in full"
        order = self._order
        return report_ended(order.execution_id, order.fence, "timed_out", message, None)

    def _report_stopped(self) -> CompletedReport:
        order = self._order
        if self._stopped == "shutdown":
            return report_failed(order.execution_id, order.fence, SHUTDOWN)
        message = f"cancelled; the request to {self._where} was broken off"
        return report_ended(order.execution_id, order.fence, "cancelled", message, None)

    @property
    def _where(self) -> str:
        """Method and place, without the query, which may hold what is nobody's business."""
        parts = urlsplit(self._task.url)
        return f"{self._task.method} {parts.scheme}://{parts.netloc}{parts.path}"

    async def _send(self) -> CompletedReport:
        try:
            return report_response(self._order, self._where, await self._response())
        except TimeoutError:
            return self._unreachable(f"no connection within {CONNECT_S:g} s")
        except aiohttp.InvalidURL as error:
            message = f"the URL makes no sense: {error}"
            return report_http_failure(self._order, {"message": message}, retryable=False)
        except (aiohttp.ClientError, OSError) as error:
            refusal = refusal_in(error)
            if refusal is not None:
                message = f"{self._where} was not asked: {refusal}"
                return report_http_failure(self._order, {"message": message}, retryable=False)
            why = str(error) or type(error).__name__
            if isinstance(error, aiohttp.ClientConnectionError):
                return self._unreachable(why)
            return report_http_failure(
                self._order, {"message": f"{self._where} gave no whole answer: {why}"}
            )

    def _unreachable(self, why: str) -> CompletedReport:
        return report_http_failure(
            self._order, {"message": f"{self._where} cannot be reached: {why}"}
        )

    async def _response(self) -> HttpResponse:
        task = self._task
        headers, body = self._headers(), self._body()
        session = self._sessions.for_host(urlsplit(task.url).hostname or "")
        async with session.request(
            task.method,
            task.url,
            data=body,
            headers=headers,
            allow_redirects=False,  # the new place would be somebody else's choice
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        ) as response:
            content = bytearray()
            while len(content) <= BODY_BYTES_MAX:
                piece = await response.content.read(READ_BYTES)
                if not piece:
                    break
                content += piece
            truncated = len(content) > BODY_BYTES_MAX
            if truncated:
                response.close()
            given = {name.lower(): value for name, value in response.headers.items()}
            kept = bytes(content[:BODY_BYTES_MAX])
            return HttpResponse(response.status, response.reason or "", given, kept, truncated)

    def _headers(self) -> dict[str, str]:
        """Ours, unless the task says otherwise, and then those nobody may forge."""
        order, task = self._order, self._task
        ours = {
            "User-Agent": f"rota/{__version__}",
            "Accept-Encoding": "identity",
            "Idempotency-Key": order.job_id,  # the same in every try of the job
        }
        if task.body is not None:
            text = isinstance(task.body, str)
            ours["Content-Type"] = "text/plain; charset=utf-8" if text else "application/json"
        if order.traceparent:
            ours["traceparent"] = order.traceparent
        theirs = {name.lower() for name in task.headers}
        headers = {name: value for name, value in ours.items() if name.lower() not in theirs}
        headers.update(task.headers)
        marks = {
            "X-Rota-Job-Id": order.job_id,
            "X-Rota-Execution-Id": order.execution_id,
            "X-Rota-Attempt": str(order.attempt),
            "X-Rota-Fence": str(order.fence),
        }
        forged = [name for name in headers if name.title() in marks]
        for name in forged:
            del headers[name]
        return {**headers, **marks}

    def _body(self) -> bytes | None:
        body = self._task.body
        if body is None:
            return None
        return body.encode() if isinstance(body, str) else msgspec.json.encode(body)
