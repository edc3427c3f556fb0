"""A final state is final: whoever saw one sees it again."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence
from rota.sim.history import FINAL


def check(evidence: Evidence) -> Iterator[Broken]:
    """Looks are in the order in which they were taken, through whichever server."""
    last: dict[str, str] = {}
    at_the_end = ((record.job_id, record.status) for record in evidence.history.records)
    for job_id, status in (*evidence.history.seen, *at_the_end):
        before = last.get(job_id, "")
        if before in FINAL and status != before:
            yield Broken(f"{job_id} was {before} and became {status}", (job_id,))
        last[job_id] = status
