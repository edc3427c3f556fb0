"""At most one execution of a job holds a lease, and exactly while the job runs."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence

RUNS = ("running", "cancelling")


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the journal, at the end of every record."""
    for job in evidence.journal.standings:
        says = ""
        if job.leases > 1:
            says = f"job {job.job_id} has {job.leases} leases at once"
        elif bool(job.leases) != (job.state in RUNS):
            says = f"job {job.job_id} is {job.state} with {job.leases} leases"
        if says:
            yield Broken(f"record {job.seq}: {says}", (job.job_id,))
