"""From findings to notices: once when it begins, once when it is over, and not a word more."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rota.alerts.conditions import Finding
from rota.alerts.rules import DEFAULT_RULES, AlertSettings, Silence
from rota.alerts.state import AlertState, Notification, NotificationKind, RuleStatus

YES, NO = Finding(7, holds=True, said="seven"), Finding(0, holds=False, said="none")
RULE = replace(DEFAULT_RULES["wait"], for_ms=60_000)
BOOK = AlertSettings(rules={"wait": RULE})
MINUTE = 60_000


def look(
    board: AlertState, finding: Finding | None, now: int, book: AlertSettings = BOOK
) -> list[Notification]:
    return board.advance(book, {"wait": finding}, now)


def fire(board: AlertState) -> None:
    look(board, YES, 0)
    assert [one.news for one in look(board, YES, MINUTE)] == [NotificationKind.FIRING]


def test_it_fires_only_after_it_has_held_for_long_enough() -> None:
    board = AlertState()
    assert look(board, YES, 0) == []
    assert board.places["wait"].state is RuleStatus.PENDING
    assert look(board, YES, MINUTE - 1) == []
    (notice,) = look(board, YES, MINUTE)
    assert (notice.rule, notice.news, notice.since, notice.said) == ("wait", "firing", 0, "seven")


def test_what_ends_before_that_was_nothing() -> None:
    board = AlertState()
    look(board, YES, 0)
    assert look(board, NO, 30_000) == []
    assert look(board, YES, 50_000) == []
    assert look(board, YES, MINUTE + 1) == []


def test_it_is_told_once_however_long_it_goes_on() -> None:
    board = AlertState()
    fire(board)
    assert [look(board, YES, MINUTE * n) for n in range(2, 200)] == [[]] * 198


def test_it_is_over_when_it_has_been_over_for_as_long() -> None:
    board = AlertState()
    fire(board)
    assert look(board, NO, 2 * MINUTE) == []
    assert look(board, YES, 3 * MINUTE - 1) == []  # it flutters
    assert look(board, NO, 4 * MINUTE) == []
    (notice,) = look(board, NO, 5 * MINUTE)
    assert notice.news is NotificationKind.RESOLVED
    assert board.places == {}
    assert look(board, NO, 6 * MINUTE) == []


def test_what_cannot_be_said_changes_nothing_that_fires() -> None:
    board = AlertState()
    fire(board)
    assert look(board, None, 20 * MINUTE) == []
    assert board.places["wait"].state is RuleStatus.FIRING


def test_a_silenced_rule_tells_nobody_until_the_silence_ends() -> None:
    board = AlertState()
    silent = replace(BOOK, silences={"wait": Silence("wait", until=10 * MINUTE)})
    for n in range(10):
        assert look(board, YES, n * MINUTE, silent) == []
    assert board.places["wait"].state is RuleStatus.FIRING
    assert [one.news for one in look(board, YES, 10 * MINUTE, silent)] == [NotificationKind.FIRING]


def test_what_began_and_ended_in_silence_is_never_told() -> None:
    board = AlertState()
    silent = replace(BOOK, silences={"wait": Silence("wait", until=10 * MINUTE)})
    look(board, YES, 0, silent)
    look(board, YES, MINUTE, silent)
    assert look(board, NO, 11 * MINUTE, silent) == []
    assert look(board, NO, 12 * MINUTE, silent) == []
    assert board.places == {}


def test_a_rule_that_wants_to_be_repeated_is() -> None:
    board = AlertState()
    book = AlertSettings(rules={"wait": replace(RULE, repeat_ms=10 * MINUTE)})
    told = [n for n in range(35) for _ in look(board, YES, n * MINUTE, book)]
    assert told == [1, 11, 21, 31]


def test_a_rule_that_is_switched_off_while_it_fires_says_no_more() -> None:
    board = AlertState()
    fire(board)
    off = AlertSettings(rules={"wait": replace(RULE, enabled=False)})
    assert look(board, YES, 3 * MINUTE, off) == []
    assert board.places == {}


def test_the_next_leader_goes_on_without_a_second_notice() -> None:
    board = AlertState()
    fire(board)
    heir = msgspec.msgpack.decode(msgspec.msgpack.encode(board), type=AlertState)
    assert look(heir, None, 2 * MINUTE) == []  # has not seen enough yet
    assert look(heir, YES, 3 * MINUTE) == []
    look(heir, NO, 4 * MINUTE)
    assert [one.news for one in look(heir, NO, 5 * MINUTE)] == [NotificationKind.RESOLVED]


def test_figures_that_only_change_are_nothing_to_write() -> None:
    board = AlertState()
    fire(board)
    mark = board.fingerprint()
    look(board, Finding(99, holds=True, said="ninety-nine"), 2 * MINUTE)
    assert board.places["wait"].value == 99
    assert board.fingerprint() == mark
