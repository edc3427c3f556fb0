"""Endpoints of the service: health, readiness, cluster, metrics, sign-in, failed jobs."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from rota.api.auth.roles import Permission
from rota.api.auth.sessions import ended_cookie, open_session, session_cookie
from rota.api.deps import AppDeps
from rota.api.limits import NODE_SILENT_MS
from rota.api.metrics import (
    CONTENT_TYPE,
    AlertCollector,
    ConnectionCollector,
    LeadershipCollector,
    ServerCollector,
    expose,
)
from rota.api.router import Call, NoQuery, Operation
from rota.engine.ports import LeadershipStatus, UnavailableError
from rota.store.documents import Node, SeenNode
from rota.wire.formats import from_instant
from rota.wire.problems import ProblemError
from rota.wire.service import ClusterView, Health, LagView, NodeView

LEADER, FOLLOWER = "leader", "follower"


@Operation(
    "GET",
    "/readyz",
    "Check that the server can accept and schedule, or forward",
    tag="Service",
    permission=Permission.OPEN,
    any_server=True,
    answer=Health,
    description=(
        "`role` says whether it leads. A follower is ready when it knows the leader and could "
        "take over."
    ),
    examples={"answer": "show_ready"},
)
async def show_ready(call: Call[None, NoQuery]) -> Health:
    """A leader can accept and schedule, a follower can forward and take over."""
    parts = call.deps
    if parts.closing.is_set():
        raise UnavailableError("the server is stopping")
    if parts.durability.refusal:
        raise UnavailableError(f"not ready: {parts.durability.refusal}")
    if parts.brain.ready:
        return Health("ok", cell=parts.cell, role=LEADER)
    standing = parts.brain.standing()
    # A follower that has read nothing yet could forward, but not take over.
    if parts.forwarder is not None and standing.leader is not None and standing.seq:
        detail = f"{standing.leader} leads"
        return Health("ok", detail, cell=parts.cell, role=FOLLOWER)
    raise UnavailableError(f"not ready: {parts.brain.trouble}")


@Operation(
    "GET",
    "/cluster",
    "Show the leader, all servers and the durability",
    tag="Service",
    permission=Permission.KNOWN,
    any_server=True,
    answer=ClusterView,
    examples={"answer": "cluster"},
)
async def show_cluster(call: Call[None, NoQuery]) -> ClusterView:
    """Who leads, who is there, and how durable an answer is."""
    parts = call.deps
    standing = parts.brain.standing()
    seen = await _everyone(parts, standing)
    now = parts.brain.clock.now()
    return ClusterView(
        leader=standing.leader,
        epoch=standing.epoch,
        nodes=[_node_view(one, standing.leader, now) for one in seen],
        durability=parts.durability.level.value,
        warnings=_warnings(parts, standing, seen),
    )


async def _everyone(parts: AppDeps, standing: LeadershipStatus) -> Sequence[SeenNode]:
    if parts.membership is not None:
        return await parts.membership.all_nodes()
    alone = Node(
        node=parts.node,
        version=parts.version,
        leads=standing.leads,
        epoch=standing.epoch,
        seq=standing.seq,
        started_at=parts.started_at,
    )
    return [SeenNode(alone, 0)]


def _node_view(seen: SeenNode, leader: str | None, now: int) -> NodeView:
    told = seen.announced
    return NodeView(
        node=told.node,
        address=told.address,
        role=LEADER if told.node == leader else FOLLOWER,
        status="silent" if seen.silent_ms > NODE_SILENT_MS else "up",
        version=told.version,
        lag=LagView(told.behind_records, told.behind_ms / 1000),
        last_seen=from_instant(now - seen.silent_ms),
        started_at=from_instant(told.started_at),
    )


def _warnings(parts: AppDeps, standing: LeadershipStatus, seen: Sequence[SeenNode]) -> list[str]:
    warnings = [*parts.durability.warnings, *parts.files.warnings]
    if parts.durability.refusal:
        warnings.append(parts.durability.refusal)
    if standing.leader is None:
        warnings.append(f"nobody leads: {parts.brain.trouble or 'a server is about to'}")
    silent = [one.announced.node for one in seen if one.silent_ms > NODE_SILENT_MS]
    if silent:
        warnings.append(f"silent: {', '.join(silent)}")
    versions = sorted({one.announced.version for one in seen if one.silent_ms <= NODE_SILENT_MS})
    if len(versions) > 1:
        warnings.append(f"servers of different versions: {', '.join(versions)}")
    return warnings


@Operation(
    "GET",
    "/healthz",
    "Check that the server is alive",
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
    "POST",
    "/session",
    "Sign a browser in with a token",
    tag="Service",
    permission=Permission.KNOWN,
    any_server=True,
    status=204,
    description="Sets an HttpOnly cookie that stands for the token.",
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
    "Show metrics for Prometheus",
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
