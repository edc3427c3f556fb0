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


def create_app(deps: AppDeps) -> ASGIApp:
    """Builds the HTTP side of a server as one ASGI application.

    Starlette serves only what is no call: the pages, and the 404 of a path that does not exist.
    """
    calls = _servers_by_path(OPERATIONS, deps, RequestState(ids=IdMint(deps.cell)))
    pages = [*load_pages(), document_page(partial(_document, deps.version))]
    others = Starlette(
        routes=[
            *(Route(path, call) for path, call in calls.items()),
            *(Route(page.path, PageServer(page, deps)) for page in pages),
        ],
        exception_handlers={HTTPException: _not_found},
    )
    # A path with a slash at the end is another path: a redirect would make a POST two requests.
    others.router.redirect_slashes = False
    deep = [operation.path for operation in OPERATIONS if operation.slashes]
    return Authenticator(Router(others, calls, deep), deps.access, deps.brain.clock)


@cache
def _document(version: str) -> bytes:
    """Encodes the OpenAPI document once: it is the same for every server of this version."""
    return encode(build_document(OPERATIONS, version))


def _servers_by_path(
    operations: Sequence[Operation], deps: AppDeps, state: RequestState
) -> Mapping[str, PathServer]:
    by_path: dict[str, list[OperationServer]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(OperationServer(operation, deps, state))
    return {path: PathServer(servers) for path, servers in by_path.items()}


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"there is nothing at {request.url.path[:200]}; /docs lists every call"
    if error.status_code != 404:
        detail = error.detail
    return respond(ProblemError(error.status_code, "not_found", detail))
