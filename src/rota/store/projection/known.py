"""Live jobs as this process has last written them into the tables.

What moves on soon after it came, as most jobs do, need not be looked up for that: where it stood is
known, and its row can be written anew as a whole. Nobody else writes these rows but another fold,
and whoever folds finds out whether there was one in between.
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
"""A job, and its spec as it is stored, where somebody else may have written it."""


class KnownRow(msgspec.Struct, frozen=True, gc=False):
    """A row of a live job."""

    spec: Spec
    life: Life
    encoded: bytes | None = None


class KnownJobs:
    """The oldest of them, up to a number: in most orders they are the next to move."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: dict[JobId, KnownRow] = {}
        self.shelf = KnownShelf(FOLD_SHELF_BYTES)
        """Those that somebody has read there."""

    def rows(self, job_ids: Iterable[JobId]) -> tuple[list[Stored], list[Stored]]:
        """Of those that are known: of the live ones, and of those on the shelf."""
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
        """The same, as the fold wants to be told of them."""
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
        """A window is in the tables, for good; by the transaction with this stamp."""
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
        """The tables may say something else by now."""
        self._jobs.clear()
        self.shelf.clear()
