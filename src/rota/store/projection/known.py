"""Live jobs as this process last wrote them into the tables: a cache of the projection.

A job that moves soon after it was submitted, as most jobs do, need not be looked up: its standing
is known, and its row can be written as a whole. Only another server's projection writes these rows
too, and a projection finds out whether there was one in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import JobId, Life, Spec
from rota.store.limits import FOLD_SHELF_BYTES
from rota.store.projection.known_shelf import KnownShelf
from rota.store.table_changes import JobStanding, TableChanges, spill_queue_of

Stored: TypeAlias = tuple[JobId, Spec, bytes | None]
"""A job, its spec, and the spec as it is stored, where another process may have written it."""


class KnownRow(msgspec.Struct, frozen=True, gc=False):
    """Row of a live job."""

    spec: Spec
    life: Life
    encoded: bytes | None = None


class KnownJobs:
    """Cache of the oldest live jobs, up to a number: mostly they are the next to move."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: dict[JobId, KnownRow] = {}
        self.shelf = KnownShelf(FOLD_SHELF_BYTES)
        """Spilled jobs that were read for memory."""

    def rows(self, job_ids: Iterable[JobId]) -> tuple[list[Stored], list[Stored]]:
        """Returns those that are known: of the live ones, and of the spilled ones."""
        jobs, shelf = self._jobs, self.shelf.known
        live: list[Stored] = []
        shelved: list[Stored] = []
        for job_id in job_ids:
            if (row := jobs.get(job_id)) is not None:
                live.append((job_id, row.spec, row.encoded))
            elif (read := shelf.get(job_id)) is not None:
                shelved.append((job_id, read.spec, read.encoded))
        return live, shelved

    def standings(self, job_ids: Sequence[JobId]) -> dict[JobId, JobStanding]:
        """Returns their standings, as `project` needs them."""
        jobs, shelf = self._jobs, self.shelf.known
        found: dict[JobId, JobStanding] = {}
        for job_id in job_ids:
            if (row := jobs.get(job_id)) is not None:
                life = row.life
                found[job_id] = JobStanding(life.state, life.lives, row.spec.terms.queue)
            elif (read := shelf.get(job_id)) is not None:
                found[job_id] = read.standing
        return found

    def learn(self, folded: TableChanges, stamp: str) -> None:
        """Notes what a window has written, by the transaction with this stamp."""
        jobs, specs = self._jobs, folded.specs
        for job_id in folded.dropped:
            jobs.pop(job_id, None)
        brought: list[JobId] = []
        for job_id, life in folded.lives.items():
            before = jobs.get(job_id)
            if life.state in JOB_FINAL or spill_queue_of(life):
                if before is not None:
                    del jobs[job_id]
            elif job_id in specs:
                if before is not None or len(jobs) < self._most:
                    jobs[job_id] = KnownRow(specs[job_id], life)
            elif before is not None:
                jobs[job_id] = KnownRow(before.spec, life, before.encoded)
            else:
                brought.append(job_id)
        _, read = self.rows(brought[: max(0, self._most - len(jobs))])
        for job_id, spec, encoded in read:
            jobs[job_id] = KnownRow(spec, folded.lives[job_id], encoded)
        self.shelf.learn(folded, stamp)

    def clear(self) -> None:
        """Forgets all: the tables may have changed."""
        self._jobs.clear()
        self.shelf.clear()
