"""Runs an `http` task: one request within the job's time, to an address that the policy allows.

A job names a URL, and whoever may submit jobs must not reach through a worker what only the worker
can reach: its own machine, its network, a cloud's metadata service. Checking the name, or what it
resolves to beforehand, is not enough: the next look-up may answer otherwise. So `AddressPolicy`
checks every socket when it is made for its address, after the name has been resolved.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Iterable
from email.message import Message
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import msgspec

from rota import __version__
from rota.wire.formats import Duration
from rota.wire.jobs import HttpCall
from rota.wire.limits import RESULT_BYTES_MAX
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.reports import SHUTDOWN, StopReason, report_ended, report_failed

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNICAST6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ForbiddenAddressError(OSError):
    """Raised when a name resolves to an address that jobs may not reach.

    It is found by its errno: that survives where the failures of several addresses of one name
    become one error.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(
            errno.EPERM,
            f"{address} is a private address, which jobs may not reach; to allow it, start the "
            f"worker with --http-allow {address}",
        )


def refusal_in(error: Exception) -> str | None:
    """Returns the policy's refusal, if that is why a connection failed."""
    inner = getattr(error, "os_error", error)
    if isinstance(inner, OSError) and inner.errno == errno.EPERM:
        return inner.strerror or str(inner)
    return None


def is_public(address: Address) -> bool:
    """Whether anybody on the Internet could reach it; an address embedded in another one counts."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if inner is not None:
        return is_public(inner)
    return address in _UNICAST6 and address.is_global


class AddressPolicy:
    """Allows public addresses, and the names, addresses and networks that the operator adds."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[Network] = []
        for text in allowed:
            try:
                self._networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
            except ValueError:
                self._names.add(_plain_name(text))

    def trusts(self, host: str) -> bool:
        """Whether this name may resolve to any address."""
        return _plain_name(host) in self._names

    def admits(self, address: Address) -> bool:
        """Whether this address may be reached under any name."""
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        meant = mapped or address
        if is_public(meant):
            return True
        return any(meant.version == one.version and meant in one for one in self._networks)

    def make_socket(self, info: Any) -> socket.socket:
        """Makes a socket for an address to connect to; raises ForbiddenAddressError.

        `info` is what getaddrinfo returns: family, type, protocol, name, address.
        """
        family, kind, protocol, _, place = info
        address = ipaddress.ip_address(place[0])
        if not self.admits(address):
            raise ForbiddenAddressError(address)
        return socket.socket(family, kind, protocol)


def _plain_name(host: str) -> str:
    return host.strip().rstrip(".").lower()


class HttpSessions:
    """HTTP connections of this worker's jobs, opened when first needed."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._open: dict[bool, aiohttp.ClientSession] = {}

    def for_host(self, host: str) -> aiohttp.ClientSession:
        """Returns the session; names that the operator trusts share one whose addresses are not
        checked."""
        trusted = self._policy.trusts(host)
        session = self._open.get(trusted)
        if session is None:
            connector = aiohttp.TCPConnector(
                limit=0, socket_factory=None if trusted else self._policy.make_socket
            )
            session = self._open[trusted] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),  # one job's cookies are not another's
                auto_decompress=False,  # a small response must not expand to gigabytes
            )
        return session

    async def close(self) -> None:
        for session in self._open.values():
            await session.close()
        self._open.clear()


BODY_BYTES_MAX = RESULT_BYTES_MAX
"""Read of a response; the rest is not fetched, and the result says so."""
RETRY_AFTER_DIGITS_MAX = 8
"""A server that asks for a pause of years does not mean it."""
ERROR_BODY_CHARS_MAX = 4_096
"""Of the response, in the error of a failed job."""
HEADER_CHARS_MAX = 1_000
KEPT_HEADERS = (
    *("content-type", "content-length", "content-encoding", "date", "etag", "last-modified"),
    *("location", "retry-after", "x-request-id"),
)
RETRYABLE_4XX = (408, 425, 429)
"""Request timeout, too early, too many requests: the same request may succeed later."""


class HttpResponse(msgspec.Struct):
    """Response to the task's request."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    truncated: bool


def report_response(order: OrderView, where: str, response: HttpResponse) -> CompletedReport:
    """Reports success for 2xx; every other status fails."""
    if 200 <= response.status < 300:
        report = CompletedReport(
            execution_id=order.execution_id, status="succeeded", fence=order.fence
        )
        report.result = msgspec.Raw(_result(response))
        return report
    error: dict[str, Any] = {
        "message": f"{where} answered {response.status} {_phrase(response)}".rstrip(),
        "status": response.status,
        "headers": _kept(response.headers),
        "body": _text(response)[:ERROR_BODY_CHARS_MAX],
    }
    if 300 <= response.status < 400:
        target = response.headers.get("location", "nowhere")[:HEADER_CHARS_MAX]
        error["message"] += f": redirects are not followed (to {target}); name the final URL"
    retryable = response.status >= 500 or response.status in RETRYABLE_4XX
    report = report_http_failure(order, error, retryable=retryable)
    after = response.headers.get("retry-after", "")
    if after.isdigit() and len(after) <= RETRY_AFTER_DIGITS_MAX:
        report.retry_after = Duration(int(after) * 1000)
    return report


def report_http_failure(
    order: OrderView, error: dict[str, Any], *, retryable: bool = True
) -> CompletedReport:
    return CompletedReport(
        execution_id=order.execution_id,
        status="failed",
        fence=order.fence,
        error=msgspec.Raw(msgspec.json.encode(error)),
        retryable=retryable,
    )


def _result(response: HttpResponse) -> bytes:
    fields: dict[str, Any] = {"status": response.status, "headers": _kept(response.headers)}
    fields["body"] = _body(response)
    if response.truncated:
        fields["truncated"] = True
    document = msgspec.json.encode(fields)
    # As JSON it may be larger than the response: control characters are escaped, for example.
    text = _text(response)
    while len(document) > RESULT_BYTES_MAX:
        text = text[: len(text) // 2]
        document = msgspec.json.encode({**fields, "body": text, "truncated": True})
    return document


def _body(response: HttpResponse) -> Any:
    media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not response.truncated and (media == "application/json" or media.endswith("+json")):
        try:
            return msgspec.json.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # its content type is wrong
    return _text(response)


def _text(response: HttpResponse) -> str:
    header = Message()
    header["content-type"] = response.headers.get("content-type", "text/plain")
    try:
        return response.body.decode(header.get_content_charset("utf-8"), "replace")
    except LookupError:
        return response.body.decode("utf-8", "replace")


def _kept(headers: dict[str, str]) -> dict[str, str]:
    return {name: headers[name][:HEADER_CHARS_MAX] for name in KEPT_HEADERS if name in headers}


def _phrase(response: HttpResponse) -> str:
    if response.reason:
        return response.reason[:HEADER_CHARS_MAX]
    try:
        return HTTPStatus(response.status).phrase
    except ValueError:
        return ""


CONNECT_S = 30.0
"""A host that does not accept a connection within this is away."""
ANSWER_S_MAX = 3600.0
"""For a job without a timeout: a connection that died silently must not hold it for ever."""
READ_BYTES = 64 * 1024


class HttpRunner:
    """Runs one execution of an `http` task."""

    def __init__(self, order: OrderView, task: HttpCall, sessions: HttpSessions) -> None:
        self._order = order
        self._task = task
        self._sessions = sessions
        self._stopped: StopReason | None = None
        self.lapsed = False
        self.unsent_log: asyncio.Task[None] | None = None
        self._request: asyncio.Task[CompletedReport] | None = None

    def stop(self, reason: StopReason) -> None:
        """Cancels the request; whether the other side has acted on it is not known."""
        self._stopped = self._stopped or reason
        if self._request is not None:
            self._request.cancel()

    def abandon(self) -> None:
        """Cancels the request too; its report is not wanted."""
        self.stop("shutdown")

    def hold_until(self, deadline: float) -> None:
        """Does nothing: no process outside of the agent holds this lease."""

    async def run(self) -> CompletedReport:
        """Returns when the connection is closed."""
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
        message = f"timed out after {timeout:g} s; the response of {self._where} was not complete"
        order = self._order
        return report_ended(order.execution_id, order.fence, "timed_out", message, None)

    def _report_stopped(self) -> CompletedReport:
        order = self._order
        if self._stopped == "shutdown":
            return report_failed(order.execution_id, order.fence, SHUTDOWN)
        message = f"cancelled; the request to {self._where} was aborted"
        return report_ended(order.execution_id, order.fence, "cancelled", message, None)

    @property
    def _where(self) -> str:
        """Method and URL without the query, which may hold secrets."""
        parts = urlsplit(self._task.url)
        return f"{self._task.method} {parts.scheme}://{parts.netloc}{parts.path}"

    async def _send(self) -> CompletedReport:
        try:
            return report_response(self._order, self._where, await self._response())
        except TimeoutError:
            return self._unreachable(f"no connection within {CONNECT_S:g} s")
        except aiohttp.InvalidURL as error:
            message = f"the URL is not valid: {error}"
            return report_http_failure(self._order, {"message": message}, retryable=False)
        except (aiohttp.ClientError, OSError) as error:
            refusal = refusal_in(error)
            if refusal is not None:
                message = f"{self._where} was not called: {refusal}"
                return report_http_failure(self._order, {"message": message}, retryable=False)
            why = str(error) or type(error).__name__
            if isinstance(error, aiohttp.ClientConnectionError):
                return self._unreachable(why)
            return report_http_failure(
                self._order, {"message": f"{self._where} sent no complete response: {why}"}
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
            allow_redirects=False,  # the job named this URL, not where a server sends it
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
        """Builds the headers: defaults, replaced by the task's own, and those that no task may
        set."""
        order, task = self._order, self._task
        ours = {
            "User-Agent": f"rota/{__version__}",
            "Accept-Encoding": "identity",
            "Idempotency-Key": order.job_id,  # the same for every attempt of the job
        }
        if task.body is not None:
            text = isinstance(task.body, str)
            ours["Content-Type"] = "text/plain; charset=utf-8" if text else "application/json"
        if order.traceparent:
            ours["traceparent"] = order.traceparent
        theirs = {name.lower() for name in task.headers}
        headers = {name: value for name, value in ours.items() if name.lower() not in theirs}
        headers.update(task.headers)
        rota_headers = {
            "X-Rota-Job-Id": order.job_id,
            "X-Rota-Execution-Id": order.execution_id,
            "X-Rota-Attempt": str(order.attempt),
            "X-Rota-Fence": str(order.fence),
        }
        forged = [name for name in headers if name.title() in rota_headers]
        for name in forged:
            del headers[name]
        return {**headers, **rota_headers}

    def _body(self) -> bytes | None:
        body = self._task.body
        if body is None:
            return None
        return body.encode() if isinstance(body, str) else msgspec.json.encode(body)
