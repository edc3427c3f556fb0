"""State machine of a worker: what it holds, starts, stops and reports."""

from __future__ import annotations

import msgspec
import pytest

from rota.worker.reports import report_failed, report_noop
from rota.worker.session import LEASE_MARGIN, Abandon, Session, Start, Stop
from tests.worker.orders import TTL, answer, order, registration


@pytest.fixture
def session() -> Session:
    fresh = Session(concurrency=4)
    fresh.registered(registration())
    return fresh


def running(session: Session, *names: str, at: float = 0.0) -> None:
    """The session runs these, and the server has heard so."""
    session.answered(session.call(at), answer(*(order(name) for name in names)), at)
    session.answered(session.call(at), answer(), at)


def test_an_order_is_started_once_however_often_it_is_delivered(session: Session) -> None:
    first = session.answered(session.call(0), answer(order("a")), 0)
    again = session.answered(session.call(1), answer(order("a")), 1)
    assert first == [Start(order("a"))]
    assert again == []


def test_an_order_that_arrives_again_after_its_report_is_not_started(
    session: Session,
) -> None:
    running(session, "a")
    old = session.call(1)
    session.ended([report_noop("a", 7)], 0)
    new = session.call(1)
    assert new.carried == ("a",)
    session.answered(new, answer(), 2)
    assert session.answered(old, answer(order("a")), 2) == []
    assert session.pending_reports == 0


def test_a_grant_older_than_half_its_lease_is_not_taken_and_never_named(session: Session) -> None:
    call = session.call(0)
    assert session.answered(call, answer(order("a")), TTL / 2 + 0.1) == []
    assert session.call(10).spec.executions == []


def test_the_time_a_server_held_the_poll_does_not_make_a_grant_old(session: Session) -> None:
    call = session.call(0)
    assert session.answered(call, answer(order("a"), held_for=8), 8.1) == [Start(order("a"))]
    assert session.next_deadline() == pytest.approx(8 + TTL * (1 - LEASE_MARGIN))


def test_a_server_cannot_claim_to_have_held_a_poll_longer_than_it_took(session: Session) -> None:
    session.answered(session.call(0), answer(order("a"), held_for=100), 1)
    assert session.next_deadline() == pytest.approx(1 + TTL * (1 - LEASE_MARGIN))


def test_a_renewal_counts_from_the_sending_of_the_call_not_from_its_answer(
    session: Session,
) -> None:
    running(session, "a")
    session.answered(session.call(4), answer(held_for=3), 7)
    assert session.next_deadline() == pytest.approx(4 + TTL * (1 - LEASE_MARGIN))


def test_an_execution_ended_for_its_lease_is_neither_reported_nor_named(session: Session) -> None:
    running(session, "a")
    assert session.deadline("a") == pytest.approx(TTL * (1 - LEASE_MARGIN))
    session.lapsed("a")
    session.ended([report_noop("a", 7)], 0)
    assert (session.held, session.pending_reports, session.deadline("a")) == (0, 0, None)
    assert session.answered(session.call(1), answer(order("a")), 1) == [], "nor started again"


def test_an_execution_that_loses_its_lease_is_abandoned_and_not_reported(session: Session) -> None:
    running(session, "a")
    assert session.expire(TTL * (1 - LEASE_MARGIN) - 0.01) == []
    (gone,) = session.expire(TTL)
    assert isinstance(gone, Abandon)
    assert session.expire(TTL + 1) == []
    assert session.held == 1, "its processes are still being ended"
    session.ended([report_noop("a", 7)], 0)
    assert (session.held, session.pending_reports) == (0, 0)


def test_an_expired_execution_is_not_named_even_before_it_is_abandoned(session: Session) -> None:
    running(session, "a")
    assert session.call(TTL + 1).named == ()


def test_an_abandoned_execution_is_not_revived_by_a_late_answer(session: Session) -> None:
    running(session, "a")
    late = session.call(10)
    session.expire(TTL)
    session.answered(late, answer(), TTL + 1)
    assert session.next_deadline() is None
    assert session.call(TTL + 1).named == ()


def test_a_report_stays_pending_until_a_call_that_carried_it_is_answered(session: Session) -> None:
    running(session, "a")
    session.ended([report_noop("a", 7)], 0)
    lost = session.call(1)
    assert lost.carried == ("a",)
    session.failed(lost)
    again = session.call(2)
    assert again.carried == ("a",)
    session.answered(again, answer(), 2)
    assert session.pending_reports == 0
    assert session.call(3).carried == ()


def test_a_report_in_flight_is_not_sent_by_a_second_call(session: Session) -> None:
    running(session, "a", "b")
    session.ended([report_noop("a", 7)], 0)
    first = session.call(1)
    session.ended([report_noop("b", 7)], 0)
    second = session.call(1)
    assert (first.carried, second.carried) == (("a",), ("b",))


def test_a_refused_report_is_dropped(session: Session) -> None:
    running(session, "a")
    session.ended([report_noop("a", 7)], 0)
    call = session.call(1)
    session.failed(call)
    session.answered(session.call(2), answer(lost=["a"]), 2)
    assert session.pending_reports == 0


def test_an_execution_that_the_server_took_back_is_abandoned(session: Session) -> None:
    running(session, "a", "b")
    told = session.answered(session.call(1), answer(lost=["a"]), 1)
    assert told == [Abandon("a", "the server took it back")]


def test_a_cancelled_execution_is_stopped_once_though_the_server_repeats_itself(
    session: Session,
) -> None:
    running(session, "a")
    assert session.answered(session.call(1), answer(cancel=["a"]), 1) == [Stop("a", "cancelled")]
    assert session.answered(session.call(2), answer(cancel=["a"]), 2) == []


def test_a_second_call_is_wanted_beside_an_open_one_only_for_reports(session: Session) -> None:
    running(session, "a")
    session.call(1)
    assert not session.wants_call(1)
    session.ended([report_noop("a", 7)], 0)
    assert session.wants_call(1)
    session.call(1)
    assert not session.wants_call(1), "two are open: the older one is about to end"


def test_a_call_beside_an_open_one_denies_nothing_and_renews_what_was_named(
    session: Session,
) -> None:
    running(session, "a", "b")
    open_poll = session.call(1)
    session.ended([report_noop("a", 7)], 0)
    beside = session.call(3)
    assert beside.spec.executions is None
    crossing = session.answered(open_poll, answer(order("c")), 3)
    assert crossing == [Start(order("c"))]
    session.answered(beside, answer(), 4)
    full = session.call(4)
    assert [one.execution_id for one in full.spec.executions or []] == ["b", "c"]


def test_calls_beside_open_ones_end_in_time_for_a_full_one(session: Session) -> None:
    running(session, "a", "b")
    session.call(10)
    session.ended([report_noop("a", 7)], 0)
    beside = session.call(14)
    assert beside.spec.wait.seconds == pytest.approx(1.0)
    session.ended([report_noop("b", 7)], 0)
    assert not session.wants_call(15.1)


def test_free_slots_count_executions_and_reports_that_are_not_in_flight(session: Session) -> None:
    running(session, "a", "b", "c")
    assert session.call(1).spec.max == 1
    session.ended([report_noop("a", 7)], 0)
    assert session.call(1).spec.max == 2


def test_orders_beyond_the_limit_wait_for_a_slot_and_are_named_meanwhile(session: Session) -> None:
    orders = [order(name) for name in "abcdef"]
    started = session.answered(session.call(0), answer(*orders), 0)
    assert started == [Start(one) for one in orders[:4]]
    assert len(session.call(1).named) == 6
    assert session.ended([report_noop("a", 7)], 0) == [Start(orders[4])]


def test_an_order_cancelled_while_it_waits_for_a_slot_is_reported_and_never_started(
    session: Session,
) -> None:
    session.answered(session.call(0), answer(*(order(name) for name in "abcde")), 0)
    assert session.answered(session.call(1), answer(cancel=["e"]), 1) == []
    (report,) = session.call(1).spec.completed
    assert (report.execution_id, report.status) == ("e", "cancelled")
    assert session.ended([report_noop("a", 7)], 0) == []


def test_progress_travels_with_the_next_full_call(session: Session) -> None:
    running(session, "a")
    session.progressed("a", 0.5, "half")
    (named,) = session.call(1).spec.executions or []
    assert not isinstance(named, str)
    assert (named.progress, named.message, named.fence) == (0.5, "half", 7)


def test_a_draining_worker_asks_for_nothing_and_is_drained_when_all_is_reported(
    session: Session,
) -> None:
    running(session, "a")
    poll = session.call(1)
    session.drain()
    assert session.wants_call(1)
    told = session.call(1)
    assert told.spec.max == 0
    session.answered(poll, answer(), 1)
    session.ended([report_noop("a", 7)], 0)
    session.answered(told, answer(), 1)
    assert not session.drained
    last = session.call(2)
    assert last.carried == ("a",)
    session.answered(last, answer(), 2)
    assert session.drained


def test_a_worker_told_to_stop_all_stops_what_runs_and_gives_back_what_waits(
    session: Session,
) -> None:
    session.answered(session.call(0), answer(*(order(name) for name in "abcde")), 0)
    stops = session.stop_all()
    assert stops == [Stop(name, "shutdown") for name in "abcd"]
    session.ended([report_noop("a", 7)], 0)
    session.ended([report_failed("b", 7, "killed")], 0)
    (report,) = session.call(1).spec.completed
    assert (report.execution_id, report.status) == ("a", "succeeded"), "done before it was stopped"


def test_a_worker_that_the_server_forgot_abandons_everything_and_keeps_its_reports(
    session: Session,
) -> None:
    running(session, "a", "b")
    session.ended([report_noop("a", 7)], 0)
    old = session.call(1)
    assert session.registration_lost("gone") == [Abandon("b", "gone")]
    assert session.answered(old, answer(order("c")), 1) == [], "an answer to the old identity"
    assert session.call(2).carried == ("a",)


def test_a_report_that_the_server_refuses_is_found_and_replaced(session: Session) -> None:
    running(session, "a", "b")
    for name in "ab":
        report = report_noop(name, 7)
        report.result = msgspec.Raw(b'"bad"')
        session.ended([report], 0)
    assert session.refused(session.call(1), "no good")
    alone = session.call(2)
    assert alone.carried == ("a",)
    assert session.refused(alone, "no good")
    (mended,) = session.call(3).spec.completed
    assert mended.status == "failed"
    assert b"no good" in bytes(mended.error)


def test_a_refused_call_without_reports_cannot_be_repaired(session: Session) -> None:
    assert not session.refused(session.call(1), "no good")


def test_large_results_are_spread_over_several_calls(session: Session) -> None:
    running(session, *"abcd")
    for name in "abcd":
        report = report_noop(name, 7)
        report.result = msgspec.Raw(b'"' + b"x" * 3_000_000 + b'"')
        session.ended([report], 0)
    first = session.call(1)
    assert first.carried == ("a", "b")
    assert session.call(1).carried == ("c", "d")


def test_a_heartbeat_renews_executions_that_the_server_knows(session: Session) -> None:
    running(session, "a")
    beat = session.heartbeat(9)
    from rota.wire.workers import HeartbeatAnswer

    assert session.heartbeat_answered(beat, HeartbeatAnswer(cancel=["a"], lost=[])) == [
        Stop("a", "cancelled")
    ]
    assert session.next_deadline() == pytest.approx(9 + TTL * (1 - LEASE_MARGIN))


def test_after_a_failure_the_next_call_does_not_wait_while_anything_is_held(
    session: Session,
) -> None:
    running(session, "a")
    silent = session.call(3)
    assert silent.spec.wait.seconds > 0
    session.failed(silent)
    second = session.call(9)
    assert second.spec.wait.seconds == 0
    session.failed(second)
    third = session.call(12)
    session.answered(third, answer(), 12.1)
    assert session.expire(13) == [], "a third server was asked in time"
    assert session.call(12.1).spec.wait.seconds > 0


def test_an_idle_worker_waits_for_work_though_the_last_call_failed(session: Session) -> None:
    session.failed(session.call(0))
    assert session.call(1).spec.wait.seconds == TTL / 3


def test_the_answer_of_a_call_that_was_given_up_changes_nothing(session: Session) -> None:
    running(session, "a")
    session.ended([report_noop("a", 7)], 0)
    given_up = session.call(1)
    session.failed(given_up)
    assert session.answered(given_up, answer(order("b"), lost=["a"]), 2) == []
    assert (session.held, session.pending_reports) == (0, 1)


def test_a_call_with_reports_may_be_held_for_work_where_the_server_can(session: Session) -> None:
    session.answered(session.call(0), answer(order("a"), order("b")), 0)
    assert not session.call(0).spec.patient, "nothing is reported that could be answered at once"
    session.ended([report_noop("a", 7)], 0)
    assert session.call(0).spec.patient
    session.registered(registration(patient=False))
    session.ended([report_noop("b", 7)], 0)
    assert not session.call(0).spec.patient


def test_an_older_server_that_does_not_know_patient_calls_is_not_asked_again(
    session: Session,
) -> None:
    session.answered(session.call(0), answer(order("a")), 0)
    session.ended([report_noop("a", 7)], 0)
    assert session.refused(session.call(0), "patient: unknown field `patient`; known here: `max`")
    call = session.call(0)
    assert (call.spec.patient, call.carried) == (False, ("a",))
