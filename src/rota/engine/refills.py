"""Reads spilled jobs back from the store for the scheduler, beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from rota.core.commands import Refilled
from rota.core.outcome import Refill
from rota.engine.limits import REFILL_LOOK_S, REFILL_PATIENCE_S, EngineLimits
from rota.store.protocol import JournalStore, Seq, StoreError

log = structlog.get_logger("rota.engine")


class Refills:
    """Runs the reads of spilled jobs; `put` receives the answers, as inputs of the next turn."""

    def __init__(
        self, journal: JournalStore, put: Callable[[Sequence[Refilled]], None], limits: EngineLimits
    ) -> None:
        self._limits = limits
        self._journal = journal
        self._put = put
        self._tasks: dict[asyncio.Task[None], None] = {}

    def fetch(self, wanted: Sequence[Refill], seen: Seq) -> None:
        """Reads jobs for a durable turn, whose record is `seen`."""
        for asked, needed in (
            ([one for one in wanted if one.exact], seen),
            ([one for one in wanted if not one.exact], Seq(0)),
        ):
            if asked:
                task = asyncio.create_task(self._fetch(asked, needed), name="rota-refill")
                self._tasks[task] = None
                task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def close(self) -> None:
        """Cancels all reads: the next scheduler asks for itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch(self, wanted: Sequence[Refill], seen: Seq) -> None:
        if not any(one.urgent for one in wanted):
            await self._let_project(seen)
        while True:
            try:
                found = await self._journal.read_spilled(wanted, seen)
            except Exception as error:
                # After any error it asks again: workers wait for these jobs, and nobody else asks.
                unexpected = not isinstance(error, StoreError)
                log.warning("refill_failed", reason=str(error), exc_info=unexpected)
                await asyncio.sleep(self._limits.refill_retry_s)
                continue
            answers = list(zip(wanted, found, strict=True))
            self._put(
                [
                    Refilled(refill=refill, jobs=one.jobs, damaged=one.damaged)
                    for refill, one in answers
                ]
            )
            for refill, one in answers:
                if one.damaged:
                    log.error(
                        "stored_row_damaged", queue=refill.spill_queue, arrival_numbers=one.damaged
                    )
            return

    async def _let_project(self, seen: Seq) -> None:
        for _ in range(round(REFILL_PATIENCE_S / REFILL_LOOK_S)):
            if self._journal.projected >= seen:
                return
            await asyncio.sleep(REFILL_LOOK_S)
