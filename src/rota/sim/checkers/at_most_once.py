"""A job that may start once starts at most once; one that was left out starts never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rota.core.model import Semantics
from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the jobs' own account, and by what the journal gave out in each life."""
    for record in evidence.history.records:
        began = sum(line.word == "begin" for line in evidence.lines[record.key])
        if record.at_most_once and began > 1:
            says = f"{record.key} may start once and started {began} times"
            yield Broken(says, (record.key,))
        if record.status in ("skipped", "expired") and not record.duplicate and began:
            yield Broken(f"{record.key} is {record.status}, yet it ran", (record.key,))
    given: Counter[tuple[str, int]] = Counter()
    for turn in evidence.journal.turns:
        if turn.before is not None or turn.spec is None or turn.life is None:
            continue
        job_id = turn.after.job_id
        given[job_id, turn.life.lives] += 1
        times = given[job_id, turn.life.lives]
        if turn.spec.terms.semantics is Semantics.AT_MOST_ONCE and times > 1:
            says = f"job {job_id} may start once and was given out {times} times"
            yield Broken(f"record {turn.seq}: {says}", (job_id,))
