"""Arrays and gangs under whatever may happen to them, in any order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from rota.core.commands import Purge, Retry
from rota.core.errors import Refusal
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import (
    Array,
    ExecutionState,
    Gang,
    GroupMember,
    GroupProgress,
    JobId,
    JobRecord,
    JobState,
)
from rota.core.outcome import PutExecution
from rota.core.policy import CONSERVATIVE, DEFAULT, STRICT, Policy
from tests.core.asking import SECOND, retries
from tests.core.world import World

WORKERS = ("w1", "w2", "w3")


class Stories(RuleBasedStateMachine):
    """Three workers, and everything that people and workers do."""

    policy: Policy = DEFAULT

    def __init__(self) -> None:
        super().__init__()
        self.world = World(policy=self.policy)
        for name in WORKERS:
            self.world.register(name, cpu=2)
        self.succeeded: Counter[JobId] = Counter()

    # What happens

    @rule(
        count=st.integers(1, 6),
        max_parallel=st.none() | st.integers(1, 3),
        key=st.none() | st.just("k"),
        tries=st.integers(1, 2),
    )
    def submit_array(self, tries: int, **asked: Any) -> None:
        self.world.submit(retry=retries(tries), limit=2, runs_ms=5 * SECOND, **asked)

    @rule(size=st.integers(2, 5), tries=st.integers(1, 2), preemptible=st.booleans())
    def submit_gang(self, size: int, tries: int, *, preemptible: bool) -> None:
        self.world.submit(gang=size, retry=retries(tries), preemptible=preemptible, runs_ms=SECOND)

    @rule(priority=st.sampled_from([0, 500]), cpu=st.integers(1, 2))
    def submit_job(self, **asked: Any) -> None:
        self.world.submit(runs_ms=30 * SECOND, **asked)

    @rule(name=st.sampled_from(WORKERS), room=st.integers(1, 3), knows=st.booleans())
    def poll(self, name: str, room: int, *, knows: bool) -> None:
        self.world.poll(name, max_orders=room, names=self._held(name) if knows else None)
        self._check_starts()

    @rule(number=st.integers(0, 99), state=st.sampled_from(["succeeded", "failed", "cancelled"]))
    def complete(self, number: int, state: str) -> None:
        running = [x.job_id for x in self.world.ledger.running()]
        if running:
            self._report(running[number % len(running)], state)

    @rule(number=st.integers(0, 99))
    def cancel(self, number: int) -> None:
        live = [job.id for job in self.world.ledger.live()]
        if live:
            self.world.cancel(live[number % len(live)])

    @rule(number=st.integers(0, 99))
    def retry(self, number: int) -> None:
        ended = [job for job in self.world.ledger.ended() if job.spec.group is not None]
        if not ended:
            return
        job = ended[number % len(ended)]
        failed = self._failed(job) if isinstance(job.spec.group, Array) else None
        try:
            self.world.step(Retry(job_id=job.id, failed=failed, preloaded=self.world.recall()))
        except Refusal:
            done = job.life.state is JobState.SUCCEEDED
            assert done or isinstance(job.spec.group, GroupMember)

    @rule(ms=st.sampled_from([SECOND, 6 * SECOND, 40 * SECOND]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def purge(self) -> None:
        if "default" in self.world.ledger.queues:
            self.world.step(Purge(name="default"))

    # What must hold

    @invariant()
    def a_gang_starts_as_a_whole_or_not_at_all(self) -> None:
        self._check_starts()

    @invariant()
    def no_array_runs_more_than_it_may(self) -> None:
        jobs = self.world.ledger.jobs
        running = Counter(
            band.parent
            for x in self.world.ledger.running()
            if isinstance(band := jobs[x.job_id].spec.group, GroupMember)
        )
        for parent, count in running.items():
            band = jobs[JobId(parent)].spec.group
            if isinstance(band, Array) and band.max_parallel is not None:
                assert count <= band.max_parallel

    def teardown(self) -> None:
        """All that is left runs to its end, and every index has exactly one."""
        for _ in range(200):
            if not self.world.ledger.live():
                break
            for name in WORKERS:
                self.world.poll(name, max_orders=9, names=self._held(name))
                self._check_starts()
            for execution in self.world.ledger.running():
                self._report(execution.job_id, "succeeded")
            self.world.advance(2 * SECOND)
        assert not self.world.ledger.live()
        for job in self.world.ledger.ended():
            if isinstance(job.spec.group, Array | Gang):
                self._check_ends(job)
        for job in self.world.ledger.ended():
            if isinstance(job.spec.group, GroupMember) and not job.spec.group.in_gang:
                well = job.life.state is JobState.SUCCEEDED
                assert self.succeeded[job.id] == well, f"{job.id} ended well more than once"

    # How

    def _held(self, name: str) -> list[str]:
        return [x.job_id for x in self.world.ledger.running() if x.worker_id == name]

    def _report(self, job_id: JobId, state: str) -> None:
        self.world.complete(job_id, state)
        self._check_starts()
        self.succeeded[job_id] += state == "succeeded"

    def _check_starts(self) -> None:
        jobs, starts = self.world.ledger.jobs, Counter[str]()
        for write in self.world.last.writes:
            if isinstance(write, PutExecution):
                execution = write.execution
                band = jobs[execution.job_id].spec.group
                is_new = execution.state is ExecutionState.CLAIMED and execution.stop is None
                if isinstance(band, GroupMember) and band.in_gang and is_new:
                    starts[band.parent] += 1
        for parent, count in starts.items():
            band = jobs[JobId(parent)].spec.group
            assert isinstance(band, Gang)
            assert count == band.size, f"{count} of {band.size} members of {parent} started"

    def _members(self, job: JobRecord) -> list[JobRecord]:
        ended = self.world.ledger.ended()
        return [
            one
            for one in ended
            if isinstance(one.spec.group, GroupMember) and one.spec.group.parent == job.id
        ]

    def _failed(self, job: JobRecord) -> tuple[int, ...]:
        return tuple(
            one.spec.group.index
            for one in self._members(job)
            if isinstance(one.spec.group, GroupMember) and one.life.state is not JobState.SUCCEEDED
        )

    def _check_ends(self, job: JobRecord) -> None:
        band, tally = job.spec.group, job.life.group_progress or GroupProgress()
        size = band.count if isinstance(band, Array) else band.size  # type: ignore[union-attr]
        assert tally.succeeded + tally.failed + tally.cancelled == size
        states = Counter(one.life.state for one in self._members(job))
        assert all(state in JOB_FINAL for state in states)
        if isinstance(band, Array):
            assert states[JobState.SUCCEEDED] == tally.succeeded
            assert sum(states.values()) <= size
        if job.life.state is JobState.SUCCEEDED:
            assert tally.succeeded == size


class StrictStories(Stories):
    """Nothing is reserved."""

    policy = STRICT


class PlannedStories(Stories):
    """Everybody has a place in a plan."""

    policy = CONSERVATIVE


EVERYDAY = settings(max_examples=15, stateful_step_count=30, deadline=None)
LONG = settings(max_examples=600, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("stories", [Stories, StrictStories, PlannedStories])
def test_bands_keep_their_promises(stories: type[Stories]) -> None:
    run_state_machine_as_test(stories, settings=EVERYDAY)


@pytest.mark.slow
@pytest.mark.parametrize("stories", [Stories, StrictStories, PlannedStories])
def test_bands_keep_their_promises_for_long(stories: type[Stories]) -> None:
    run_state_machine_as_test(stories, settings=LONG)
