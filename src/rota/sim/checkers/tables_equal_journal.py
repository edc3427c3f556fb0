"""What readers are shown at the end is what the journal comes to."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """Job by job; where no journal was kept there is nothing to compare."""
    if not evidence.journal.records:
        return
    shown = {record.job_id: record.status for record in evidence.history.records}
    for job_id, life in evidence.journal.lives.items():
        told = shown.get(job_id, "nowhere")
        if told != life.state:
            says = f"job {job_id} is {life.state} by the journal and {told} by the tables"
            yield Broken(says, (job_id,))
    for job_id in shown:
        if job_id not in evidence.journal.lives:
            yield Broken(f"job {job_id} is in the tables and not in the journal", (job_id,))
