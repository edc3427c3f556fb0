"""The checkers are shown histories that must fail, each broken in one place; and a good one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from rota.sim.checkers import broken_promises
from rota.sim.checkers.no_overlap import THAW_S
from rota.sim.history import Freeze, History, Line, Record, Run

Change: TypeAlias = Callable[[History], None]


def good() -> History:
    """A parent that was lost once, its child, a job cancelled in time, and one that failed."""
    return History(
        sent=["a", "b", "c", "d", "e", "never-heard"],
        answered=[("a", "1"), ("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")],
        seen=[("1", "running"), ("1", "queued"), ("1", "succeeded"), ("3", "cancelled")],
        lines=[
            Line("a", 1, "begin", 9.0, "w1"),
            Line("c", 0, "cancelled", 9.5, "client"),
            Line("a", 1, "tick", 9.9, "w1"),
            Line("d", 1, "begin", 10.0, "w2"),
            Line("a", 2, "begin", 15.0, "w2"),
            Line("a", 2, "end", 16.0, "w2"),
            Line("b", 1, "begin", 16.0, "w2"),
            Line("b", 1, "end", 17.0, "w2"),
        ],
        records=[
            Record("1", "a", "succeeded", 2, runs=[Run(1, "lost"), Run(2, "succeeded")]),
            Record("2", "b", "succeeded", after=["a"], runs=[Run(1, "succeeded")]),
            Record("3", "c", "cancelled", 0),
            Record("4", "d", "failed", at_most_once=True, runs=[Run(1, "lost")]),
            Record("5", "e", "succeeded", runs=[Run(1, "succeeded")], speaks=False),
        ],
        freezes=[Freeze("w1", 10.0, 20.0)],
        slots={"w1": 1, "w2": 1},
    )


def test_a_good_history_breaks_nothing() -> None:
    assert broken_promises(good()) == []


def test_a_second_name_that_was_promised_is_no_second_job() -> None:
    history = good()
    history.records.append(Record("9", "a", "skipped", 0, duplicate=True))
    history.answered.append(("a", "9"))
    assert broken_promises(history) == []


def test_what_a_thawing_machine_says_is_excused() -> None:
    history = good()
    history.lines.append(Line("a", 1, "tick", 20.1, "w1"))
    assert broken_promises(history) == []


def changed(place: int, **fields: object) -> Change:
    def change(history: History) -> None:
        history.records[place] = replace(history.records[place], **fields)  # type: ignore[arg-type]

    return change


def moved(source: int, target: int) -> Change:
    return lambda history: history.lines.insert(target, history.lines.pop(source))


def said(*line: Line) -> Change:
    return lambda history: history.lines.extend(line)


def both(*changes: Change) -> Change:
    def change(history: History) -> None:
        for one in changes:
            one(history)

    return change


def without_record(place: int) -> Change:
    def change(history: History) -> None:
        del history.records[place]

    return change


def without_line(place: int) -> Change:
    def change(history: History) -> None:
        del history.lines[place]

    return change


BAD: dict[str, tuple[Change, str]] = {
    "lost": (without_record(3), "d was accepted and is lost"),
    "doubled": (
        lambda h: h.records.append(Record("9", "c", "cancelled")),
        "c was accepted once and is 2 jobs",
    ),
    "a duplicate that ran": (
        lambda h: h.records.append(
            Record("9", "c", "skipped", 1, runs=[Run(1, "succeeded")], duplicate=True)
        ),
        "c ran as 9 too, which was said to be a duplicate",
    ),
    "another id": (
        lambda h: h.answered.append(("b", "7")),
        "b was answered with 7 and is 2",
    ),
    "made up": (
        lambda h: h.records.append(Record("9", "z", "cancelled")),
        "z was submitted by nobody",
    ),
    "never ended": (changed(2, status="queued"), "c never ended: it is queued"),
    "final changed": (
        lambda h: h.seen.append(("1", "failed")),
        "1 was succeeded and became failed",
    ),
    "final changed at the end": (changed(2, status="failed"), "3 was cancelled and became failed"),
    "fences fall": (
        changed(3, runs=[Run(2, "lost"), Run(1, "lost")]),
        "d has fence 1 after 2",
    ),
    "fence of another": (changed(1, fence=5), "b says fence 5, its last run 1"),
    "ran without a lease": (said(Line("d", 2, "begin")), "d ran under fence 2, which nobody"),
    "ran twice on one lease": (said(Line("b", 1, "begin")), "b ran 2 times under fence 1"),
    "started twice": (
        both(
            changed(3, runs=[Run(1, "lost"), Run(2, "lost")], fence=2),
            said(Line("d", 2, "begin")),
        ),
        "d may start once and started 2 times",
    ),
    "overlap": (moved(2, 5), "a: fence 1 said 'tick' after 2 had begun"),
    "overlap long after a thaw": (
        said(Line("a", 1, "tick", 20.1 + THAW_S, "w1")),
        "a: fence 1 said 'tick' after 2 had begun",
    ),
    "overlap in the thaw of another": (
        said(Line("a", 1, "tick", 20.1, "w2")),
        "a: fence 1 said 'tick' after 2 had begun",
    ),
    "too much at once": (
        said(Line("d", 1, "tick", 15.5, "w2")),
        "w2 has room for 1 and ran 2 at 15.00",
    ),
    "success without an end": (
        without_line(-1),
        "b succeeded under fence 1 without having ended",
    ),
    "two successes": (
        changed(0, runs=[Run(1, "succeeded"), Run(2, "succeeded")]),
        "a succeeded, yet its runs are",
    ),
    "a success that does not count": (
        changed(0, status="failed"),
        "a succeeded under fence 2 but is failed",
    ),
    "ran after cancel": (said(Line("c", 1, "begin")), "c was cancelled and then said 'begin'"),
    "skipped yet ran": (changed(3, status="skipped"), "d is skipped, yet it ran"),
    "child first": (moved(6, 0), "b began before a had succeeded"),
    "child of a failure": (
        changed(0, status="failed", runs=[Run(1, "lost"), Run(2, "failed")]),
        "b began before a had succeeded",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_named(name: str) -> None:
    break_it, sentence = BAD[name]
    history = good()
    break_it(history)
    assert any(sentence in broken for broken in broken_promises(history)), broken_promises(history)
