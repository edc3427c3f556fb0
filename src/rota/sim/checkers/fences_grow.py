"""A later execution of a job has a higher fence than any before."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the records at the end, and by the journal as it was written."""
    for record in evidence.history.records:
        key = record.key
        for before, after in pairwise(record.runs):
            if after.fence <= before.fence:
                yield Broken(f"{key} has fence {after.fence} after {before.fence}", (key,))
        if record.runs and record.fence != record.runs[-1].fence:
            says = f"{key} says fence {record.fence}, its last run {record.runs[-1].fence}"
            yield Broken(says, (key,))
    for turn in evidence.journal.turns:
        new = turn.after
        if turn.before is None and new.fence <= turn.newest_fence:
            says = f"job {new.job_id} was given fence {new.fence} after {turn.newest_fence}"
            yield Broken(f"record {turn.seq}: {says}", (new.job_id,))
    for move in evidence.journal.moves:
        if move.before is not None and move.after.fence < move.before.fence:
            says = f"job {move.job_id} went from fence {move.before.fence} back"
            yield Broken(f"record {move.seq}: {says} to {move.after.fence}", (move.job_id,))
