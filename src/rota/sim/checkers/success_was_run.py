"""A success is one run, the last, that came to its end."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence
from rota.sim.history import Record


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the jobs' own account: nobody else can say that they succeeded."""
    for record in evidence.history.records:
        if not record.duplicate:
            yield from _check(evidence, record)


def _check(evidence: Evidence, record: Record) -> Iterator[Broken]:
    key = record.key
    succeeded = [run.fence for run in record.runs if run.status == "succeeded"]
    if record.status != "succeeded":
        if succeeded:
            says = f"{key} succeeded under fence {succeeded[0]} but is {record.status}"
            yield Broken(says, (key,))
        return
    if len(succeeded) != 1 or record.runs[-1].status != "succeeded":
        says = f"{key} succeeded, yet its runs are {[run.status for run in record.runs]}"
        yield Broken(says, (key,))
    ended = [line.fence for line in evidence.lines[key] if line.word == "end"]
    for fence in succeeded:
        if record.speaks and fence not in ended:
            yield Broken(f"{key} succeeded under fence {fence} without having ended", (key,))
