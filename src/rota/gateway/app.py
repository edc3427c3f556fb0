"""ASGI application of a gateway, with a check of Host and Origin.

It does not authenticate: the cells get the client's token.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.gateway.context import GatewayContext, GatewayRequest
from rota.gateway.forwarding import RefusalError
from rota.gateway.problems import CellDownError, cell_down, respond
from rota.gateway.routing import RELAYED, ROUTES, Route
from rota.gateway.stream import stream_changes
from rota.wire.problems import ClientDisconnectedError, ProblemError

log = structlog.get_logger(__name__)

_SECURITY_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Added where a cell's answer does not have them."""


class HostCheck:
    """Checks Host and Origin as a server does, for the cells do not see the client's."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = tuple(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                present = [name.lower() for name, _ in headers]
                headers += [pair for pair in _SECURITY_HEADERS if pair[0] not in present]
                message["headers"] = headers
            await send(message)

        try:
            self._admit(Headers(scope=scope))
        except ProblemError as error:
            await respond(error)(scope, receive, send_secured)
            return
        await self._app(scope, receive, send_secured)

    def _admit(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            known = ", ".join(self._hosts)
            detail = (
                f"{host[:100]!r} is not a name of this gateway; its names are {known}"
                " (`rota gateway --public-name` adds one)"
            )
            raise ProblemError(421, "wrong_host", detail)
        origin = headers.get("origin")
        # Not parsed as a URL, which fails for some values: it is a scheme and a host.
        same = origin is None or origin.partition("://")[2].lower() == host.lower()
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") or not same:
            raise ProblemError(403, "cross_site", "requests from other web pages are refused")


def _name(host: str) -> str:
    """Returns a host without its port; an IPv6 address without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


_FILE, _FILE_IN_FOLDERS = "/artifacts/{name}", "/artifacts/{name:path}"


def create_app(context: GatewayContext, hosts: Sequence[str]) -> Starlette:
    """Builds the application; `hosts` are the names by which clients reach it."""
    by_path: dict[str, list[Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, []).append(route)
    app = Starlette(
        routes=[
            PathRoute(path.replace(_FILE, _FILE_IN_FOLDERS), PathServer(routes, context))
            for path, routes in by_path.items()
        ],
        middleware=[Middleware(HostCheck, hosts=hosts)],
        exception_handlers={HTTPException: _unrouted},
    )
    # A path with a slash at its end is another one: a redirect would make two requests of a POST.
    app.router.redirect_slashes = False
    return app


async def _unrouted(request: Request, error: Exception) -> Response:
    detail = f"there is nothing at {request.url.path[:200]}; /docs lists every call"
    return respond(ProblemError(404, "not_found", detail))


class PathServer:
    """Serves all calls of one path."""

    def __init__(self, routes: Sequence[Route], context: GatewayContext) -> None:
        self._routes = {route.method: route for route in routes}
        self._context = context
        methods = [*self._routes, "OPTIONS", *(["HEAD"] if "GET" in self._routes else [])]
        self._allow = {"Allow": ", ".join(sorted(methods))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the call of the request's method, and counts the answer."""
        method: str = scope["method"]

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._context.metrics.served(method, message["status"])
            await send(message)

        if method == "OPTIONS":
            await Response(status_code=204, headers=self._allow)(scope, receive, send_counted)
        elif method == "HEAD" and "GET" in self._routes:
            await self._head(self._routes["GET"], scope, receive, send_counted)
        elif method in self._routes:
            await self._serve(self._routes[method], scope, receive, send_counted)
        else:
            detail = f"{scope['path']} takes {self._allow['Allow']}"
            error = ProblemError(405, "method", detail, headers=self._allow)
            await respond(error)(scope, receive, send_counted)

    async def _head(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        if route.serve in RELAYED:
            await self._serve(route, scope, receive, send)
        elif route.serve is stream_changes:
            await Response(media_type="text/event-stream")(scope, receive, send)
        else:

            async def send_head(message: Message) -> None:
                if message["type"] == "http.response.body":
                    message = {**message, "body": b""}
                await send(message)

            await self._serve(route, {**scope, "method": "GET"}, receive, send_head)

    async def _serve(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            async with self._context.bodies.reading(headers, receive) as body:
                request = GatewayRequest(self._context, scope, headers, scope["path_params"], body)
                response = await route.serve(request)
        except ClientDisconnectedError:
            return
        except Exception as error:  # noqa: BLE001  (the top of every request)
            response = _answer(error, scope)
        await response(scope, receive, send)


def _answer(error: Exception, scope: Scope) -> Response:
    match error:
        case ProblemError():
            return respond(error)
        case RefusalError():
            return error.response.as_response()
        case CellDownError():
            return respond(cell_down(error))
        case _:
            log.error("request_failed", method=scope["method"], path=scope["path"], exc_info=error)
            return respond(ProblemError(500, "fault", "the gateway failed; its log says why"))
