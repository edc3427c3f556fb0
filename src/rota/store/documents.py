"""Small documents by name: settings, notes, webhook endpoints, and the servers of a cell.

Webhook secrets and notes stay out of the journal, which many may read. A signature can only be
checked with the secret itself, so it is kept as it is; nothing ever shows it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from rota.core.model import Instant, Millis, RuntimeStats, Tenant
from rota.core.policy import Policy
from rota.store.limits import NODE_KEPT_MS
from rota.store.table_changes import TableChanges


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint: how its messages are signed, and what kind of events they are."""

    name: str
    scheme: str
    """`github`, `stripe` or `rota`."""
    secrets: tuple[str, ...]
    """Any of them signs: a new one can be told to the sender before the old one goes."""
    type: str
    """The type of its events, or how it begins where the sender names kinds of its own."""
    tolerance_ms: Millis
    """How old a signature may be, where it says when it was made."""
    created_at: Instant
    updated_at: Instant

    def __repr__(self) -> str:
        return f"Hook({self.name!r}, {self.scheme!r}, <{len(self.secrets)} secrets>)"


class Hooks(Protocol):
    """Webhook endpoints; every call goes to the store, so all servers of a cell agree."""

    async def put(self, hook: Hook) -> None:
        """As given, in place of one of the same name."""
        ...

    async def get(self, name: str) -> Hook | None:
        """One of them."""
        ...

    async def list(self) -> Sequence[Hook]:
        """All, by name."""
        ...

    async def drop(self, name: str) -> bool:
        """Removes one; False: there was none."""
        ...


_encode_hook_body = msgspec.msgpack.Encoder().encode
_decode_hook_body = msgspec.msgpack.Decoder(Hook).decode


def encode_hook(hook: Hook) -> bytes:
    """For the table."""
    return _encode_hook_body(hook)


def decode_hook(body: bytes) -> Hook:
    """From the table."""
    return _decode_hook_body(body)


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


NOTE_KIND = "note"
"""Of their rows: what the fold writes into the same table is of other kinds."""


class Notes(Protocol):
    """Notes by name; every call goes to the store, so all servers of a cell agree."""

    async def put(self, name: str, body: bytes) -> None:
        """Durable when it returns; in place of one of the same name."""
        ...

    async def get(self, name: str) -> bytes | None:
        """One of them."""
        ...


_encode = msgspec.msgpack.Encoder().encode
_decode_policy = msgspec.msgpack.Decoder(Policy).decode
_decode_tenant = msgspec.msgpack.Decoder(Tenant).decode
_decode_runtime = msgspec.msgpack.Decoder(RuntimeStats).decode

_BETWEEN = "\x1f"
"""Between a tenant and a name: it is in neither."""


class Settings(msgspec.Struct, frozen=True):
    """The policy, the tenants' weights and quotas, and how long jobs of each name ran."""

    policy: Policy | None = None
    tenants: Sequence[Tenant] = ()
    runtimes: Sequence[RuntimeStats] = ()

    def after(self, folded: TableChanges) -> Settings:
        """The same with what was set since."""
        if folded.policy is None and not folded.tenants and not folded.runtimes:
            return self
        tenants = {one.name: one for one in self.tenants} | folded.tenants
        runtimes = {(one.tenant, one.name): one for one in self.runtimes} | folded.runtimes
        return Settings(
            folded.policy or self.policy,
            [tenants[name] for name in sorted(tenants)],
            [runtimes[key] for key in sorted(runtimes)],
        )


def setting_rows(folded: TableChanges) -> list[tuple[str, str, bytes]]:
    """(kind, name, body) of all that was set."""
    found = [("tenant", name, _encode(one)) for name, one in folded.tenants.items()]
    found += [("runtime", _BETWEEN.join(key), _encode(one)) for key, one in folded.runtimes.items()]
    if folded.policy is not None:
        found.append(("policy", "", _encode(folded.policy)))
    return found


def read_settings(found: Iterable[tuple[str, bytes]]) -> Settings:
    """From (kind, body); other kinds are not the scheduler's (notes.py)."""
    policy: Policy | None = None
    tenants: list[Tenant] = []
    runtimes: list[RuntimeStats] = []
    for kind, body in found:
        if kind == "policy":
            policy = _decode_policy(body)
        elif kind == "tenant":
            tenants.append(_decode_tenant(body))
        elif kind == "runtime":
            runtimes.append(_decode_runtime(body))
    tenants.sort(key=lambda one: one.name)
    runtimes.sort(key=lambda one: (one.tenant, one.name))
    return Settings(policy, tenants, runtimes)
