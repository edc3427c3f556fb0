from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rota.core.limits import PRELOAD_WINDOW_MS
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobState,
    KeyRecord,
    WorkerId,
)
from rota.core.recently_finished import RecentlyFinished

SUCCEEDED = ExecutionState.SUCCEEDED
JOBS = [JobId(f"j{number}") for number in range(8)]
RUNS = [ExecutionId(f"x{number}") for number in range(8)]
KEYS = [f"k{number}" for number in range(4)]
numbers = st.integers(0, 7)


def ended(execution_id: ExecutionId, now: int, state: ExecutionState = SUCCEEDED) -> Execution:
    return Execution(execution_id, JobId("j"), WorkerId("w"), 1, 1, state, now, ended_at=now)


class Remembering(RuleBasedStateMachine):
    """Whatever leaves, comes back and is asked for; beside it, one plain dictionary of each."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.recent = RecentlyFinished(self.now, slice_max=2)  # one follows the other all the time
        self.jobs: dict[JobId, tuple[int, JobState | None]] = {}
        self.runs: dict[ExecutionId, tuple[int, ExecutionState]] = {}
        self.keys: dict[str, int] = {}

    @rule(number=numbers, state=st.sampled_from([None, JobState.SUCCEEDED, JobState.FAILED]))
    def depart(self, number: int, state: JobState | None) -> None:
        self.recent.remember_job(JOBS[number], self.now, state)
        self.jobs[JOBS[number]] = (self.now, state)

    @rule(first=numbers, count=st.integers(1, 4))
    def depart_together(self, first: int, count: int) -> None:
        ids = JOBS[first : first + count]
        self.recent.remember_jobs(ids, self.now, JobState.SUCCEEDED)
        self.jobs.update(dict.fromkeys(ids, (self.now, JobState.SUCCEEDED)))

    @rule(number=numbers)
    def come_back(self, number: int) -> None:
        self.recent.returned(JOBS[number])
        self.jobs.pop(JOBS[number], None)

    @rule(number=numbers, state=st.sampled_from([SUCCEEDED, ExecutionState.CANCELLED]))
    def end(self, number: int, state: ExecutionState) -> None:
        if RUNS[number] not in self.runs:  # an execution ends once
            self.recent.remember_execution(
                ended(RUNS[number], self.now, state), SUCCEEDED, self.now
            )
            self.runs[RUNS[number]] = (self.now, state)

    @rule(number=st.integers(0, 3))
    def use(self, number: int) -> None:
        if KEYS[number] not in self.keys:  # a key is used once
            self.recent.remember_key(KeyRecord(KEYS[number], "f", b"", self.now))
            self.keys[KEYS[number]] = self.now

    @rule(ms=st.sampled_from([1, 700, 3_000, 9_000, 2 * PRELOAD_WINDOW_MS]))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.recent.forget(self.now)
        oldest = self.now - 2 * PRELOAD_WINDOW_MS
        self.jobs = {one: left for one, left in self.jobs.items() if left[0] >= oldest}
        self.runs = {one: run for one, run in self.runs.items() if run[0] >= oldest}
        self.keys = {one: at for one, at in self.keys.items() if at >= oldest}

    @rule(by=st.sampled_from([-50_000, -1, 3, 60_000]))
    def set_the_clock(self, by: int) -> None:
        self.now += by
        self.recent.follow_clock(by)
        self.jobs = {one: (at + by, state) for one, (at, state) in self.jobs.items()}
        self.runs = {one: (at + by, state) for one, (at, state) in self.runs.items()}
        self.keys = {one: at + by for one, at in self.keys.items()}

    @invariant()
    def remembers_what_plain_dictionaries_do(self) -> None:
        for job_id in JOBS:
            left = self.jobs.get(job_id)
            assert self.recent.departed_at(job_id) == (None if left is None else left[0])
            assert self.recent.final_state(job_id) == (None if left is None else left[1])
        for execution_id in RUNS:
            found, run = self.recent.ended(execution_id), self.runs.get(execution_id)
            assert (found is None) == (run is None)
            if found is not None and run is not None:
                assert (found[0], found[1].state) == (SUCCEEDED, run[1])
        for key in KEYS:
            assert (self.recent.key(key) is None) == (key not in self.keys)


def test_recently_finished_in_slices_answers_like_one_dictionary() -> None:
    run_state_machine_as_test(Remembering)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("back_ms", [1, 3 * PRELOAD_WINDOW_MS])
def test_a_clock_behind_the_time_of_the_start_does_no_harm(back_ms: int) -> None:
    """As when it is set while a server comes up: what happens then seems to be before its time."""
    start = 10 * PRELOAD_WINDOW_MS
    recent = RecentlyFinished(start)
    now = start - back_ms
    recent.remember_job(JOBS[0], now, JobState.SUCCEEDED)
    recent.remember_execution(ended(RUNS[0], now), SUCCEEDED, now)
    for later in (now, now + 1, now + 2 * PRELOAD_WINDOW_MS):
        assert recent.departed_at(JOBS[0]) == now
        assert recent.ended(RUNS[0]) is not None
        recent.forget(later)
    recent.forget(now + 2 * PRELOAD_WINDOW_MS + 1)
    assert recent.departed_at(JOBS[0]) is recent.ended(RUNS[0]) is None


def test_forgotten_entries_are_freed_a_few_at_a_time_and_all_in_the_end() -> None:
    recent = RecentlyFinished(0)
    for number in range(20_000):
        job_id = JobId(f"{number:08}")
        recent.remember_execution(ended(ExecutionId(job_id), number // 20), SUCCEEDED, 1_000)
        recent.remember_job(job_id, number // 20, JobState.SUCCEEDED)
    kept = [40_000]
    while kept[-1]:
        recent.forget(3 * PRELOAD_WINDOW_MS)
        kept.append(sum(len(part) for part in recent._over))
    assert all(before - left < 4_000 for before, left in pairwise(kept))
