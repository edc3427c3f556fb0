"""Servers of a cell, notes and webhook endpoints in PostgreSQL; times are the database's."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.store.damage import Damage
from rota.store.documents import (
    NOTE_KIND,
    Hook,
    Node,
    SeenNode,
    decode_hook,
    encode_hook,
    setting_body,
    setting_row,
)
from rota.store.limits import NODE_KEPT_MS
from rota.store.postgres.connect import DedicatedConnection
from rota.store.postgres.glance import Glance, Part

_IS_OLD = f"seen_at < now() - {NODE_KEPT_MS} * interval '1 ms'"
_FORGET = f"DELETE FROM rota.nodes WHERE {_IS_OLD}"
_COLUMNS = f"""
ARRAY (SELECT body FROM rota.nodes WHERE NOT {_IS_OLD} ORDER BY node),
ARRAY (
    SELECT (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint
    FROM rota.nodes WHERE NOT {_IS_OLD} ORDER BY node
)
"""
_EVERYONE = Part(3, _COLUMNS, 2)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Node).decode


class PostgresNodes:
    """Servers of a cell. Writes do not wait for the disk: a server announces itself every
    second."""

    def __init__(self, connection: DedicatedConnection, glance: Glance) -> None:
        self._connection = connection
        self._glance = glance
        self._has_forgotten = False

    async def announce(self, node: Node) -> None:
        await self._glance.tell(node.node, _encode(node))
        if not self._has_forgotten:
            # Once after a server's start is enough: `everyone` leaves out those who are long gone.
            await self._connection.read(lambda c: c.execute(_FORGET))
            self._has_forgotten = True

    async def leave(self, name: str) -> None:
        await self._connection.read(
            lambda c: c.execute("DELETE FROM rota.nodes WHERE node = $1", name)
        )

    async def everyone(self) -> Sequence[SeenNode]:
        bodies, silent = await self._glance.see(_EVERYONE)
        return [
            SeenNode(_decode(body), max(0, silent_ms))
            for body, silent_ms in zip(bodies, silent, strict=True)
        ]


class PostgresNotes:
    """Notes in PostgreSQL, shared by all servers of a cell."""

    def __init__(self, connection: DedicatedConnection) -> None:
        self._connection = connection

    async def put(self, name: str, body: bytes) -> None:
        sql = (
            "INSERT INTO rota.settings VALUES ($1, $2, $3)"
            " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body"
        )
        row = setting_row(NOTE_KIND, name, body)
        await self._connection.write(lambda c: c.execute(sql, *row))

    async def get(self, name: str) -> bytes | None:
        sql = "SELECT body FROM rota.settings WHERE kind = $1 AND name = $2"
        found: bytes | None = await self._connection.read(
            lambda c: c.fetchval(sql, NOTE_KIND, name)
        )
        return None if found is None else setting_body(NOTE_KIND, name, found)


class PostgresHooks:
    """Webhook endpoints in PostgreSQL, shared by all servers of a cell."""

    def __init__(self, connection: DedicatedConnection) -> None:
        self._connection = connection

    async def put(self, hook: Hook) -> None:
        sql = (
            "INSERT INTO rota.hooks VALUES ($1, $2)"
            " ON CONFLICT (name) DO UPDATE SET body = excluded.body"
        )
        await self._connection.write(lambda c: c.execute(sql, hook.name, encode_hook(hook)))

    async def get(self, name: str) -> Hook | None:
        sql = "SELECT body FROM rota.hooks WHERE name = $1"
        body = await self._connection.read(lambda c: c.fetchval(sql, name))
        return None if body is None else decode_hook(name, body)

    async def list(self) -> Sequence[Hook]:
        sql = "SELECT name, body FROM rota.hooks ORDER BY name"
        found = await self._connection.read(lambda c: c.fetch(sql))
        return Damage().whole(lambda row: decode_hook(*row), found)

    async def drop(self, name: str) -> bool:
        sql = "DELETE FROM rota.hooks WHERE name = $1 RETURNING name"
        return await self._connection.write(lambda c: c.fetchval(sql, name)) is not None
