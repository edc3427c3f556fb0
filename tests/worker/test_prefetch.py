"""Prefetched orders on the worker: when they begin, and when they go back."""

from __future__ import annotations

import pytest

from rota.wire.workers import OrderView
from rota.worker.prefetch import PREFETCH_S
from rota.worker.reports import report_noop
from rota.worker.session import LEASE_MARGIN, Action, LeaseCall, Session, Start
from tests.worker.orders import TTL, answer, order, registration


@pytest.fixture
def session() -> Session:
    fresh = Session(spare=8)
    fresh.registered(registration())
    return fresh


def given(session: Session, *orders: OrderView, at: float = 0.0) -> list[str]:
    """These came with an answer; those that began."""
    return begun(session.answered(session.call(at), answer(*orders), at))


def ended(session: Session, name: str, at: float = 0.0) -> list[str]:
    """It has ended; those that began because of it."""
    return begun(session.ended([report_noop(name, 7)], at))


def begun(instructions: list[Action]) -> list[str]:
    return [one.order.execution_id for one in instructions if isinstance(one, Start)]


def returned(call: LeaseCall) -> list[str]:
    """What a call gives back."""
    return [one.execution_id for one in call.spec.completed if one.status == "returned"]


def test_a_prefetched_order_starts_when_its_predecessor_has_ended(session: Session) -> None:
    prefetched = [order("b", behind="a"), order("c", behind="b")]
    assert given(session, order("a"), *prefetched) == ["a"]
    assert ended(session, "a") == ["b"], "no server was asked"
    assert ended(session, "b") == ["c"]
    assert session.call(0).carried == ("a", "b"), "one call for both"


def test_a_prefetched_order_whose_predecessor_has_ended_starts_at_once(session: Session) -> None:
    given(session, order("a"))
    ended(session, "a")
    assert given(session, order("b", behind="a")) == ["b"]


def test_a_prefetched_order_whose_predecessor_never_came_waits(session: Session) -> None:
    given(session, order("a"))
    assert given(session, order("c", behind="b")) == []
    assert given(session, order("b", behind="a")) == [], "an answer that was late"
    assert ended(session, "a") == ["b"]
    assert ended(session, "b") == ["c"]


def test_a_worker_says_how_many_more_orders_it_can_prefetch(session: Session) -> None:
    assert session.call(0).spec.spare == 8
    given(session, order("a"), order("b", behind="a"))
    assert session.call(0).spec.spare == 7


def test_a_prefetched_order_takes_no_slot(session: Session) -> None:
    session = Session(concurrency=1, spare=2)
    session.registered(registration())
    given(session, order("a"), order("b", behind="a"))
    assert session.call(0).spec.max == 0
    ended(session, "a")
    assert session.held == 1


def test_a_server_that_does_not_prefetch_is_not_asked_for_it(session: Session) -> None:
    session.registered(registration(spare_max=0))
    assert session.call(0).spec.spare == 0


def test_an_older_server_that_does_not_know_prefetch_is_asked_without_it(session: Session) -> None:
    given(session, order("a"))
    ended(session, "a")
    assert session.refused(session.call(0), "spare: unknown field `spare`; known here: `max`")
    call = session.call(0)
    assert (call.spec.spare, call.carried) == (0, ("a",)), "and no report is given up for it"


def test_a_prefetched_order_that_could_not_start_soon_goes_back(session: Session) -> None:
    given(session, order("a"), order("b", behind="a"), order("c", behind="b"))
    assert session.next_deadline() == PREFETCH_S
    session.expire(PREFETCH_S)
    assert returned(session.call(PREFETCH_S)) == ["b", "c"]
    assert ended(session, "a", at=1) == []


def test_an_order_that_went_back_is_not_started_when_it_arrives_again(session: Session) -> None:
    given(session, order("a"), order("b", behind="a"))
    session.expire(PREFETCH_S)
    ended(session, "a", at=PREFETCH_S)
    assert given(session, order("b", behind="a"), at=PREFETCH_S) == []


def test_an_order_whose_predecessor_went_back_waits_for_the_same_slot(session: Session) -> None:
    given(session, order("a"), order("b", behind="a"))
    session.expire(PREFETCH_S)
    late = order("c", behind="b")
    assert given(session, late, at=PREFETCH_S) == [], "b never had the place: a has it"
    assert ended(session, "a", at=PREFETCH_S) == ["c"]


def test_a_cancelled_prefetched_order_lets_the_next_move_up(session: Session) -> None:
    given(session, order("a"), order("b", behind="a"), order("c", behind="b"))
    session.answered(session.call(0), answer(cancel=["b"]), 0)
    assert session.call(0).spec.completed[0].status == "cancelled"
    assert ended(session, "a") == ["c"]


def test_a_draining_worker_gives_back_prefetched_orders(session: Session) -> None:
    given(session, order("a"), order("b", behind="a"))
    session.drain()
    call = session.call(0)
    assert (returned(call), call.spec.spare) == (["b"], 0)
    assert ended(session, "a") == []


def test_a_prefetched_order_whose_lease_ran_out_does_not_start(session: Session) -> None:
    given(session, order("a"), order("b", behind="a"))
    assert ended(session, "a", at=TTL) == [], "the agent was frozen"
    session.expire(TTL)
    assert session.held == 0


def test_only_a_call_with_every_report_lets_a_prefetched_order_go_unnamed(
    session: Session,
) -> None:
    given(session, order("a"), order("b", behind="a"))
    named = session.call(1)
    ended(session, "a", at=1)
    session.answered(named, answer(), 1)
    session.call(2)
    beside = session.call(2)
    assert (beside.spec.executions, beside.named) == (None, ()), "b was known to wait"


def test_a_prefetched_order_that_runs_is_renewed_as_others_are(session: Session) -> None:
    given(session, order("a"), order("b", behind="a"))
    ended(session, "a", at=0.1)
    session.answered(session.call(1), answer(), 1)
    full, beside = session.call(4), session.call(4.5)
    assert beside.named == ("b",)
    session.answered(beside, answer(), 5)
    session.failed(full)
    assert session.deadline("b") == pytest.approx(4.5 + TTL * (1 - LEASE_MARGIN))
