"""The servers of a cell, as each tells of itself; beside the journal, and never asked to decide."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from rota.core.model import Instant, Millis
from rota.store.limits import NODE_KEPT_MS


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself. Written with names, so that other versions can read it."""

    node: str
    address: str = ""
    """Where the others reach it."""
    version: str = ""
    leads: bool = False
    epoch: int = 0
    seq: int = 0
    """The newest journal record it has."""
    behind_records: int = 0
    behind_ms: Millis = 0
    started_at: Instant = 0
    unreached: int = 0
    """The epoch whose leader it has reached before and cannot reach now; 0: there is none."""


class SeenNode(msgspec.Struct, frozen=True):
    """What it said last, and how long ago by the store's own clock."""

    announced: Node
    silent_ms: Millis


class Nodes(Protocol):
    """Who is there."""

    async def announce(self, node: Node) -> None:
        """Puts what a server says in the place of what it said before; forgets the long gone."""
        ...

    async def leave(self, name: str) -> None:
        """The server has stopped, and is no longer listed."""
        ...

    async def everyone(self) -> Sequence[SeenNode]:
        """All that spoke within a day, by name."""
        ...


class MemoryNodes:
    """The same within one process: for SQLite, whose directory has one server, and for tests."""

    def __init__(self) -> None:
        self._last_announced: dict[str, tuple[Node, float]] = {}

    async def announce(self, node: Node) -> None:
        """Takes what it says."""
        now = asyncio.get_running_loop().time()
        self._last_announced[node.node] = (node, now)
        oldest = now - NODE_KEPT_MS / 1000
        self._last_announced = {
            name: said for name, said in self._last_announced.items() if said[1] > oldest
        }

    async def leave(self, name: str) -> None:
        """It has stopped."""
        self._last_announced.pop(name, None)

    async def everyone(self) -> Sequence[SeenNode]:
        """All of them, by name."""
        now = asyncio.get_running_loop().time()
        return [
            SeenNode(node, int((now - at) * 1000))
            for _, (node, at) in sorted(self._last_announced.items())
        ]
