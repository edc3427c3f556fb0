"""Once a later run of a job has spoken, an earlier one is silent for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.sim.checkers.evidence import Broken, Evidence
from rota.sim.history import Freeze, Line

THAW_S = 1.0
"""What wakes with a whole machine may act until its guard has run: no software can prevent that."""


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the order of the jobs' own words."""
    for key, lines in evidence.lines.items():
        newest = 0
        for line in lines:
            if line.word == "cancelled":
                continue
            if line.fence < newest and not thawing(line, evidence.history.freezes):
                says = f"{key}: fence {line.fence} said {line.word!r} after {newest} had begun"
                yield Broken(says, (key,))
            newest = max(newest, line.fence)


def thawing(line: Line, freezes: Sequence[Freeze]) -> bool:
    """Whether it was said by somebody who has just woken, and could not know."""
    return any(
        freeze.worker == line.worker and freeze.began <= line.at <= freeze.ended + THAW_S
        for freeze in freezes
    )
