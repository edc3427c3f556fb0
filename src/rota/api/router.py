"""Router of the API: finds a call by method and path, checks it by its declaration and serves it.

An `Operation` declares one call; serving it and the OpenAPI document both follow from it. Reading
idempotency keys and writing audit entries belong here too. The calls are in `endpoints/`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import unquote

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.api.auth.authenticator import remote_of
from rota.api.auth.roles import Caller, Permission, caller_of, permit
from rota.api.cancel_on_disconnect import first_of
from rota.api.deps import AppDeps, RequestState
from rota.api.ids import mint_request_id
from rota.api.limits import AUDIT_TEXT_MAX
from rota.api.parsing.request import (
    decode_json,
    header,
    is_complete,
    query_reader,
    read_body,
    require_json,
    until_stopping,
)
from rota.api.problems import fault, from_exception, invalid, respond
from rota.api.streaming import Stream
from rota.core.commands import Key
from rota.store.tokens import AuditEntry
from rota.wire.formats import dec_hook, encode
from rota.wire.limits import BODY_BYTES_MAX, KEY_CHARS_MAX
from rota.wire.problems import NO_HEADERS, ClientDisconnectedError, ProblemError
from rota.wire.traces import parse_traceparent

Match: TypeAlias = tuple[ASGIApp, dict[str, str]]


class _RouteNode:
    """Node in the tree of paths: the path so far, and the segments that may follow."""

    __slots__ = ("any_word", "call", "names", "takes_slashes", "words")

    def __init__(self) -> None:
        self.words: dict[str, _RouteNode] = {}
        self.any_word: _RouteNode | None = None
        self.call: ASGIApp | None = None
        """Served here, if a path ends here."""
        self.names: tuple[str, ...] = ()
        """Names of the parameters in the path so far."""
        self.takes_slashes = False
        """Whether the last parameter may contain slashes."""


class Router:
    """Router for the calls of the API; a path that it does not know goes to the next
    application."""

    def __init__(
        self, app: ASGIApp, calls: Mapping[str, ASGIApp], deep: Collection[str] = ()
    ) -> None:
        """`calls` by path, such as `/jobs/{job_id}`. The last parameter of a path in `deep` may
        contain slashes."""
        self._app = app
        self._root = _RouteNode()
        for path, call in calls.items():
            self._enter(path, call).takes_slashes = path in deep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._found(scope) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
        else:
            call, scope["path_params"] = found
            await call(scope, receive, send)

    def _found(self, scope: Scope) -> Match | None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%2f" not in raw.lower():
            return self.find(scope["path"])
        # An encoded slash is part of a segment's value and does not end the segment.
        words = raw.partition(b"?")[0].decode("latin-1").split("/")
        return self._follow([unquote(word) for word in words])

    def find(self, path: str) -> Match | None:
        return self._follow(path.split("/"))

    def _follow(self, words: Sequence[str]) -> Match | None:
        node, values = self._root, []
        rest: Match | None = None
        for number, word in enumerate(words):
            step = node.words.get(word)
            if step is None:
                step = node.any_word
                if step is None or not word:
                    return rest
                values.append(word)
                if step.takes_slashes:
                    assert step.call is not None
                    last = "/".join(words[number:])
                    rest = step.call, dict(zip(step.names, [*values[:-1], last], strict=True))
            node = step
        if node.call is None:
            return rest
        return node.call, dict(zip(node.names, values, strict=True))

    def _enter(self, path: str, call: ASGIApp) -> _RouteNode:
        node, names = self._root, []
        for word in path.split("/"):
            if word.startswith("{"):
                names.append(word.strip("{}"))
                node.any_word = node = node.any_word or _RouteNode()
            else:
                node = node.words.setdefault(word, _RouteNode())
        node.call, node.names = call, tuple(names)
        return node


B = TypeVar("B")
Q = TypeVar("Q")

log = structlog.get_logger(__name__)

JSON = "application/json"
TOO_MANY_REQUESTS = 429


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No query parameters."""


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """Call with its request read and checked, and all that is needed to answer it."""

    deps: AppDeps
    state: RequestState
    body: B
    query: Q
    path: Mapping[str, str]
    key: Key | None
    raw: bytes
    request: Request
    caller: Caller


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer with headers, or with a status other than the declared one."""

    body: msgspec.Struct
    headers: Mapping[str, str]
    status: int | None = None


@dataclass(frozen=True, slots=True)
class HeaderSpec:
    """Request header that a call reads, as the OpenAPI document shows it."""

    example: str
    pattern: str | None = None
    """Pattern of a valid value; None: a value that cannot be read is ignored."""


Handle = Callable[[Call[Any, Any]], Awaitable[Any]]
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])
_DECLARED: dict[Handle, Operation] = {}


async def _undeclared(call: Call[Any, Any]) -> Any:
    raise NotImplementedError


@dataclass(frozen=True)
class Operation:
    """Operation of the API: its path, body, answers, errors and permission.

    Used as a decorator of the function that serves it.
    """

    method: str
    path: str
    summary: str
    _: KW_ONLY
    handle: Handle = _undeclared
    """Decorated function; its name is the operation's id."""
    tag: str
    permission: Permission
    """Checked before anything of the request is read."""
    body: Any = None
    decode: Callable[[bytes], Any] | None = None
    """Decoder of the body, where the usual one will not do."""
    query: type[msgspec.Struct] = NoQuery
    answer: Any = None
    status: int = 200
    errors: Sequence[int] = ()
    description: str = ""
    takes: str = JSON
    gives: str = JSON
    """Media type of the answer, where it is not JSON."""
    reads_body: bool = False
    """The function decodes the body itself; `body` only documents it."""
    body_bytes_max: int = BODY_BYTES_MAX
    streams_in: bool = False
    """The function reads the body itself, piece by piece."""
    streams_out: bool = False
    any_server: bool = False
    """Any server can answer it, from the store; otherwise it goes to the leader."""
    repeatable: bool = False
    """It can be sent again if no answer came, although it writes."""
    without_leader: bool = False
    """Any server can answer it while no server leads."""
    worker_traffic: bool = False
    """Sent by workers all the time: neither audited nor rate limited."""
    headers: Mapping[str, HeaderSpec] = field(default_factory=dict)
    """Request headers that it reads."""
    also: Mapping[int, Any] = field(default_factory=dict)
    """Successful answers other than the usual one, by status."""
    patch_of: Any = None
    """Type that the body, a merge patch, changes."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Names of files in `openapi/examples`: `body`, `answer`, and `answer 200` and so on for those
    of `also` that differ; the document shows each, and a test checks it."""
    slashes: bool = False
    """The last parameter of its path may contain slashes."""

    def __call__(self, handle: H) -> H:
        """Declares the function that serves this operation."""
        _DECLARED[handle] = replace(self, handle=handle)
        return handle

    @property
    def writes(self) -> bool:
        """Whether it may change something, so that an idempotency key makes a repeat safe."""
        return self.method not in ("GET", "HEAD")

    @property
    def open(self) -> bool:
        """Whether it needs no authentication."""
        return self.permission is Permission.OPEN

    @property
    def audited(self) -> bool:
        """Whether it leaves an entry in the audit log."""
        return self.writes and not self.open and not self.worker_traffic


def declared(*handles: Handle) -> tuple[Operation, ...]:
    """Returns the operations of these functions, in this order; all declared ones must be named."""
    found = tuple(_DECLARED[handle] for handle in handles)
    assert len(found) == len(_DECLARED), "a call is declared and not listed, or listed twice"
    return found


class OperationServer:
    """Serves one operation: checks, reads, calls the function, encodes the answer."""

    def __init__(self, operation: Operation, deps: AppDeps, state: RequestState) -> None:
        self.operation = operation
        self._deps = deps
        self._state = state
        self._forwarder = None if operation.any_server else deps.forwarder
        self._query = query_reader(operation.query)
        self._no_query = operation.query is NoQuery
        self._decode: Callable[[bytes], Any] | None = None
        if operation.body is not None and not (operation.streams_in or operation.reads_body):
            usual = msgspec.json.Decoder(operation.body, dec_hook=dec_hook).decode
            self._decode = operation.decode or usual

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; sends nothing if the client has disconnected."""
        piece_bytes = self._deps.limits.answer_piece_bytes
        with self._state.body_budget.for_request() as request_bytes:
            if not is_complete(scope):
                receive = until_stopping(receive, self._deps.closing)
            if not self.operation.streams_in:
                receive = request_bytes.counted(receive)
            try:
                response = await self._answer(scope, receive, send)
                if response is None:
                    return
                # A write has taken effect and must be answered; only a read can be refused.
                if len(response.body) > piece_bytes and not self.operation.writes:
                    request_bytes.add(len(response.body))
            except ClientDisconnectedError:
                return
            except Exception as error:  # noqa: BLE001  (the top of every request)
                response = respond(problem_of(error, scope))
            # A client over its rate limit must not fill the audit log as well.
            if self.operation.audited and response.status_code != TOO_MANY_REQUESTS:
                entry = audit_entry(self._deps, scope, self.operation.path, response)
                self._deps.audit.add(entry)
            if len(response.body) > piece_bytes:
                await request_bytes.deliver(response, send, piece_bytes)
            else:
                await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Returns the response, or None if another server has answered already."""
        caller = caller_of(scope)
        self._admit(caller)
        if self._forwarder is not None:
            unanswered = await self._forwarder.carry(self.operation, scope, receive, send)
            if unanswered is None:
                return None
            receive = unanswered
        call = await self._read(scope, receive, send)
        response = self._render(await self.operation.handle(call))
        if isinstance(response, Stream):
            response.end_when(lambda: self._deps.access.ended(caller))
        return response

    def _admit(self, caller: Caller) -> None:
        permit(self.operation.permission, caller)
        if not (self.operation.worker_traffic or self.operation.open):
            now = self._deps.brain.clock.steady()
            self._deps.access.throttle.check_token(caller.token_id, now)

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> Call[Any, Any]:
        query_string = scope["query_string"]
        query = NO_QUERY if self._no_query and not query_string else self._query.read(query_string)
        raw, body = b"", None
        if self._decode is not None:
            require_json(scope)
            raw = await read_body(scope, receive, self.operation.body_bytes_max)
            body = decode_json(self._decode, self.operation.body, raw)
        elif self.operation.writes and not self.operation.streams_in:
            raw = await read_body(scope, receive, self.operation.body_bytes_max)
        caller = caller_of(scope)
        key = read_key(scope, raw, caller.tenant) if self.operation.writes else None
        path = scope["path_params"]
        request = Request(scope, receive, send)
        return Call(self._deps, self._state, body, query, path, key, raw, request, caller)

    def _render(self, answer: Any) -> Response:
        if isinstance(answer, Response):
            return answer
        headers, status = NO_HEADERS, self.operation.status
        if isinstance(answer, Reply):
            status = answer.status or status
            answer, headers = answer.body, answer.headers
        if answer is None:
            return Response(status_code=status)
        return Response(encode(answer), status, headers=dict(headers), media_type=JSON)


NO_QUERY = NoQuery()


def problem_of(error: Exception, scope: Scope) -> ProblemError:
    """Returns the problem to answer with; logs a bug under the request id that the answer names."""
    problem = from_exception(error)
    if problem is None:
        request_id = mint_request_id()
        log.error(
            "request failed",
            request_id=request_id,
            method=scope["method"],
            path=scope["path"],
            exc_info=error,
            **log_fields_of(scope),
        )
        return fault(request_id)
    # A load balancer asks for /readyz all the time, and gets the reason in the answer.
    if problem.status >= 500 and scope["path"] != "/readyz":
        log.warning(
            "request not served",
            method=scope["method"],
            path=scope["path"],
            status=problem.status,
            cause=str(error) or repr(error),
            **log_fields_of(scope),
        )
    return problem


def log_fields_of(scope: Scope) -> dict[str, str]:
    """Returns fields that identify a request in the log: the ids in its path and the caller's
    trace."""
    params: Mapping[str, str] = scope.get("path_params", {})
    names = {key: _printable(value) for key, value in params.items() if key.endswith("_id")}
    given = header(scope, b"traceparent")
    if given is not None and (found := parse_traceparent(given.decode("latin-1"))):
        names["trace_id"] = found.trace_id
    return names


def audit_entry(deps: AppDeps, scope: Scope, route: str, response: Response) -> AuditEntry:
    """Builds the audit entry of a request; it contains nothing of the body or the answer."""
    caller = caller_of(scope)
    named = next(iter(scope["path_params"].values()), "")
    made = response.headers.get("location", "").rpartition("/")[2]
    return AuditEntry(
        at=deps.brain.clock.now(),
        token_id=caller.token_id,
        token_name=caller.name,
        method=scope["method"],
        route=route,
        target=_printable(named or made),
        status=response.status_code,
        remote=_printable(remote_of(scope)),
        node=deps.node,
    )


def _printable(text: str) -> str:
    """Shortens a text and replaces characters that a database or a terminal cannot take."""
    short = text[:AUDIT_TEXT_MAX]
    if short.isprintable():
        return short
    return "".join(one if one.isprintable() else "?" for one in short)


def read_key(scope: Scope, raw: bytes, tenant: str | None = None) -> Key | None:
    """Reads the idempotency key and computes the fingerprint of the request that it stands for.

    A tenant's keys are separate: the `·` between tenant and key is not ASCII, so no sent key has
    it.
    """
    value = header(scope, b"idempotency-key")
    if value is None:
        return None
    key = value.decode("latin-1")
    if not 1 <= len(key) <= KEY_CHARS_MAX or not key.isascii() or not key.isprintable():
        raise invalid("Idempotency-Key", f"1 to {KEY_CHARS_MAX} printable ASCII characters")
    digest = hashlib.sha256()
    for part in (scope["method"].encode(), scope["path"].encode(), scope["query_string"], raw):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    own = key if tenant is None else f"{tenant} · {key}"
    return Key(key=own, fingerprint=digest.hexdigest())


class PathServer:
    """Serves all operations of one path: selects by method, answers HEAD, OPTIONS and 405
    itself."""

    def __init__(self, servers: Sequence[OperationServer]) -> None:
        self._servers = {server.operation.method: server for server in servers}
        methods = [*self._servers, "OPTIONS", *(["HEAD"] if "GET" in self._servers else [])]
        self.allow = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if server := self._servers.get(method):
            await server(scope, receive, send)
        elif method == "HEAD" and "GET" in self._servers:
            await self._head(self._servers["GET"], scope, receive, send)
        elif method == "OPTIONS":
            await Response(status_code=204, headers={"Allow": self.allow})(scope, receive, send)
        else:
            detail = f"{scope['path']} takes {self.allow}"
            error = ProblemError(405, "method", detail, headers={"Allow": self.allow})
            await respond(error)(scope, receive, send)

    async def _head(
        self, server: OperationServer, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answers like GET up to the head, and cancels the rest before the body is made."""
        head_sent = asyncio.Event()

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                head_sent.set()

        await first_of(server({**scope, "method": "GET"}, receive, send_head), head_sent.wait())
