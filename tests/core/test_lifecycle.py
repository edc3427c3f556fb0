from __future__ import annotations

from itertools import product

import pytest
from tools.generate_lifecycle import TARGET, render

from rota.core.errors import IllegalTransition
from rota.core.lifecycle import (
    EXECUTION_FINAL,
    EXECUTION_STATE_MEANING,
    EXECUTION_TRANSITIONS,
    EXECUTION_VERB_MEANING,
    JOB_FINAL,
    JOB_STATE_MEANING,
    JOB_TRANSITIONS,
    JOB_VERB_MEANING,
    ExecutionVerb,
    JobVerb,
    move_execution,
    move_job,
)
from rota.core.model import ExecutionId, ExecutionState, JobId, JobState

JOB = JobId("a-job")
EXECUTION = ExecutionId("an-execution")

JOB_MOVES = list(product(JobState, JobVerb))
EXECUTION_MOVES = list(product(ExecutionState, ExecutionVerb))


@pytest.mark.parametrize(("state", "verb"), JOB_MOVES)
def test_a_job_follows_the_transition_table_and_other_moves_are_refused(
    state: JobState, verb: JobVerb
) -> None:
    after = JOB_TRANSITIONS.get((state, verb))
    if after is not None:
        assert move_job(JOB, state, verb) is after
        return
    with pytest.raises(IllegalTransition) as refused:
        move_job(JOB, state, verb)
    assert refused.value.detail == f"job a-job is {state.value}: cannot {verb.value} it"
    assert (refused.value.state, refused.value.verb) == (state, verb)


@pytest.mark.parametrize(("state", "verb"), EXECUTION_MOVES)
def test_an_execution_follows_the_transition_table_and_other_moves_are_refused(
    state: ExecutionState, verb: ExecutionVerb
) -> None:
    after = EXECUTION_TRANSITIONS.get((state, verb))
    if after is not None:
        assert move_execution(EXECUTION, state, verb) is after
        return
    with pytest.raises(IllegalTransition):
        move_execution(EXECUTION, state, verb)


def test_only_a_retry_leads_out_of_an_ended_job_and_never_out_of_a_succeeded_one() -> None:
    out = [(state, verb) for state, verb in JOB_TRANSITIONS if state in JOB_FINAL]
    ended_badly = [state for state in JOB_FINAL if state is not JobState.SUCCEEDED]
    assert sorted(out) == sorted((state, JobVerb.REVIVE) for state in ended_badly)


def test_nothing_leads_out_of_an_ended_execution() -> None:
    assert not [state for state, _ in EXECUTION_TRANSITIONS if state in EXECUTION_FINAL]


def test_every_state_can_be_reached_from_the_first() -> None:
    reached = {JobState.PENDING}
    for _ in JobState:
        reached |= {after for (state, _), after in JOB_TRANSITIONS.items() if state in reached}
    assert reached == set(JobState)
    tried = {ExecutionState.CLAIMED, *EXECUTION_TRANSITIONS.values()}
    assert tried == set(ExecutionState)


def test_every_live_job_can_end() -> None:
    for state in JobState:
        seen = {state}
        for _ in JobState:
            seen |= {after for (before, _), after in JOB_TRANSITIONS.items() if before in seen}
        assert seen & set(JOB_FINAL), f"nothing leads from {state} to an end"


def test_every_state_and_verb_is_explained_in_one_sentence() -> None:
    assert set(JOB_STATE_MEANING) == set(JobState)
    assert set(JOB_VERB_MEANING) == set(JobVerb)
    assert set(EXECUTION_STATE_MEANING) == set(ExecutionState)
    assert set(EXECUTION_VERB_MEANING) == set(ExecutionVerb)
    for meaning in (*JOB_STATE_MEANING.values(), *EXECUTION_STATE_MEANING.values()):
        assert meaning.endswith(".")


def test_the_lifecycle_page_is_up_to_date() -> None:
    written = TARGET.read_text(encoding="utf-8")
    assert written == render(), "run `make docs`"
    for (state, verb), after in JOB_TRANSITIONS.items():
        assert f"| `{state.value}` | `{verb.value}` | `{after.value}` |" in written
