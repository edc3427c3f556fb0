"""Publishes events of sources to the server, with exponential backoff and dead letters; keeps the
offsets of sources and sinks in files.

When `publish` returns the events are durable, so the caller may acknowledge them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import structlog

from rota.events.limits import (
    BATCH_BYTES_MAX,
    EVENT_LIMITS,
    EVENTS_AT_ONCE,
    PAUSE_S_MAX,
    EventLimits,
)
from rota.sdk import AsyncClient, InvalidError, RotaError

log = structlog.get_logger("rota.events")

EventDict: TypeAlias = dict[str, Any]


class Offsets:
    """Keeps offsets in small files; each is replaced as a whole, so a crash leaves the old one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def load(self, name: str) -> Any:
        """Returns the value that was last saved, or None."""
        try:
            return msgspec.json.decode((self._folder / f"{name}.json").read_bytes())
        except FileNotFoundError:
            return None

    def save(self, name: str, value: Any) -> None:
        """Saves a value; it is durable when this returns."""
        target = self._folder / f"{name}.json"
        fresh = target.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(value))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)

    def keep_undelivered(self, name: str, event: EventDict) -> Path:
        """Adds an event to the file of dead letters; returns that file."""
        path = self._folder / f"{name}.dead.jsonl"
        with path.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return path


class EventBackoff:
    """Exponential backoff after failures in a row; spread by name, so that many do not retry at
    once."""

    def __init__(self, seed: str, limits: EventLimits = EVENT_LIMITS) -> None:
        self._seed = seed
        self._first_s = limits.pause_s_first
        self._failed = 0

    def succeeded(self) -> None:
        """Starts from the first pause again."""
        self._failed = 0

    def next_s(self) -> float:
        """Returns the next pause."""
        grown = min(self._first_s * 2.0 ** min(self._failed, 20), PAUSE_S_MAX)
        self._failed += 1
        digest = hashlib.blake2b(f"{self._seed}/{self._failed}".encode(), digest_size=4).digest()
        return grown * (0.5 + int.from_bytes(digest, "big") / 2**33)


class Publisher:
    """Sends events until they are durable; those that the server refuses become dead letters."""

    def __init__(self, client: AsyncClient, offsets: Offsets, name: str) -> None:
        self._client = client
        self._offsets = offsets
        self._name = name

    async def publish(self, events: Sequence[EventDict]) -> None:
        """Returns when all of them are durable, or in the file of dead letters."""
        for part in _batches(events):
            await self._publish_batch(part)

    async def _publish_batch(self, events: Sequence[EventDict]) -> None:
        backoff = EventBackoff(self._name)
        while True:
            try:
                await self._client.send_events(events)
                return
            except InvalidError as error:
                if len(events) == 1:
                    path = self._offsets.keep_undelivered(self._name, events[0])
                    log.error("event_refused", source=self._name, reason=str(error), kept=str(path))
                    return
                # One of them is invalid, and the server accepts a batch only as a whole.
                for event in events:
                    await self._publish_batch([event])
                return
            except RotaError as error:
                pause_s = backoff.next_s()
                log.warning(
                    "events_not_sent", source=self._name, reason=str(error), retry_s=pause_s
                )
                await asyncio.sleep(pause_s)


def _batches(events: Sequence[EventDict]) -> Iterator[list[EventDict]]:
    part: list[EventDict] = []
    size = 0
    for event in events:
        length = len(msgspec.json.encode(event))
        if part and (len(part) >= EVENTS_AT_ONCE or size + length > BATCH_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(event)
        size += length
    if part:
        yield part


def event_of_message(body: bytes, plain: EventDict) -> EventDict:
    """Returns the event in a message, or else `plain` with the message as its data.

    The id in `plain` is made of the message's place, so one that is delivered again is recognised.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _not_json(body, plain)
    if isinstance(value, dict) and "specversion" in value and "id" in value:
        return value
    return {**plain, "data": value}


def _not_json(body: bytes, plain: EventDict) -> EventDict:
    try:
        return {**plain, "data": body.decode()}
    except UnicodeDecodeError:
        return {**plain, "data_base64": base64.b64encode(body).decode()}
