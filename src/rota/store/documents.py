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
from rota.store.checksums import opened, row_key, sealed
from rota.store.damage import Damage
from rota.store.errors import DamagedRowError
from rota.store.limits import NODE_KEPT_MS
from rota.store.table_changes import TableChanges


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Webhook endpoint: how its messages are signed, and what type of events they are.

    Stored by the names of its fields.
    """

    name: str
    scheme: str
    """`github`, `stripe` or `rota`."""
    secrets: tuple[str, ...]
    """Any of them is accepted: a new one can be in use before the old one is removed."""
    type: str
    """The type of its events, or its prefix where the sender names kinds of its own."""
    tolerance_ms: Millis
    """How old a signature may be, where it carries a time."""
    created_at: Instant
    updated_at: Instant

    def __repr__(self) -> str:
        return f"Hook({self.name!r}, {self.scheme!r}, <{len(self.secrets)} secrets>)"


class Hooks(Protocol):
    """Webhook endpoints; every call goes to the store, so all servers of a cell agree."""

    async def put(self, hook: Hook) -> None:
        """Keeps it in place of one of the same name."""
        ...

    async def get(self, name: str) -> Hook | None: ...

    async def list(self) -> Sequence[Hook]:
        """Returns all, by name."""
        ...

    async def drop(self, name: str) -> bool:
        """Removes it; False: there was none."""
        ...


_encode_hook_body = msgspec.msgpack.Encoder().encode
_decode_hook_body = msgspec.msgpack.Decoder(Hook).decode


def encode_hook(hook: Hook) -> bytes:
    return sealed(hook.name, _encode_hook_body(hook))


def decode_hook(name: str, body: bytes) -> Hook:
    return _decode_hook_body(opened("webhook endpoint", name, body))


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Announcement of a server. Stored by the names of its fields, so that other versions can read
    it."""

    node: str
    address: str = ""
    """Where other servers reach it."""
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
    """Newest announcement of a server, and its age by the store's own clock."""

    announced: Node
    silent_ms: Millis


class Nodes(Protocol):
    """Servers that share the store."""

    async def announce(self, node: Node) -> None:
        """Replaces the server's earlier announcement; forgets servers that are long gone."""
        ...

    async def leave(self, name: str) -> None:
        """Removes a server that has stopped."""
        ...

    async def everyone(self) -> Sequence[SeenNode]:
        """Returns all that announced themselves within a day, by name."""
        ...


class MemoryNodes:
    """Servers within one process: for SQLite, whose directory has one server, and for tests."""

    def __init__(self) -> None:
        self._last_announced: dict[str, tuple[Node, float]] = {}

    async def announce(self, node: Node) -> None:
        now = asyncio.get_running_loop().time()
        self._last_announced[node.node] = (node, now)
        oldest = now - NODE_KEPT_MS / 1000
        self._last_announced = {
            name: one for name, one in self._last_announced.items() if one[1] > oldest
        }

    async def leave(self, name: str) -> None:
        self._last_announced.pop(name, None)

    async def everyone(self) -> Sequence[SeenNode]:
        now = asyncio.get_running_loop().time()
        return [
            SeenNode(node, int((now - at) * 1000))
            for _, (node, at) in sorted(self._last_announced.items())
        ]


NOTE_KIND = "note"
"""The kind of their rows; the projection writes rows of other kinds into the same table."""


class Notes(Protocol):
    """Notes by name; every call goes to the store, so all servers of a cell agree."""

    async def put(self, name: str, body: bytes) -> None:
        """Keeps it in place of one of the same name; durable when it returns."""
        ...

    async def get(self, name: str) -> bytes | None: ...


_encode = msgspec.msgpack.Encoder().encode
_decode_policy = msgspec.msgpack.Decoder(Policy).decode
_decode_tenant = msgspec.msgpack.Decoder(Tenant).decode
_decode_runtime = msgspec.msgpack.Decoder(RuntimeStats).decode

_SEPARATOR = "\x1f"
"""Between a tenant and a name, neither of which contains it."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of the scheduler: policy, tenants, and run times of jobs by name."""

    policy: Policy | None = None
    tenants: Sequence[Tenant] = ()
    runtimes: Sequence[RuntimeStats] = ()

    def after(self, changes: TableChanges) -> Settings:
        """Returns the same with what was set since."""
        if changes.policy is None and not changes.tenants and not changes.runtimes:
            return self
        tenants = {one.name: one for one in self.tenants} | changes.tenants
        runtimes = {(one.tenant, one.name): one for one in self.runtimes} | changes.runtimes
        return Settings(
            changes.policy or self.policy,
            [tenants[name] for name in sorted(tenants)],
            [runtimes[key] for key in sorted(runtimes)],
        )


def setting_row(kind: str, name: str, body: bytes) -> tuple[str, str, bytes]:
    """Returns kind, name, body."""
    return (kind, name, sealed(row_key(kind, name), body))


def setting_body(kind: str, name: str, body: bytes) -> bytes:
    """Reads kind, name, body."""
    return opened("setting", row_key(kind, name), body)


def setting_rows(changes: TableChanges) -> list[tuple[str, str, bytes]]:
    """Returns (kind, name, body) of all that was set."""
    found = [setting_row("tenant", name, _encode(one)) for name, one in changes.tenants.items()]
    found += [
        setting_row("runtime", _SEPARATOR.join(key), _encode(one))
        for key, one in changes.runtimes.items()
    ]
    if changes.policy is not None:
        found.append(setting_row("policy", "", _encode(changes.policy)))
    return found


def read_settings(found: Iterable[tuple[str, str, bytes]], damage: Damage) -> Settings:
    """Reads (kind, name, body) and leaves out other kinds, such as notes."""
    policy: Policy | None = None
    tenants: list[Tenant] = []
    runtimes: list[RuntimeStats] = []
    for kind, name, stored in found:
        if kind not in ("policy", "tenant", "runtime"):
            continue
        try:
            body = setting_body(kind, name, stored)
        except DamagedRowError as error:
            damage.note(error)
            continue
        if kind == "policy":
            policy = _decode_policy(body)
        elif kind == "tenant":
            tenants.append(_decode_tenant(body))
        else:
            runtimes.append(_decode_runtime(body))
    tenants.sort(key=lambda one: one.name)
    runtimes.sort(key=lambda one: (one.tenant, one.name))
    return Settings(policy, tenants, runtimes)
