"""A filter of idempotency keys (as a Bloom filter with one hash): which keys nobody can have used.

Most keys are new, and need not be looked up in the store then.
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
    """Every key that may have been used has a mark here. Others may share it: then the key is
    looked up for nothing. One without a mark is new, and that is certain.

    A key gets its mark before the scheduler sees it. Those of the time before this server led are
    read from the tables, beside the loop. Where they are too many their age has to pass first.
    What others promised and left in the inbox has come to the scheduler when that is empty.
    """

    def __init__(
        self, catalog: QueryStore, clock: Clock, limits: EngineLimits = ENGINE_LIMITS
    ) -> None:
        self._limits = limits
        self._catalog = catalog
        self._clock = clock
        self._reading = BackgroundTask("rota-used-keys")
        self._complete = self._inbox_drained = False
        self._young, self._old = _no_marks(limits.key_marks), _no_marks(limits.key_marks)
        self._young_since = clock.steady()

    def begin(self, *, has_inbox: bool) -> None:
        """This server leads from now on, and has decided nothing yet.

        Marks stay: what it promised before may still be on its way into the inbox.
        """
        self._complete, self._inbox_drained = False, not has_inbox
        self._young_since = self._clock.steady()
        self._reading.start(self._read())

    async def end(self) -> None:
        """Another may use keys now."""
        self._complete = False
        await self._reading.stop()

    def note(self, event: AnyInput) -> None:
        """It is about to be decided, and what key it has is used then."""
        if isinstance(event, Idempotent) and event.key is not None:
            self._rotate()
            self._mark(event.key.key)

    def promise(self, key: str) -> None:
        """It is about to be used by this server though it does not lead."""
        self._mark(key)

    def inbox_drained(self) -> None:
        """All that was there when this server began to lead has been decided."""
        self._inbox_drained = True

    def is_new(self, key: str) -> bool:
        """Whether it is certain that nobody has used this key; False: who knows."""
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
        """What was used longer ago than a key is honoured need not be known any more."""
        if self._clock.steady() - self._young_since < KEY_AGE_MS:
            return
        self._old, self._young = self._young, _no_marks(self._limits.key_marks)
        self._young_since = self._clock.steady()
        self._complete = True  # all that could not be read is too old by now

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
                return await self._catalog.keys_after(last, self._limits.used_keys_per_look)
            except StoreError:
                await asyncio.sleep(self._limits.used_keys_retry_s)


def _no_marks(count: int) -> mmap:
    """Only pages that are written to take memory; a `bytearray` would fill them all."""
    return mmap(-1, count // 8, access=ACCESS_COPY)
