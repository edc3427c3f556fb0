"""Endpoints of the service: health, readiness, cluster, metrics, sign-in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.responses import Response

from rota.api.auth.roles import Permission
from rota.api.auth.sessions import ended_cookie, open_session, session_cookie
from rota.api.deps import AppDeps
from rota.api.limits import LOSS_WARNING_MS, NODE_SILENT_MS
from rota.api.metrics import (
    CONTENT_TYPE,
    AlertCollector,
    ConnectionCollector,
    LeadershipCollector,
    ServerCollector,
    StoreCollector,
    expose,
)
from rota.api.problems import not_ready
from rota.api.router import Call, NoQuery, Operation
from rota.engine.health import NO_LEADER
from rota.engine.ports import LeadershipStatus
from rota.store.documents import Node, SeenNode
from rota.wire.formats import from_instant
from rota.wire.problems import ProblemError
from rota.wire.service import ClusterView, Health, LagView, LossView, NodeView

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
        "take over. 503 lists the `reasons`: no leader within reach, tables that cannot follow the "
        "journal, spilled jobs that cannot be read, a process that keeps ending, each for ten "
        "seconds."
    ),
    examples={"answer": "show_ready"},
)
async def show_ready(call: Call[None, NoQuery]) -> Health:
    """Answers 200 on a leader that can accept and schedule, and on a follower that could take
    over; else 503 with all reasons."""
    deps = call.deps
    if deps.closing.is_set():
        raise not_ready(["the server is stopping"])
    refusal = [deps.durability.refusal] if deps.durability.refusal else []
    reasons = [*refusal, *(issue.reason for issue in deps.health.issues())]
    if reasons:
        raise not_ready(reasons)
    if deps.brain.ready:
        return Health("ok", cell=deps.cell, role=LEADER)
    leader = deps.brain.standing().leader
    detail = f"{leader} leads" if leader is not None else "no server leads at the moment"
    return Health("ok", detail, cell=deps.cell, role=FOLLOWER)


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
    deps = call.deps
    standing = deps.brain.standing()
    seen = await _everyone(deps, standing)
    now = deps.brain.clock.now()
    losses = await deps.durability.look_for_losses()
    return ClusterView(
        leader=standing.leader,
        epoch=standing.epoch,
        nodes=[_node_view(one, standing.leader, now) for one in seen],
        durability=deps.durability.level.value,
        warnings=_warnings(deps, standing, seen),
        lost_records=losses.records,
        losses=[LossView(one.records, from_instant(one.at), one.after) for one in losses.each],
    )


async def _everyone(deps: AppDeps, standing: LeadershipStatus) -> Sequence[SeenNode]:
    if deps.membership is not None:
        return await deps.membership.all_nodes()
    alone = Node(
        node=deps.node,
        version=deps.version,
        leads=standing.leads,
        epoch=standing.epoch,
        seq=standing.seq,
        started_at=deps.started_at,
    )
    return [SeenNode(alone, 0)]


def _node_view(seen: SeenNode, leader: str | None, now: int) -> NodeView:
    node = seen.announced
    return NodeView(
        node=node.node,
        address=node.address,
        role=LEADER if node.node == leader else FOLLOWER,
        status="silent" if seen.silent_ms > NODE_SILENT_MS else "up",
        version=node.version,
        lag=LagView(node.behind_records, node.behind_ms / 1000),
        last_seen=from_instant(now - seen.silent_ms),
        started_at=from_instant(node.started_at),
    )


def _warnings(deps: AppDeps, standing: LeadershipStatus, seen: Sequence[SeenNode]) -> list[str]:
    warnings = [*deps.durability.warnings, *deps.files.warnings]
    if deps.durability.refusal:
        warnings.append(deps.durability.refusal)
    if standing.leader is None:
        warnings.append(f"no server leads: {deps.brain.trouble or 'one is about to'}")
    silent = [one.announced.node for one in seen if one.silent_ms > NODE_SILENT_MS]
    if silent:
        warnings.append(f"servers are silent: {', '.join(silent)}")
    warnings += [issue.text for issue in deps.health.issues() if issue.code != NO_LEADER]
    warnings += _store_warnings(deps)
    versions = sorted({one.announced.version for one in seen if one.silent_ms <= NODE_SILENT_MS})
    if len(versions) > 1:
        warnings.append(f"servers have different versions: {', '.join(versions)}")
    return warnings


def _store_warnings(deps: AppDeps) -> Iterator[str]:
    """Yields what is wrong with the tables and the journal."""
    if quarantined := deps.journal.projection.quarantined:
        jobs = "1 job is" if quarantined == 1 else f"{quarantined} jobs are"
        yield f"{jobs} in quarantine, because the tables refuse their changes: see rota doctor"
    oldest = deps.brain.clock.now() - LOSS_WARNING_MS
    for loss in deps.durability.losses.each:
        if loss.at >= oldest:
            lost = f"{loss.records} records" if loss.records else "an unknown number of records"
            yield (
                f"a failover of the database lost {lost} after record {loss.after}, noticed at"
                f" {from_instant(loss.at)}: jobs accepted then may be missing"
            )


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
    """Opens a browser session for a token; a session cannot extend itself."""
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
    deps = call.deps
    await deps.brain.settled()
    collector = ServerCollector(deps.brain, deps.metrics, call.state.usage, deps.disk_free)
    standing = LeadershipCollector(deps.brain, deps.durability, deps.membership)
    alerts = AlertCollector(deps.brain, deps.alerts)
    accept = call.request.headers.get("accept", "")
    store = StoreCollector(deps.brain, deps.metrics)
    connections = ConnectionCollector(deps.connections)
    text, content_type = expose(accept, collector, store, standing, alerts, connections)
    return Response(text, headers={"Content-Type": content_type})
