"""Shrinking: a failed run becomes a small one that breaks the same promise, with its command."""

from __future__ import annotations

from tests.simtest.mutants import MUTANTS
from tests.simtest.plan import draw, keep, read_spans, spans
from tests.simtest.run import Shrinking, run


def test_a_failed_run_shrinks_to_the_action_that_breaks_the_promise() -> None:
    plan = keep(draw(5, profile="calm", storm_s=20.0), faults=None, actions=None)
    with MUTANTS["keys forgotten"].planted():
        failed = run(plan)
        assert not failed.ok
        small = Shrinking(failed).go()
        again = run(small.plan)
    assert len(small.plan.actions) == 1
    assert small.plan.actions[0].kind == "twice"
    assert [str(one) for one in again.verdicts] == [str(one) for one in small.verdicts]
    assert f"--acts {small.plan.actions[0].number}" in small.plan.command("calm")
    assert any("twice-" in line for line in small.story)


def test_spans_are_read_as_they_are_written() -> None:
    for numbers in ([], [3], [1, 2, 3, 7], [0, 2, 4, 5]):
        assert list(read_spans(spans(numbers))) == numbers
