"""Listens to a PostgreSQL channel. What is notified while nobody listens is lost there already."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import asyncpg

from rota.events.config import PostgresSource
from rota.events.telling import EventDict, Publisher, event_of_message
from rota.sdk.calls import uuid7
from rota.sdk.clock import SystemClock


class PostgresListener:
    """One connection that listens."""

    def __init__(self, source: PostgresSource, teller: Publisher) -> None:
        self._source = source
        self._publisher = teller
        self._clock = SystemClock()
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()

    async def run(self) -> None:
        """Until the connection is lost, which is an error."""
        connection = await asyncpg.connect(self._source.dsn)
        try:
            connection.add_termination_listener(self._lost)
            await connection.add_listener(self._source.channel, self._hear)
            while (payload := await self._heard.get()) is not None:
                await self._publisher.publish([self._event(payload)])
        finally:
            await connection.close(timeout=5)
        raise ConnectionError(f"the connection to channel {self._source.channel} was lost")

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: Any) -> None:
        self._heard.put_nowait(str(payload))

    def _lost(self, _connection: Any) -> None:
        self._heard.put_nowait(None)

    def _event(self, payload: str) -> EventDict:
        # A notification has no name of its own; it comes once, so neither does it need one.
        fresh = uuid7(self._clock.now_ms(), secrets.token_bytes(10))
        plain: EventDict = {
            "specversion": "1.0",
            "id": fresh,
            "source": f"/postgres/{self._source.name}",
            "type": self._source.type or f"postgres.{self._source.channel}",
        }
        return event_of_message(payload.encode(), plain)
