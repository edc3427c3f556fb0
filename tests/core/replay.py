"""Replay of jobs with known run times on workers that always wait: when and where each starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from rota.core.commands import AnyInput, Complete, Submit, Timing
from rota.core.model import JobId, WorkerId
from rota.core.outcome import PollAnswer
from rota.core.policy import Policy
from tests.core.asking import HOUR, NOON, job
from tests.core.world import World, succeeded


class Work(NamedTuple):
    """Job that is submitted at `at` and runs for `runs`, in milliseconds."""

    at: int
    runs: int
    asked: dict[str, Any]


class Replay:
    """Runs works to their end; `looked` is called after every turn."""

    def __init__(
        self, policy: Policy, fleet: dict[str, dict[str, Any]], looked: Callable[[World], None]
    ) -> None:
        patient = Timing(lease_ttl_ms=1000 * HOUR)
        self.world = World(policy=policy, checked=False, timing=patient)
        self.started: dict[JobId, int] = {}
        self.ran_on: dict[JobId, WorkerId] = {}
        self._looked = looked
        self._fleet = list(fleet)
        self._works: dict[JobId, Work] = {}
        for name, has in fleet.items():
            self.world.register(name, **has)

    def run(self, works: Sequence[Work]) -> None:
        """Runs all of them; ends come before arrivals of the same instant."""
        events: list[tuple[int, int, int, JobId]] = []
        self._works = {JobId(f"j{number}"): work for number, work in enumerate(works)}
        for number, work in enumerate(works):
            heappush(events, (work.at, 1, number, JobId(f"j{number}")))
        while events:
            at = events[0][0]
            self.world.now = NOON + at
            inputs: list[AnyInput] = []
            while events and events[0][0] == at:
                _, is_new, _, job_id = heappop(events)
                inputs.append(self._input(job_id, at, is_new=bool(is_new)))
            polls = [self.world.asking(name, wait_ms=3_600_000) for name in self._fleet]
            outcome = self.world.turn([*inputs, *polls])
            self._note(outcome.answers, at, events)
            self._looked(self.world)

    def _input(self, job_id: JobId, at: int, *, is_new: bool) -> AnyInput:
        if not is_new:
            return Complete(completion=succeeded(self.world.execution(job_id)))
        asked = {"created_at": NOON + at, **self._works[job_id].asked}
        return Submit(jobs=(job(job_id, **asked),))

    def _note(
        self, answers: Sequence[PollAnswer], at: int, events: list[tuple[int, int, int, JobId]]
    ) -> None:
        for answer in answers:
            for order in answer.orders:
                job_id = order.execution.job_id
                self.started[job_id] = at
                self.ran_on[job_id] = order.execution.worker_id
                end = at + self._works[job_id].runs
                heappush(events, (end, 0, int(job_id[1:]), job_id))
