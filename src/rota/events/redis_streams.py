"""Redis streams as sources and sinks of events: plain fields, acknowledged when durable."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from rota.events.config import RedisSink, RedisSource
from rota.events.limits import EVENTS_AT_ONCE, REDIS_CLAIM_IDLE_MS, REDIS_WAIT_MS
from rota.events.telling import EventDict, Publisher, event_of_message

Message = tuple[bytes, Mapping[bytes, bytes] | None]


class RedisSubscription:
    """Reads a stream as a member of a group; what was not confirmed comes again."""

    def __init__(self, source: RedisSource, teller: Publisher) -> None:
        self._source = source
        self._publisher = teller
        self._consumer = f"{socket.gethostname()}-{source.name}"

    async def run(self) -> None:
        """Until the connection is lost, which is an error."""
        redis: Redis = Redis.from_url(self._source.url)
        try:
            await self._join(redis)
            # What this consumer took before a crash and did not confirm is still its own.
            await self._drain(redis, "0")
            while True:
                await self._claim(redis)
                await self._drain(redis, ">")
        finally:
            await redis.aclose()

    async def _join(self, redis: Redis) -> None:
        source = self._source
        try:
            await redis.xgroup_create(source.stream, source.group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _drain(self, redis: Redis, position: str) -> None:
        source = self._source
        while True:
            answer: Any = await redis.xreadgroup(
                source.group,
                self._consumer,
                {source.stream: position},
                count=EVENTS_AT_ONCE,
                block=REDIS_WAIT_MS,
            )
            _raise_if_cancelled()
            messages = [one for _, part in answer or () for one in part]
            if not messages:
                return
            await self._take(redis, messages)

    async def _claim(self, redis: Redis) -> None:
        """Takes over what a consumer that is gone has left unconfirmed."""
        source = self._source
        answer: Any = await redis.xautoclaim(
            source.stream,
            source.group,
            self._consumer,
            REDIS_CLAIM_IDLE_MS,
            count=EVENTS_AT_ONCE,
        )
        if answer[1]:
            await self._take(redis, answer[1])

    async def _take(self, redis: Redis, messages: Sequence[Message]) -> None:
        # A message that was trimmed away while it waited has no fields any more.
        events = [self._event(key, fields) for key, fields in messages if fields]
        await self._publisher.publish(events)
        await redis.xack(self._source.stream, self._source.group, *(key for key, _ in messages))

    def _event(self, key: bytes, fields: Mapping[bytes, bytes]) -> EventDict:
        source = self._source
        plain: EventDict = {
            "specversion": "1.0",
            "id": key.decode(),
            "source": f"/redis/{source.name}",
            "type": source.type or f"redis.{source.stream}",
        }
        body = fields.get(source.field.encode())
        if body is None:
            shown = {_text(name): _text(value) for name, value in fields.items()}
            return {**plain, "data": shown}
        return event_of_message(body, plain)


def _raise_if_cancelled() -> None:
    """Ends the task if that was asked for: the client loses a cancel that comes with an answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class RedisTransport:
    """Adds events to a stream; each is the field `data` of a message."""

    def __init__(self, sink: RedisSink) -> None:
        self._sink = sink
        self._redis: Redis = Redis.from_url(sink.url)

    async def send(self, event: EventDict) -> None:
        """In the stream when it returns."""
        await self._redis.xadd(
            self._sink.stream,
            {"data": msgspec.json.encode(event)},
            maxlen=self._sink.max_length,
            approximate=True,
        )

    async def close(self) -> None:
        """Gives the connection back."""
        await self._redis.aclose()
