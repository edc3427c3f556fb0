"""A filter of idempotency keys (a Bloom filter with one hash) that knows keys nobody has used.

Most keys are new: with the filter they need no lookup in the store.
"""

from __future__ import annotations

import asyncio
from mmap import ACCESS_COPY, mmap
from zlib import crc32

from rota.core.commands import AnyInput, Idempotent
from rota.engine.background import BackgroundTask
from rota.engine.limits import ENGINE_LIMITS, EngineLimits
from rota.engine.ports import Clock
from rota.store.limits import KEY_AGE_MS
from rota.store.protocol import QueryStore, StoreError


class KeyFilter:
    """Marks every idempotency key that may have been used; a key without a mark is certainly new.

    Keys share marks, so some are looked up for nothing. A key is marked before the scheduler sees
    it. Keys from before this server led are read from the tables, beside the loop; where there are
    too many, nothing is certain until they are too old to count. Keys that other servers promised
    are in the inbox, and marked once it is empty.
    """

    def __init__(
        self, queries: QueryStore, clock: Clock, limits: EngineLimits = ENGINE_LIMITS
    ) -> None:
        self._limits = limits
        self._queries = queries
        self._clock = clock
        self._reader = BackgroundTask("rota-used-keys")
        self._complete = self._inbox_drained = False
        self._young, self._old = _no_marks(limits.key_marks), _no_marks(limits.key_marks)
        self._young_since = clock.steady()

    def begin(self, *, has_inbox: bool) -> None:
        """Starts to read used keys: this server leads, and has decided nothing yet.

        Marks stay: keys that it promised before may still be on their way into the inbox.
        """
        self._complete, self._inbox_drained = False, not has_inbox
        self._young_since = self._clock.steady()
        self._reader.start(self._read())

    async def end(self) -> None:
        """Ends the certainty: another leader may use keys now."""
        self._complete = False
        await self._reader.stop()

    def note(self, event: AnyInput) -> None:
        """Marks the key of an input that is about to be decided."""
        if isinstance(event, Idempotent) and event.key is not None:
            self._rotate()
            self._mark(event.key.key)

    def promise(self, key: str) -> None:
        """Marks a key that this server is about to promise though it does not lead."""
        self._mark(key)

    def inbox_drained(self) -> None:
        """Notes that all entries from before this server led have been decided."""
        self._inbox_drained = True

    def is_new(self, key: str) -> bool:
        """Whether nobody can have used this key; False: it may be used."""
        byte, bit = self._place(key)
        is_marked = (self._young[byte] | self._old[byte]) & bit
        return self._complete and self._inbox_drained and not is_marked

    def _mark(self, key: str) -> None:
        byte, bit = self._place(key)
        self._young[byte] |= bit

    def _place(self, key: str) -> tuple[int, int]:
        place = crc32(key.encode()) % self._limits.key_marks
        return place >> 3, 1 << (place & 7)

    def _rotate(self) -> None:
        """Forgets keys that are too old to count."""
        if self._clock.steady() - self._young_since < KEY_AGE_MS:
            return
        self._old, self._young = self._young, _no_marks(self._limits.key_marks)
        self._young_since = self._clock.steady()
        self._complete = True  # keys that could not be read are too old by now

    async def _read(self) -> None:
        last = ""
        at_once = self._limits.used_keys_per_look
        for _ in range(0, self._limits.used_keys_read_max, at_once):
            keys = await self._keys_after(last)
            for key in keys:
                self._mark(key)
            if len(keys) < at_once:
                self._complete = True
                return
            last = keys[-1]
            await asyncio.sleep(self._limits.used_keys_look_s)

    async def _keys_after(self, last: str) -> list[str]:
        while True:
            try:
                return await self._queries.keys_after(last, self._limits.used_keys_per_look)
            except StoreError:
                await asyncio.sleep(self._limits.used_keys_retry_s)


def _no_marks(count: int) -> mmap:
    # Only written pages of a map take memory; a `bytearray` would take all of it.
    return mmap(-1, count // 8, access=ACCESS_COPY)
