"""Why some of the jobs that a bulk action was meant for were left as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rota.api.limits import BULK_REASONS_MAX
from rota.api.recall import read_jobs
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import GroupMember, JobId, JobRecord, member_delete_refusal
from rota.store.protocol import QueryStore

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_OTHER = "other reasons"
GONE = "there is no such job any more"


class Refusals:
    """Reasons in words, each with how many jobs it holds for."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self.reasons.values())

    def add(self, detail: str, count: int = 1) -> None:
        """What is said of one job holds for all that are refused alike: ids are left out."""
        if count:
            reason = _ID.sub("…", detail)
            known = reason in self.reasons or len(self.reasons) < BULK_REASONS_MAX
            reason = reason if known else _OTHER
            self.reasons[reason] = self.reasons.get(reason, 0) + count


class Bound:
    """Members of an array or gang that goes on: they can only be deleted with it."""

    def __init__(self, queries: QueryStore, refusals: Refusals) -> None:
        self._queries = queries
        self._refusals = refusals

    async def without(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        """The others. Nobody asks the scheduler for each of what may be ten thousand members."""
        above = {
            JobId(one.spec.group.parent) for one in jobs if isinstance(one.spec.group, GroupMember)
        }
        live = {
            head.id: head
            for head in await read_jobs(self._queries, sorted(above))
            if head.life.state not in JOB_FINAL and not head.life.delete_when_finished
        }
        free: list[JobRecord] = []
        for job in jobs:
            band = job.spec.group
            head = live.get(JobId(band.parent)) if isinstance(band, GroupMember) else None
            if head is None:
                free.append(job)
            else:
                self._refusals.add(member_delete_refusal(job.id, head.id, head.life.state))
        return free
