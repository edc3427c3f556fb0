"""Tail of the journal, projected in memory: jobs that have ended are written before the rest.

Under load most jobs last for a second or two. Each of them would be written among the live ones,
with all the indexes of that table, to be deleted a moment later. So the tables may be some seconds
behind, and only what has ended is written meanwhile, ahead of `folded_seq`, which stays until the
rest is written.

A server that projects the same records again, after a crash or a takeover, finds those rows and
comes to the same tables and counts, even if it knows nothing of this:

- A job that has a row is not counted as a new submission: so it is counted when its row is written.
- A job that has a row elsewhere is not spilled: so it is counted out when its row is written.
- The end of a job that has a row in its final state is counted again only if something else was
  written of the job before it: so the end is counted with its row if it is the first of the job's
  writes in the tail, and otherwise with the tail as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import JobId, Life
from rota.core.outcome import AnyWrite, DropJob
from rota.store.limits import FOLD_SLICE_WRITES
from rota.store.projection.known import KnownJobs
from rota.store.projection.precedence import GiveWay, in_slices
from rota.store.protocol import Seq
from rota.store.table_changes import JobStanding, Projection, TableChanges, spill_queue_of


class Tail(Projection):
    """Projection of all records after `folded_seq` that this process has taken."""

    def __init__(self, known: KnownJobs, after: Seq) -> None:
        super().__init__({})
        self.known = known
        self.after = after
        self.writes = 0
        self.in_use = False
        """By a transaction whose outcome is not known yet."""
        self.tables: dict[JobId, str] = {}
        """The tables of jobs that were looked up; the tables of the others are known."""
        self.tangled = False
        """A job was deleted, or goes on after its end: then all of the tail is written at once."""
        self._ended: dict[JobId, None] = {}
        """Jobs that ended since `leave` was called."""
        self._ended_at_first: dict[JobId, tuple[str, str]] = {}
        """Jobs whose end is their first write in the tail, and how it is counted."""
        self._left: dict[JobId, None] = {}

    @property
    def jobs(self) -> int:
        """How many jobs are not in the tables as they are now."""
        return len(self.changes.lives)

    def strangers(self, job_ids: Sequence[JobId]) -> list[JobId]:
        """Returns the jobs that must be looked up before their records can be taken."""
        left, lives, standings = self._left, self.changes.lives, self.standings
        for job_id in [job_id for job_id in job_ids if job_id in left] if left else ():
            del left[job_id]
            standings.pop(job_id, None)
            self.tangled = True
        new = [one for one in job_ids if one not in lives and one not in standings]
        self.known.shelf.take_up()
        found = self.known.standings(new)
        standings.update(found)
        return [job_id for job_id in new if job_id not in found] if found else new

    def take_window(
        self, records: Sequence[Sequence[AnyWrite]], writes: int, give_way: GiveWay
    ) -> None:
        """Takes the next records, which have so many writes."""
        self.writes += writes
        self.take_all(in_slices(records, FOLD_SLICE_WRITES, give_way))

    def leave(self) -> TableChanges:
        """Takes out what can be written now: jobs that have ended, and their executions.

        What is counted with them is taken out of the counts of the rest.
        """
        gone, folded = TableChanges(), self.changes
        lives, specs = folded.lives, folded.specs
        for job_id in self._ended:
            life = lives.get(job_id)
            if life is None or life.state not in JOB_FINAL:
                continue
            del lives[job_id]
            gone.lives[job_id] = life
            if job_id in specs:
                gone.specs[job_id] = specs.pop(job_id)
        self._ended = {}
        self._left.update(dict.fromkeys(gone.lives))
        self._count(gone)
        runs = folded.executions
        gone.executions = {
            run_id: run
            for run_id, run in runs.items()
            if run.job_id in gone.lives and run.state in EXECUTION_FINAL
        }
        for run_id in gone.executions:
            del runs[run_id]
        return gone

    def _count(self, gone: TableChanges) -> None:
        folded, at_first, standings = self.changes, self._ended_at_first, self.standings
        had_rows = [standings[job_id] for job_id in gone.lives if job_id in standings]
        gone.submitted = len(gone.lives) - len(had_rows)
        folded.submitted -= gone.submitted
        for line, count in Counter(map(spill_queue_of, had_rows)).items():
            if line:
                gone.spill_counts[line] = -count
                folded.spill_counts[line] += count
        for job_id in gone.lives if at_first else ():
            if ended := at_first.pop(job_id, None):
                gone.finished[ended] = gone.finished.get(ended, 0) + 1
                folded.finished[ended] -= 1

    def _drop(self, write: DropJob) -> None:
        self.tangled = True
        super()._drop(write)

    def _end(
        self, job_id: JobId, before: JobStanding | Life | None, life: Life, queue: str
    ) -> bool:
        counted = super()._end(job_id, before, life, queue)
        self._ended[job_id] = None
        if counted and job_id not in self.changes.lives:
            self._ended_at_first[job_id] = (queue, life.state)
        return counted
