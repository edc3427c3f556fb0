"""One promise a file: each reads a history and says where it was broken."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rota.sim.checkers import (
    accepted_once,
    at_most_once,
    cancelled_stays,
    children_wait,
    fences_grow,
    final_is_final,
    leased_before_run,
    legal_moves,
    no_overlap,
    nothing_lost,
    nothing_made_up,
    one_leader,
    one_lease,
    schedules_fire_once,
    success_was_run,
    tables_equal_journal,
    within_capacity,
    within_limits,
)
from rota.sim.checkers.evidence import Broken, Check, Evidence
from rota.sim.history import History

PROMISES: Mapping[str, Check] = {
    "nothing_lost": nothing_lost.check,
    "accepted_once": accepted_once.check,
    "nothing_made_up": nothing_made_up.check,
    "final_is_final": final_is_final.check,
    "fences_grow": fences_grow.check,
    "leased_before_run": leased_before_run.check,
    "success_was_run": success_was_run.check,
    "at_most_once": at_most_once.check,
    "no_overlap": no_overlap.check,
    "cancelled_stays": cancelled_stays.check,
    "children_wait": children_wait.check,
    "within_capacity": within_capacity.check,
    "within_limits": within_limits.check,
    "one_leader": one_leader.check,
    "legal_moves": legal_moves.check,
    "one_lease": one_lease.check,
    "tables_equal_journal": tables_equal_journal.check,
    "schedules_fire_once": schedules_fire_once.check,
}
"""By the name of the file that holds each."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A broken promise, by its name."""

    promise: str
    broken: Broken

    def __str__(self) -> str:
        return f"{self.promise}: {self.broken.says}"


def judge(history: History, only: Collection[str] = PROMISES.keys()) -> list[Verdict]:
    """Every broken promise, of all or of these; none if they were kept."""
    evidence = Evidence.of(history)
    return [Verdict(name, broken) for name in only for broken in PROMISES[name](evidence)]


def broken_promises(history: History) -> list[str]:
    """The same in sentences."""
    return [verdict.broken.says for verdict in judge(history)]
