"""Reads the durable inbox: submissions left in the store while no server led, or in an
application's transaction.

Inputs of callers that wait in memory are in `engine/callers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
import structlog

from rota.core.commands import AnyInput, Preloaded, Reject, Submit
from rota.core.errors import AlreadyAccepted, Refusal, StalePreload
from rota.core.model import JobRecord
from rota.core.outcome import AnyReceipt
from rota.engine.beat import beat
from rota.engine.limits import EngineLimits
from rota.engine.ports import Clock, UnavailableError
from rota.store.protocol import InboxEntry, InboxKind, JournalStore, QueryStore, Store, StoreError

log = structlog.get_logger("rota.engine")

ReadSpec: TypeAlias = Callable[[bytes], Submit | Reject]
"""Parses an application's JSON into an input; invalid JSON becomes a Reject."""
PostEntry: TypeAlias = Callable[[AnyInput, int], Awaitable[AnyReceipt]]

decode_submission = msgspec.msgpack.Decoder(Submit).decode
encode_submission = msgspec.msgpack.Encoder().encode
"""Writes the body of an inbox entry, as a server without a leader does: a Submit without
`preloaded`."""


class InboxReader:
    """Accepts inbox entries in their order; the record that accepts one also removes it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        read_spec: ReadSpec,
        post: PostEntry,
        limits: EngineLimits,
    ) -> None:
        self._limits = limits
        self._journal: JournalStore = store.journal
        self._queries: QueryStore = store.queries
        self._clock = clock
        self._read_spec = read_spec
        self._post = post
        self._is_away = False

    async def run(self, caught_up: Callable[[], None], emptied: Callable[[], None]) -> None:
        """Reads until it is cancelled.

        Calls `caught_up` when the oldest entries are accepted, so that callers need not wait for
        the last of many thousands, and `emptied` when none is left.
        """
        shortest, longest = (
            self._limits.durable_inbox_look_s_min,
            self._limits.durable_inbox_look_s_max,
        )
        pause = shortest
        while True:
            try:
                taken = await self._take()
            except (StoreError, UnavailableError) as error:
                if not self._is_away:
                    log.warning("inbox_not_read", reason=str(error))
                self._is_away = True
            else:
                self._is_away = False
                caught_up()
                if taken:
                    pause = shortest
                    continue
                emptied()
            if pause < longest:
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                await beat(pause)

    async def _take(self) -> int:
        """Accepts the oldest entries; returns how many."""
        entries = await self._journal.take_inbox(self._limits.durable_inbox_entries)
        ends = await asyncio.gather(
            *(self._accept(entry) for entry in entries), return_exceptions=True
        )
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return sum(end is True for end in ends)

    async def _accept(self, entry: InboxEntry) -> bool:
        try:
            event = self._read(entry)
        except msgspec.MsgspecError as error:
            # It stays: a newer program that can read it may lead later.
            log.error("inbox_entry_unreadable", entry=entry.id, reason=str(error))
            return False
        refused = await self._submit(event, entry) if isinstance(event, Submit) else event
        if refused is not None:
            await self._reject(refused, entry)
        return True

    def _read(self, entry: InboxEntry) -> Submit | Reject:
        if entry.kind == InboxKind.SPEC:
            return self._read_spec(entry.body)
        return decode_submission(entry.body)

    async def _reject(self, event: Reject, entry: InboxEntry) -> None:
        try:
            await self._post(event, entry.id)
        except Refusal as refusal:
            # Its id belongs to another job, so no job can show the reason.
            log.error("inbox_entry_dropped", entry=entry.id, why=event.why, reason=str(refusal))
            await self._journal.drop_inbox([entry.id])

    async def _submit(self, event: Submit, entry: InboxEntry) -> Reject | None:
        """Posts a submission; a refused one must still become a job that its id shows."""
        while True:
            preloaded = await self._preload(event)
            posted = msgspec.structs.replace(event, preloaded=preloaded, promised=True)
            try:
                await self._post(posted, entry.id)
            except StalePreload:
                continue
            except AlreadyAccepted as refusal:
                # The last leader accepted the same request after these ids were promised. It runs
                # once; the promised ids show where.
                log.warning("inbox_key_taken", entry=entry.id, jobs=len(event.jobs))
                return Reject(jobs=event.jobs, why=str(refusal), duplicate=True)
            except Refusal as refusal:
                return Reject(jobs=event.jobs, why=str(refusal))
            return None

    async def _preload(self, event: Submit) -> Preloaded:
        at = self._clock.now()
        inside = {new.id for new in event.jobs}
        outside = dict.fromkeys(
            dependency.job_id
            for new in event.jobs
            for dependency in new.spec.dependencies
            if dependency.job_id not in inside
        )
        upstream: Sequence[JobRecord] = ()
        if outside:
            upstream = await self._queries.jobs(list(outside))
        key = await self._queries.key(event.key.key) if event.key else None
        return Preloaded(at=at, upstream=tuple(upstream), key=key)
