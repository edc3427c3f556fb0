"""Losses by failovers of the database: which were said, and what is left of a history without them.

A database that answers before a copy of it has a record can lose that record. Nobody can prevent
that; but a server that knew the record must say so, and no promise about another job may break.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rota.verify.history import Failover, History


def unsaid(history: History) -> Iterator[Failover]:
    """Yields failovers that lost records which a server remembers, and no server has said so."""
    for failover in history.failovers:
        if failover.remembered and not any(
            loss.records > 0
            and loss.after <= failover.kept
            and loss.after + loss.records >= failover.remembered
            for loss in history.losses
        ):
            yield failover


def without_lost(history: History) -> History:
    """Returns the history without what clients and jobs did with the jobs of lost records.

    What was lost and not said stays: then it breaks a promise.
    """
    silent = list(unsaid(history))
    said = [failover for failover in history.failovers if failover not in silent]
    ids = dict.fromkeys(job_id for failover in said for job_id in failover.jobs)
    if not ids:
        return history
    keys = dict.fromkeys(key for failover in said for key in failover.keys)
    keys |= {key: None for key, job_id in history.answered if job_id in ids}
    keys |= {job.key: None for job in history.jobs if job.job_id in ids}
    return replace(
        history,
        answered=[(key, job_id) for key, job_id in history.answered if key not in keys],
        seen=[(job_id, status) for job_id, status in history.seen if job_id not in ids],
        missing=[job_id for job_id in history.missing if job_id not in ids],
        lines=[line for line in history.lines if line.key not in keys],
        jobs=[
            replace(
                job,
                has_witness=job.has_witness and job.key not in keys,
                after=[key for key in job.after if key not in keys],
            )
            for job in history.jobs
        ],
    )
