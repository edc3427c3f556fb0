"""Checkers on histories that must fail, each broken in one place, and on a good one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from rota.store.protocol import Loss, Seq
from rota.verify.checkers import WAKING_S, broken_promises
from rota.verify.history import (
    Failover,
    FreezePeriod,
    History,
    ObservedExecution,
    ObservedJob,
    WitnessLine,
)

Change: TypeAlias = Callable[[History], None]
ran = ObservedExecution


def good_history() -> History:
    """Makes a job that was lost once, its child, a job cancelled in time, and one that failed."""
    return History(
        sent=["a", "b", "c", "d", "e", "never-heard"],
        answered=[("a", "1"), ("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")],
        seen=[("1", "running"), ("1", "queued"), ("1", "succeeded"), ("3", "cancelled")],
        lines=[
            WitnessLine("a", 1, "begin", 9.0, "w1"),
            WitnessLine("c", 0, "cancelled", 9.5, "client"),
            WitnessLine("a", 1, "tick", 9.9, "w1"),
            WitnessLine("d", 1, "begin", 10.0, "w2"),
            WitnessLine("a", 2, "begin", 15.0, "w2"),
            WitnessLine("a", 2, "end", 16.0, "w2"),
            WitnessLine("b", 1, "begin", 16.0, "w2"),
            WitnessLine("b", 1, "end", 17.0, "w2"),
        ],
        jobs=[
            ObservedJob(
                "1",
                "a",
                "succeeded",
                2,
                executions=[ran(1, "lost"), ran(2, "succeeded")],
            ),
            ObservedJob("2", "b", "succeeded", after=["a"], executions=[ran(1, "succeeded")]),
            ObservedJob("3", "c", "cancelled", 0),
            ObservedJob("4", "d", "failed", at_most_once=True, executions=[ran(1, "lost")]),
            ObservedJob(
                "5",
                "e",
                "succeeded",
                executions=[ran(1, "succeeded")],
                has_witness=False,
            ),
        ],
        freezes=[FreezePeriod("w1", 10.0, 20.0)],
        slots={"w1": 1, "w2": 1},
    )


def test_a_good_history_keeps_every_promise() -> None:
    assert broken_promises(good_history()) == []


def test_a_marked_duplicate_is_no_second_job() -> None:
    history = good_history()
    history.jobs.append(ObservedJob("9", "a", "skipped", 0, duplicate=True))
    history.answered.append(("a", "9"))
    assert broken_promises(history) == []


def test_a_witness_line_of_a_thawing_machine_is_excused() -> None:
    history = good_history()
    history.lines.append(WitnessLine("a", 1, "tick", 20.1, "w1"))
    assert broken_promises(history) == []


def with_failover(*losses: Loss) -> History:
    """Makes a history in which a failover of the database lost a job that a server knew."""
    history = good_history()
    history.answered.append(("lost", "7"))
    history.sent.append("lost")
    history.missing.append("7")
    history.lines.append(WitnessLine("lost", 1, "begin", 21.0, "w2"))
    history.failovers = [Failover(Seq(8), ["7"], ["lost"], {"7": 1}, Seq(10))]
    history.losses = losses
    return history


def test_a_job_that_is_lost_by_a_loss_that_was_said_breaks_no_promise() -> None:
    assert broken_promises(with_failover(Loss(0, 2, Seq(8)))) == []
    assert broken_promises(with_failover(Loss(0, 5, Seq(6)))) == []


@pytest.mark.parametrize("loss", [None, Loss(0, 0, Seq(8)), Loss(0, 1, Seq(8)), Loss(0, 2, Seq(9))])
def test_a_job_that_is_lost_without_a_word_is_found(loss: Loss | None) -> None:
    history = with_failover() if loss is None else with_failover(loss)
    broken = broken_promises(history)
    assert "lost was accepted and is lost" in broken
    assert "records 9 to 10 were lost without a word" in broken


def test_a_lost_job_that_no_server_remembers_breaks_no_promise() -> None:
    history = with_failover()
    history.failovers = [replace(history.failovers[0], remembered=Seq(0))]
    assert broken_promises(history) == []


def test_a_job_that_a_client_asked_to_delete_is_not_lost() -> None:
    history = good_history()
    del history.jobs[3]
    history.missing.append("4")
    history.deleted.append("4")
    assert broken_promises(history) == []


def changed(place: int, **fields: object) -> Change:
    def change(history: History) -> None:
        history.jobs[place] = replace(history.jobs[place], **fields)  # type: ignore[arg-type]

    return change


def with_line_moved(source: int, target: int) -> Change:
    return lambda history: history.lines.insert(target, history.lines.pop(source))


def with_line(*line: WitnessLine) -> Change:
    return lambda history: history.lines.extend(line)


def both(*changes: Change) -> Change:
    def change(history: History) -> None:
        for one in changes:
            one(history)

    return change


def without_record(place: int) -> Change:
    def change(history: History) -> None:
        del history.jobs[place]

    return change


def without_line(place: int) -> Change:
    def change(history: History) -> None:
        del history.lines[place]

    return change


BAD: dict[str, tuple[Change, str]] = {
    "lost": (without_record(3), "d was accepted and is lost"),
    "doubled": (
        lambda h: h.jobs.append(ObservedJob("9", "c", "cancelled")),
        "c was accepted once and is 2 jobs",
    ),
    "a duplicate that ran": (
        lambda h: h.jobs.append(
            ObservedJob(
                "9",
                "c",
                "skipped",
                1,
                executions=[ran(1, "succeeded")],
                duplicate=True,
            )
        ),
        "c ran as 9 too, which was marked as a duplicate",
    ),
    "another id": (
        lambda h: h.answered.append(("b", "7")),
        "b was answered with 7 and is 2",
    ),
    "made up": (
        lambda h: h.jobs.append(ObservedJob("9", "z", "cancelled")),
        "z exists, and no client submitted it",
    ),
    "never ended": (changed(2, status="queued"), "c never ended: it is queued"),
    "final changed": (
        lambda h: h.seen.append(("1", "failed")),
        "1 was succeeded and became failed",
    ),
    "final changed at the end": (changed(2, status="failed"), "3 was cancelled and became failed"),
    "fences fall": (
        changed(3, executions=[ran(2, "lost"), ran(1, "lost")]),
        "d has fence 1 after 2",
    ),
    "fence of another": (changed(1, fence=5), "b has fence 5, its last execution 1"),
    "ran without a lease": (
        with_line(WitnessLine("d", 2, "begin")),
        "d ran under fence 2, which no execution has",
    ),
    "ran twice on one lease": (
        with_line(WitnessLine("b", 1, "begin")),
        "b ran 2 times under fence 1",
    ),
    "started twice": (
        both(
            changed(3, executions=[ran(1, "lost"), ran(2, "lost")], fence=2),
            with_line(WitnessLine("d", 2, "begin")),
        ),
        "d may start once and started 2 times",
    ),
    "overlap": (with_line_moved(2, 5), "a: fence 1 wrote 'tick' after 2 had begun"),
    "overlap long after a thaw": (
        with_line(WitnessLine("a", 1, "tick", 20.1 + WAKING_S, "w1")),
        "a: fence 1 wrote 'tick' after 2 had begun",
    ),
    "overlap in the thaw of another": (
        with_line(WitnessLine("a", 1, "tick", 20.1, "w2")),
        "a: fence 1 wrote 'tick' after 2 had begun",
    ),
    "too much at once": (
        with_line(WitnessLine("d", 1, "tick", 15.5, "w2")),
        "w2 has 1 slots and ran 2 at 15.00",
    ),
    "success without an end": (
        without_line(-1),
        "b succeeded under fence 1 without having ended",
    ),
    "two successes": (
        changed(0, executions=[ran(1, "succeeded"), ran(2, "succeeded")]),
        "a succeeded, and its executions",
    ),
    "a success that does not count": (
        changed(0, status="failed"),
        "a succeeded under fence 2 but is failed",
    ),
    "ran after cancel": (
        with_line(WitnessLine("c", 1, "begin")),
        "c was cancelled and then wrote 'begin'",
    ),
    "skipped yet ran": (changed(3, status="skipped"), "d is skipped, yet it ran"),
    "child first": (with_line_moved(6, 0), "b began before a had succeeded"),
    "child of a failure": (
        changed(
            0,
            status="failed",
            executions=[ran(1, "lost"), ran(2, "failed")],
        ),
        "b began before a had succeeded",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_breaks_a_promise_is_found(name: str) -> None:
    break_it, sentence = BAD[name]
    history = good_history()
    break_it(history)
    assert any(sentence in broken for broken in broken_promises(history)), broken_promises(history)
