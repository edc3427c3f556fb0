"""Reads the durable inbox: submissions left in the store while no server led, or in an
application's transaction.

An entry that cannot be accepted is set aside with a reason, and the others go on: whether a server
leads never depends on what is in the inbox. Inputs of callers that wait in memory are in
`engine/callers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
import structlog

from rota.core.commands import AnyInput, NewJob, Preloaded, Reject, Submit, Tick
from rota.core.errors import AlreadyAccepted, Refusal, StalePreload
from rota.core.model import JobRecord
from rota.core.outcome import AnyReceipt
from rota.engine.beat import beat
from rota.engine.limits import INBOX_PRELOADS_MAX, INBOX_REASON_CHARS, EngineLimits
from rota.engine.ports import Clock, UnavailableError
from rota.store.protocol import (
    Epoch,
    InboxEntry,
    InboxKind,
    JournalStore,
    QueryStore,
    Store,
    StoreError,
)

log = structlog.get_logger("rota.engine")


class UnreadableEntryError(Exception):
    """Raised for an inbox entry that this program cannot read; a newer one may."""


ReadSpec: TypeAlias = Callable[[InboxEntry], Submit | Reject]
"""Converts an application's entry to a command: a Reject if its job is invalid. Raises
UnreadableEntryError if it does not even say which job it is."""
PostEntry: TypeAlias = Callable[[AnyInput, int | None], Awaitable[AnyReceipt]]
"""Posts a command for an entry, which is consumed when it is durable; None: for no entry."""
T = TypeVar("T")

encode_submission = msgspec.msgpack.Encoder().encode
"""Writes the body of an inbox entry, as a server without a leader does: a Submit without
`preloaded`."""
_decode_submission = msgspec.msgpack.Decoder(Submit).decode


def read_submission(entry: InboxEntry) -> Submit:
    """Decodes an entry that a server put; raises UnreadableEntryError."""
    if entry.kind != InboxKind.INPUT:
        raise UnreadableEntryError(f"this server knows no inbox entries of kind {entry.kind!r}")
    try:
        return _decode_submission(entry.body)
    except Exception as error:
        raise UnreadableEntryError(f"this server cannot read it: {_described(error)}") from error


class _Fate(NamedTuple):
    """Entry, and what is to become of it."""

    entry: InboxEntry
    event: Submit | Reject | None = None
    """The command to post; None: there is none."""
    reason: str = ""
    """Why the entry is set aside; empty: it is not."""
    stays: bool = False
    """Whether it stays in the inbox: set aside for the next leader, or for the next look."""


class _Round(NamedTuple):
    """Result of one look into the inbox."""

    found: int
    settled: int
    """How many of these need not be looked at again."""


class InboxReader:
    """Accepts inbox entries in their order; the record that accepts one also removes it.

    An entry is refused by a job that failed and says why. For one that an application submitted,
    the reason is kept in the store, too. An entry that this program cannot read, or that fails in
    it, stays for the next leader.
    """

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
        self._trouble = ""
        self._epoch = Epoch(0)

    async def run(
        self, epoch: Epoch, caught_up: Callable[[], None], emptied: Callable[[], None]
    ) -> None:
        """Reads, as the leader of `epoch`, until it is cancelled.

        Calls `caught_up` when the oldest entries are accepted, so that callers need not wait for
        the last of many thousands, and `emptied` when none is left.
        """
        self._epoch = epoch
        shortest, longest = (
            self._limits.durable_inbox_look_s_min,
            self._limits.durable_inbox_look_s_max,
        )
        pause = shortest
        while True:
            try:
                done = await self._accept_oldest()
            except (StoreError, UnavailableError) as error:
                self._note_trouble(error, is_bug=False)
            except Exception as error:  # noqa: BLE001  (the task's top: it must not end silently)
                self._note_trouble(error, is_bug=True)
                # Nobody could lead otherwise, for every leader would find the same inbox.
                caught_up()
            else:
                self._trouble = ""
                caught_up()
                if done.settled:
                    pause = shortest
                    continue
                if not done.found:
                    emptied()
            if pause < longest:
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                await beat(pause)

    def _note_trouble(self, error: Exception, *, is_bug: bool) -> None:
        """Logs an error that may be repeated with every look, once."""
        trouble = _described(error)
        if trouble != self._trouble:
            level = log.error if is_bug else log.warning
            level("inbox_not_read", reason=str(error), exc_info=is_bug)
        self._trouble = trouble

    async def _accept_oldest(self) -> _Round:
        entries = await self._journal.take_inbox(self._limits.durable_inbox_entries, self._epoch)
        settled = 0
        for together in _groups(entries):
            if together[0].failures:
                # If this turn fails too, it is not the entry's fault.
                await self._post(Tick(), None)
            settled += await self._accept(together)
        return _Round(len(entries), settled)

    async def _accept(self, entries: Sequence[InboxEntry]) -> int:
        """Accepts these, or sets them aside; returns how many are settled."""
        fates = await _all(self._prepare(entry) for entry in entries)
        unsettled = 0
        while fates:
            await self._set_aside(fates)
            unsettled += sum(one.stays and not one.reason for one in fates)
            # In their order: the tasks begin in it, and post before they wait for anything.
            after = await _all(self._decide(one) for one in fates if one.event is not None)
            fates = [one for one in after if one is not None]
        return len(entries) - unsettled

    async def _set_aside(self, fates: Sequence[_Fate]) -> None:
        """Keeps the reasons before any entry is consumed, and drops entries without a command."""
        for stays in (True, False):
            aside = {one.entry.id: one for one in fates if one.reason and one.stays is stays}
            level = log.error if stays else log.warning
            for one in aside.values():
                jobs = one.entry.job_ids[:3]
                level("inbox_entry_set_aside", entry=one.entry.id, jobs=jobs, reason=one.reason)
            if aside:
                reasons = {number: one.reason for number, one in aside.items()}
                epoch = self._epoch if stays else None
                await self._journal.set_aside_inbox(reasons, self._clock.now(), epoch)
        gone = [one.entry.id for one in fates if one.event is None and not one.stays]
        if gone:
            await self._journal.drop_inbox(gone)

    async def _prepare(self, entry: InboxEntry) -> _Fate:
        """Reads an entry and what its acceptance needs."""
        if entry.failures > self._limits.inbox_failures_max:
            return _Fate(entry, None, _failed_turns(entry), stays=True)
        try:
            event = self._read(entry)
            if entry.failures == self._limits.inbox_failures_max:
                return _refused(entry, event.jobs, _failed_turns(entry))
            if isinstance(event, Submit) and not entry.is_refused:
                return _Fate(entry, await self._preloaded(event))
        except (StoreError, UnavailableError):
            raise
        except Exception as error:  # noqa: BLE001  (one entry must not keep the others)
            return _Fate(entry, None, _text(_described(error)), stays=True)
        why = event.why if isinstance(event, Reject) else entry.reason
        return _refused(entry, event.jobs, why)

    def _read(self, entry: InboxEntry) -> Submit | Reject:
        if entry.kind == InboxKind.SPEC:
            return self._read_spec(entry)
        return read_submission(entry)

    async def _decide(self, one: _Fate) -> _Fate | None:
        """Posts the command of an entry; None: it is settled."""
        try:
            if isinstance(one.event, Submit):
                return await self._submit(one.event, one.entry)
            assert one.event is not None, "an entry without a command is settled"
            return await self._reject(one.event, one.entry)
        except (StoreError, UnavailableError):
            raise
        except Exception as error:  # noqa: BLE001  (one entry must not keep the others)
            return _Fate(one.entry, None, _text(_described(error)), stays=True)

    async def _reject(self, event: Reject, entry: InboxEntry) -> _Fate | None:
        try:
            await self._post(event, entry.id)
        except Refusal as refusal:
            # Its id belongs to another job, so no job can show the reason.
            return _Fate(entry, None, _text(f"{event.why}; no job shows this: {refusal}"))
        return None

    async def _submit(self, event: Submit, entry: InboxEntry) -> _Fate | None:
        """Posts a submission; a refused one must still become a job that its id shows."""
        for _ in range(INBOX_PRELOADS_MAX):
            try:
                await self._post(event, entry.id)
            except StalePreload:
                event = await self._preloaded(event)
            except AlreadyAccepted as refusal:
                # The last leader accepted the same request after these ids were promised. It runs
                # once; the promised ids show where.
                log.warning("inbox_key_taken", entry=entry.id, jobs=len(event.jobs))
                return _Fate(entry, Reject(jobs=event.jobs, why=str(refusal), duplicate=True))
            except Refusal as refusal:
                return _refused(entry, event.jobs, str(refusal))
            else:
                return None
        return _Fate(entry, stays=True)

    async def _preloaded(self, event: Submit) -> Submit:
        """Returns the command with all that it needs from the tables."""
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
        preloaded = Preloaded(at=at, upstream=tuple(upstream), key=key)
        return msgspec.structs.replace(event, preloaded=preloaded, promised=True)


def _groups(entries: Sequence[InboxEntry]) -> Iterator[Sequence[InboxEntry]]:
    """Yields entries to be decided together, in their order.

    One that was in a turn that failed is alone, so that it can be told from its neighbours.
    """
    start = 0
    for end, entry in enumerate(entries):
        if entry.failures:
            if start < end:
                yield entries[start:end]
            yield entries[end : end + 1]
            start = end + 1
    if start < len(entries):
        yield entries[start:]


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results of all; raises the first error when all have ended."""
    ends = await asyncio.gather(*work, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return [end for end in ends if not isinstance(end, BaseException)]


def _refused(entry: InboxEntry, jobs: tuple[NewJob, ...], why: str) -> _Fate:
    """Returns the refusal of an entry: jobs that failed, and a reason for who submitted by SQL."""
    why = _text(why)
    is_kept = entry.kind == InboxKind.SPEC or entry.failures
    return _Fate(entry, Reject(jobs=jobs, why=why), why if is_kept else "")


def _failed_turns(entry: InboxEntry) -> str:
    return (
        f"the server failed {entry.failures} times while it accepted this:"
        " see `reloading` in the leaders' logs"
    )


def _described(error: Exception) -> str:
    return (
        str(error)
        if isinstance(error, UnreadableEntryError)
        else f"{type(error).__name__}: {error}"
    )


def _text(reason: str) -> str:
    """Returns a reason that every store can keep, of a length for people."""
    valid = reason.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(valid) <= INBOX_REASON_CHARS:
        return valid
    return valid[: INBOX_REASON_CHARS - 1] + "…"
