"""Assembles the API as one ASGI application: authentication, calls, OpenAPI document and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from rota.api.auth.authenticator import Authenticator
from rota.api.deps import AppDeps, RequestState
from rota.api.endpoints import OPERATIONS
from rota.api.ids import IdMint
from rota.api.openapi.document import build_document
from rota.api.problems import respond
from rota.api.router import Operation, OperationServer, PathServer, Router
from rota.api.static_pages import PageServer, document_page, load_pages
from rota.wire.formats import encode
from rota.wire.problems import ProblemError

__all__ = ["AppDeps", "create_app"]


def create_app(parts: AppDeps) -> ASGIApp:
    """The whole HTTP side of a server, as an ASGI application.

    The framework only serves what is no call: pages, and paths that lead nowhere.
    """
    calls = _servers_by_path(OPERATIONS, parts, RequestState(ids=IdMint(parts.cell)))
    pages = [*load_pages(), document_page(partial(_document, parts.version))]
    others = Starlette(
        routes=[
            *(Route(path, call) for path, call in calls.items()),
            *(Route(page.path, PageServer(page, parts)) for page in pages),
        ],
        exception_handlers={HTTPException: _not_found},
    )
    # A slash at the end is another path: a redirect would turn a POST into two.
    others.router.redirect_slashes = False
    deep = [operation.path for operation in OPERATIONS if operation.slashes]
    return Authenticator(Router(others, calls, deep), parts.access, parts.brain.clock)


@cache
def _document(version: str) -> bytes:
    """Made once: it depends on nothing that a server has of its own."""
    return encode(build_document(OPERATIONS, version))


def _servers_by_path(
    operations: Sequence[Operation], parts: AppDeps, desk: RequestState
) -> Mapping[str, PathServer]:
    """By their paths."""
    by_path: dict[str, list[OperationServer]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(OperationServer(operation, parts, desk))
    return {path: PathServer(servers) for path, servers in by_path.items()}


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"there is nothing at {request.url.path[:200]}; /docs lists every call"
    if error.status_code != 404:
        detail = error.detail
    return respond(ProblemError(error.status_code, "not_found", detail))
