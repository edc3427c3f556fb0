"""Sets up a server's part in its cell: forwarding to the leader, membership, durability, unique
names.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from rota import __version__
from rota.api.cluster.leaderless_submit import LeaderlessInbox
from rota.api.deps import AppDeps
from rota.cli.start.up import ServerOptions, UpOptions
from rota.engine.durability import DurabilityMonitor
from rota.engine.leadership import CellMember
from rota.engine.membership import Membership
from rota.store.documents import Node
from rota.store.protocol import DurabilityLevel, Store

if TYPE_CHECKING:
    from rota.api.cluster.forward import Forwarder
    from rota.api.cluster.reach import Reach

NODES_POLL_S = 0.3
"""Interval of checking whether a server of the same name reports."""
GONE_MS = 3_500
"""A server that reports every second and has been silent for this long has ended."""


@dataclass(frozen=True, slots=True)
class ClusterMembership:
    """Background tasks of a server's part in its cell."""

    durability: DurabilityMonitor
    forwarder: Forwarder | None = None
    membership: Membership | None = None
    reach: Reach | None = None

    async def stop(self) -> None:
        """Leaves the cell; the store must still be open."""
        if self.reach is not None:
            await self.reach.stop()
        if self.forwarder is not None:
            await self.forwarder.stop()
        if self.membership is not None:
            await self.membership.stop()
        await self.durability.stop()


async def open_durability(options: UpOptions | ServerOptions, store: Store) -> DurabilityMonitor:
    """Asks what the store's commits are worth, and goes on asking."""
    monitor = DurabilityMonitor(store, DurabilityLevel(options.require_durability))
    await monitor.start()
    return monitor


async def join_cluster(
    parts: AppDeps, store: Store, member: CellMember, tls: ssl.SSLContext | None
) -> tuple[AppDeps, ClusterMembership]:
    """Adds the parts of a server that shares its store; alone it has no peer to forward to."""
    if member.ttl_ms is None:
        return parts, ClusterMembership(parts.durability)
    me = Node(
        node=member.node,
        address=member.address,
        version=__version__,
        started_at=parts.started_at,
    )
    membership = Membership(store, parts.brain, me, member.limits)
    await membership.start()
    # Its HTTP client is slow to load, and a server that is alone never needs one.
    from rota.api.cluster.forward import Forwarder, open_http
    from rota.api.cluster.reach import Reach

    http = open_http(tls)
    forwarder = Forwarder(parts.brain, parts.access.tokens, member.node, parts.closing, http)
    inbox = LeaderlessInbox(store, parts.brain.clock)
    joined = replace(parts, forwarder=forwarder, leaderless_inbox=inbox, membership=membership)
    reach = Reach(parts.brain, membership, http)
    return joined, ClusterMembership(parts.durability, forwarder, membership, reach)


async def refuse_duplicate_name(store: Store, me: CellMember, *, gone_ms: int = GONE_MS) -> None:
    """Refuses a name that another server has: they would overwrite each other's row.

    What stands there may be this server's own past, from before it was killed. That had the same
    address, which two cannot have at once; one at another address is alive if it speaks again.
    """
    silent_ms: int | None = None
    while me.ttl_ms is not None:
        seen = {one.announced.node: one for one in await store.nodes.everyone()}.get(me.node)
        if seen is None or seen.announced.address == me.address or seen.silent_ms > gone_ms:
            return
        if silent_ms is not None and seen.silent_ms < silent_ms:
            await store.close()  # this server has no use for it, and nothing else is open yet
            raise click.ClickException(
                f"a server called {me.node!r} is in this cell already, at {seen.announced.address}:"
                " give this one another --node name"
            )
        silent_ms = seen.silent_ms
        await asyncio.sleep(NODES_POLL_S)


async def trust_of(options: UpOptions | ServerOptions) -> ssl.SSLContext | None:
    """Loads the authorities that certify other servers; None: those of the system."""
    if options.peer_ca is None:
        return None
    path = str(options.peer_ca)
    try:
        return await asyncio.to_thread(ssl.create_default_context, cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise click.ClickException(f"cannot read {path} as certificates in PEM: {error}") from error
