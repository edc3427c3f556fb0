"""Whoever was told that a job is cancelled never hears of it again."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence
from rota.sim.checkers.no_overlap import thawing


def check(evidence: Evidence) -> Iterator[Broken]:
    """A client that was told so says it among the jobs' own words: no other may follow."""
    for key, lines in evidence.lines.items():
        cancelled = False
        for line in lines:
            if line.word == "cancelled":
                cancelled = True
            elif cancelled and not thawing(line, evidence.history.freezes):
                yield Broken(f"{key} was cancelled and then said {line.word!r}", (key,))
                break
