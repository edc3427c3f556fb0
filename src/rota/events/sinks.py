"""Follows the stream of changes from where it last was, and tells them in order, at least once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog

from rota.events.config import AnySink
from rota.events.limits import EVENT_LIMITS, OFFSET_EVERY, EventLimits
from rota.events.outlets import EventTransport
from rota.events.positions import Offsets
from rota.events.telling import EventBackoff, EventDict
from rota.sdk import AsyncClient, Event, RotaError

log = structlog.get_logger("rota.events")

_NOT_YET = f"{10**17}.0"
"""A place that no journal will come to."""


class Follower:
    """One sink. Changes go out one after the other, so those of a job stay in order."""

    def __init__(
        self,
        sink: AnySink,
        client: AsyncClient,
        outlet: EventTransport,
        positions: Offsets,
        limits: EventLimits = EVENT_LIMITS,
    ) -> None:
        self._sink = sink
        self._limits = limits
        self._client = client
        self._transport = outlet
        self._offsets = positions
        self._offset: str | None = positions.load(sink.name)
        self._unsaved = 0

    async def run(self) -> None:
        """Until the stream breaks for good, which is an error."""
        if self._offset is None:
            # Noted before the first change is told: from here on nothing is missed.
            self._offset = await self._head()
            self._save_offset()
        try:
            async for one in self._client.stream(after=self._offset):
                await self._take(one)
        finally:
            self._save_offset()
            await self._transport.close()

    async def _head(self) -> str:
        """Where the journal is now: what the server says to a place that is not there yet."""
        async for one in self._client.stream(after=_NOT_YET):
            return one.id
        raise ConnectionError("the stream ended before it began")

    def _save_offset(self) -> None:
        self._offsets.save(self._sink.name, self._offset)
        self._unsaved = 0

    async def _take(self, one: Event) -> None:
        if one.kind == "reset":
            log.error("changes_missed", sink=self._sink.name, place=one.id)
        event = event_of_change(one)
        if any(_fits(pattern, event["type"]) for pattern in self._sink.events):
            await self._send(event)
        self._offset = one.id
        self._unsaved += 1
        if self._unsaved >= OFFSET_EVERY:
            self._save_offset()

    async def _send(self, event: EventDict) -> None:
        pauses, tries = EventBackoff(self._sink.name, self._limits), 0
        while True:
            tries += 1
            try:
                await self._transport.send(event)
                return
            except Exception as error:  # noqa: BLE001  (each broker has errors of its own)
                reason = f"{type(error).__name__}: {error}"
            if tries == self._sink.attempts:
                await self._give_up(event, tries, reason)
                return
            pause_s = pauses.next_s()
            log.warning(
                "not_told", sink=self._sink.name, change=event["id"], reason=reason, again=pause_s
            )
            await asyncio.sleep(pause_s)

    async def _give_up(self, event: EventDict, tries: int, reason: str) -> None:
        """Dead: kept in a file, in the log, and told to the server, where a trigger may act."""
        grave = self._offsets.keep_undelivered(self._sink.name, event)
        log.error("dead_letter", sink=self._sink.name, change=event["id"], reason=reason)
        alarm = {
            "specversion": "1.0",
            "id": event["id"],
            "source": f"/sinks/{self._sink.name}",
            "type": "sink.dead",
            "data": {"event": event, "tries": tries, "reason": reason, "kept": str(grave)},
        }
        try:
            await self._client.send_event(alarm)
        except RotaError as error:
            log.error("alarm_failed", sink=self._sink.name, reason=str(error))


def event_of_change(one: Event) -> EventDict:
    """A change of the stream as an event; its place in the journal is its id."""
    if one.kind == "reset":
        about: dict[str, Any] = {"message": "changes were missed: they are no longer kept"}
        return _event(one.id, "rota.stream.reset", about)
    change = one.change
    return _event(
        one.id,
        f"rota.{change.kind}.{change.status}",
        msgspec.to_builtins(change),
        time=change.at,
        subject=change.id,
    )


def _event(place: str, kind: str, about: dict[str, Any], **more: str) -> EventDict:
    plain: EventDict = {"specversion": "1.0", "id": place, "source": "rota", "type": kind}
    return {**plain, **more, "data": about}


def _fits(pattern: str, kind: str) -> bool:
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))
