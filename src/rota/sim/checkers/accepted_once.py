"""A request that is repeated under its key is one job, and every answer names that one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """A second name that a leaderless server gave must say so of itself, and never run."""
    history = evidence.history
    ids: defaultdict[str, list[str]] = defaultdict(list)
    second_names: dict[str, str] = {}
    for record in history.records:
        if record.duplicate:
            second_names[record.job_id] = record.key
            if record.runs:
                said = f"{record.key} ran as {record.job_id} too, which was said to be a duplicate"
                yield Broken(said, (record.key,))
        elif not record.made_by:
            ids[record.key].append(record.job_id)
    for key, found in ids.items():
        if len(found) > 1:
            yield Broken(f"{key} was accepted once and is {len(found)} jobs", (key,))
    for key, job_id in history.answered:
        if second_names.get(job_id) == key or len(ids[key]) != 1:
            continue
        if ids[key] != [job_id]:
            yield Broken(f"{key} was answered with {job_id} and is {ids[key][0]}", (key,))
