"""An accepted job is never lost: it is there, can be found, and comes to an end."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence
from rota.sim.history import FINAL


def check(evidence: Evidence) -> Iterator[Broken]:
    """At the end of a run, when everything has had the time to end."""
    history = evidence.history
    known = {record.key: None for record in history.records}
    for key, _ in history.answered:
        if key not in known:
            yield Broken(f"{key} was accepted and is lost", (key,))
    for job_id in history.missing:
        yield Broken(f"{job_id} was accepted and then not found", (job_id,))
    for record in history.records:
        if not record.duplicate and record.status not in FINAL:
            yield Broken(f"{record.key} never ended: it is {record.status}", (record.key,))
