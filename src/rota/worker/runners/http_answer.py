"""What an `http` task's answer means: success, a failure worth another try, or one that is not."""

from __future__ import annotations

from email.message import Message
from http import HTTPStatus
from typing import Any

import msgspec

from rota.wire.executions import CompletedReport
from rota.wire.limits import RESULT_BYTES_MAX
from rota.wire.units import Duration
from rota.wire.workers import OrderView

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
