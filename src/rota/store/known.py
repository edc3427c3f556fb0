"""Live jobs as this process has last written them into the tables.

What moves on soon after it came, as most jobs do, need not be looked up for that: where it stood is
known, and its row can be written anew as a whole. Nobody else writes these rows but another fold,
and whoever folds finds out whether there was one in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import JobId, Life, Spec
from rota.store.fold import Folded, Standing, shelf_of
from rota.store.known_shelf import KnownShelf
from rota.store.limits import FOLD_SHELF_BYTES


class KnownJobs:
    """The oldest of them, up to a number: in most orders they are the next to move."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: dict[JobId, tuple[Spec, Life]] = {}
        self.shelf = KnownShelf(FOLD_SHELF_BYTES)
        """Those that somebody has read there."""

    def specs(self, job_ids: Iterable[JobId]) -> dict[JobId, Spec]:
        """Of those that are known."""
        jobs = self._jobs
        return {job_id: jobs[job_id][0] for job_id in job_ids if job_id in jobs}

    def standings(self, job_ids: Sequence[JobId]) -> dict[JobId, Standing]:
        """The same, as the fold wants to be told of them."""
        jobs, found = self._jobs, {}
        for job_id in job_ids:
            known = jobs.get(job_id)
            if known is not None:
                spec, life = known
                found[job_id] = Standing(life.state, life.lives, spec.terms.queue)
        for row in self.shelf.rows(job_ids):
            found[row.id] = row.standing
        return found

    def learn(self, folded: Folded, stamp: str) -> None:
        """A window is in the tables, for good; by the transaction with this stamp."""
        self.shelf.learn(folded, stamp)
        jobs, specs = self._jobs, folded.specs
        for job_id in folded.dropped:
            jobs.pop(job_id, None)
        for job_id, life in folded.lives.items():
            before = jobs.get(job_id)
            if life.state in JOB_FINAL or shelf_of(life):
                if before is not None:
                    del jobs[job_id]
            elif job_id in specs:
                if before is not None or len(jobs) < self._most:
                    jobs[job_id] = (specs[job_id], life)
            elif before is not None:
                jobs[job_id] = (before[0], life)

    def clear(self) -> None:
        """The tables may say something else by now."""
        self._jobs.clear()
        self.shelf.clear()
