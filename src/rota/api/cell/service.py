"""The service itself: health, metrics, dead letters, signing in."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from rota.api.customs.paging import Cursor, Limit, read_id_cursor
from rota.api.door.roles import Permission
from rota.api.door.sessions import ended_cookie, open_session, session_cookie
from rota.api.jobs.jobs import job_page
from rota.api.metrics import (
    CONTENT_TYPE,
    AlertCollector,
    ConnectionCollector,
    LeadershipCollector,
    ServerCollector,
    expose,
)
from rota.api.routes import Call, NoQuery, Operation
from rota.core.model import JobState
from rota.store.queries import JobQuery
from rota.wire.jobs import JobPage
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.problems import ProblemError
from rota.wire.service import Health


class DeadLettersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters to list."""

    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "GET",
    "/healthz",
    "Is the server alive?",
    tag="Service",
    permission=Permission.OPEN,
    any_server=True,
    answer=Health,
    examples={"answer": "show_alive"},
)
async def show_alive(call: Call[None, NoQuery]) -> Health:
    """The process answers."""
    return Health("ok", cell=call.deps.cell)


@Operation(
    "GET",
    "/dead-letters",
    "Jobs that used up their attempts, newest first",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    query=DeadLettersQuery,
    answer=JobPage,
    examples={"answer": "jobs"},
)
async def list_dead_letters(call: Call[None, DeadLettersQuery]) -> JobPage:
    """Jobs that used up their attempts, newest first."""
    query = JobQuery(
        states=(JobState.FAILED,),
        queue=call.query.queue,
        tenant=call.query.tenant,
        name=call.query.name,
        before=read_id_cursor(call.query.cursor),
        limit=call.query.limit + 1,
    )
    return await job_page(call, query)


@Operation(
    "POST",
    "/session",
    "Sign a browser in with a token",
    tag="Service",
    permission=Permission.KNOWN,
    any_server=True,
    status=204,
    description="Sets an HttpOnly cookie that stands for the token sent.",
)
async def sign_in(call: Call[None, NoQuery]) -> Response:
    """Turns a token into a browser's session; a session does not prolong itself."""
    access, host = call.deps.access, call.request.headers["host"]
    if access.no_auth:
        return Response(status_code=204)
    token = access.tokens.by_id(call.caller.token_id)
    if token is None or call.caller.by_browser:
        detail = "send `Authorization: Bearer TOKEN` with a token of this server"
        raise ProblemError(401, "unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})
    value = open_session(access.tokens, token, call.deps.brain.clock.now())
    cookie = session_cookie(value, host, secure=access.secure_cookies)
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@Operation(
    "DELETE",
    "/session",
    "Sign this browser out",
    tag="Service",
    permission=Permission.OPEN,
    any_server=True,
    status=204,
)
async def sign_out(call: Call[None, NoQuery]) -> Response:
    """Ends this browser's session."""
    return Response(
        status_code=204, headers={"Set-Cookie": ended_cookie(call.request.headers["host"])}
    )


@Operation(
    "GET",
    "/metrics",
    "Figures for Prometheus",
    tag="Service",
    permission=Permission.READ_ALL,
    any_server=True,
    gives=CONTENT_TYPE,
    examples={"answer": "show_metrics"},
)
async def show_metrics(call: Call[None, NoQuery]) -> Response:
    """The text that Prometheus reads."""
    parts = call.deps
    await parts.brain.settled()
    collector = ServerCollector(parts.brain, parts.metrics, call.state.usage, parts.disk_free)
    standing = LeadershipCollector(parts.brain, parts.durability, parts.membership)
    alerts = AlertCollector(parts.brain, parts.alerts)
    accept = call.request.headers.get("accept", "")
    text, content_type = expose(
        accept, collector, standing, alerts, ConnectionCollector(parts.connections)
    )
    return Response(text, headers={"Content-Type": content_type})
