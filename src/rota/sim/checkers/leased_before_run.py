"""What is run was given out before, and each time once."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the jobs' own account, against the records and the journal."""
    for record in evidence.history.records:
        leased = [run.fence for run in record.runs]
        began = [line.fence for line in evidence.lines[record.key] if line.word == "begin"]
        for fence in dict.fromkeys(began):
            says = f"{record.key} ran under fence {fence}, which nobody was given"
            if fence not in leased and not record.duplicate:
                yield Broken(says, (record.key,))
            if began.count(fence) > 1:
                says = f"{record.key} ran {began.count(fence)} times under fence {fence}"
                yield Broken(says, (record.key,))
    for turn in evidence.journal.turns:
        if turn.before is None and (turn.spec is None or turn.life is None):
            job_id = turn.after.job_id
            says = f"execution {turn.after.id} is of job {job_id}, which nobody submitted"
            yield Broken(f"record {turn.seq}: {says}", (job_id,))
