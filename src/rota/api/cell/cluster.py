"""The cell as this server sees it: who leads, who is there, what an answer is worth."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api.door.roles import Permission
from rota.api.limits import NODE_SILENT_MS
from rota.api.parts import AppDeps
from rota.api.routes import Call, NoQuery, Operation
from rota.engine.ports import LeadershipStatus, UnavailableError
from rota.store.documents import Node, SeenNode
from rota.wire.service import ClusterView, Health, LagView, NodeView
from rota.wire.units import from_instant

LEADER, FOLLOWER = "leader", "follower"


@Operation(
    "GET",
    "/readyz",
    "Can it accept and schedule, or forward?",
    tag="Service",
    permission=Permission.OPEN,
    any_server=True,
    answer=Health,
    description=(
        "`role` says whether it leads. A follower is ready when it knows the leader "
        "and could take over."
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
    "Who leads, who is there, and how durable an answer is",
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
