"""Reasons why a server is not ready, each after it has lasted."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from rota.engine.health import (
    NO_LEADER,
    PROCESS_ENDS,
    SPILLED_UNREADABLE,
    TABLES_BEHIND,
    HealthMonitor,
)
from rota.engine.ports import LeadershipStatus
from rota.store.projection.client import KEEPS_ENDING
from rota.store.protocol import ProjectionStatus, StoreError
from tests.engine.clocks import FakeClock
from tests.engine.rig import running, until
from tests.engine.test_refills import TINY, run_all

LEADS = LeadershipStatus(leads=True, leader="a", address="", epoch=1, seq=9)
FOLLOWS = LeadershipStatus(leads=False, leader="b", address="http://b", epoch=1, seq=9)
LEADERLESS = LeadershipStatus(leads=False, leader=None, address="", epoch=1, seq=9)


class Facts:
    """Facts about an engine, as a test sets them."""

    has_others = True
    suspects_leader = False
    trouble = "nobody leads yet"
    refills_ms = 0
    lag_s = 0.0

    def __init__(self, status: LeadershipStatus = LEADS) -> None:
        self.clock = FakeClock()
        self.projection = ProjectionStatus()
        self.status = status
        self.health = HealthMonitor(self, lambda: self.lag_s)
        self.health.look()

    @property
    def ready(self) -> bool:
        return self.status.leads

    def standing(self) -> LeadershipStatus:
        return self.status

    def refills_waiting_ms(self) -> int:
        return self.refills_ms

    def codes(self) -> list[str]:
        return [issue.code for issue in self.health.issues()]

    def pass_by(self, seconds: float) -> None:
        """Lets time pass; the server looks every second."""
        for _ in range(int(seconds)):
            self.clock.pass_by(1_000)
            self.health.look()


@pytest.mark.parametrize("status", [LEADS, FOLLOWS])
def test_a_leader_and_a_follower_have_no_issue(status: LeadershipStatus) -> None:
    assert Facts(status).codes() == []


def test_a_server_that_has_known_no_leader_is_not_ready_at_once() -> None:
    facts = Facts(LEADERLESS)
    (issue,) = facts.health.issues()
    assert (issue.code, issue.reason) == (NO_LEADER, "nobody leads yet")


def test_a_follower_that_has_read_nothing_is_not_ready() -> None:
    assert Facts(replace(FOLLOWS, seq=0)).codes() == [NO_LEADER]


def test_a_follower_without_a_leader_is_ready_for_ten_seconds() -> None:
    facts = Facts(FOLLOWS)
    facts.status = LEADERLESS
    facts.pass_by(9)
    assert facts.codes() == []
    facts.pass_by(2)
    assert facts.codes() == [NO_LEADER]
    facts.status = FOLLOWS
    assert facts.codes() == []


def test_a_follower_that_does_not_reach_the_leader_is_not_ready_after_ten_seconds() -> None:
    facts = Facts(FOLLOWS)
    facts.suspects_leader = True
    facts.pass_by(11)
    (issue,) = facts.health.issues()
    assert issue.reason == "the leader b does not answer this server"


def test_a_leader_that_loses_leadership_is_not_ready_at_once() -> None:
    facts = Facts(LEADS)
    facts.status = LEADERLESS
    assert facts.codes() == [NO_LEADER]


def test_tables_that_cannot_follow_are_an_issue_after_ten_seconds() -> None:
    facts = Facts()
    facts.projection = ProjectionStatus(trouble="db: somebody holds a lock")
    facts.pass_by(9)
    assert facts.codes() == []
    facts.pass_by(2)
    (issue,) = facts.health.issues()
    assert issue.code == TABLES_BEHIND
    assert "lock" not in issue.reason
    assert "lock" in issue.text
    facts.projection = ProjectionStatus()
    assert facts.codes() == []


def test_trouble_that_ends_and_begins_again_counts_anew() -> None:
    facts = Facts()
    for trouble in ("lock", "", "lock"):
        facts.projection = ProjectionStatus(trouble=trouble)
        facts.pass_by(6)
    assert facts.codes() == []


def test_tables_that_are_far_behind_are_an_issue() -> None:
    facts = Facts()
    facts.lag_s = 9.0
    assert facts.codes() == []
    facts.lag_s = 11.0
    (issue,) = facts.health.issues()
    assert issue.reason == "the tables are 11 s behind the journal"


def test_a_process_that_keeps_ending_is_an_issue_of_its_own() -> None:
    facts = Facts()
    facts.projection = ProjectionStatus(trouble=KEEPS_ENDING)
    facts.pass_by(11)
    assert facts.codes() == [PROCESS_ENDS]


def test_spilled_jobs_that_cannot_be_read_are_an_issue_after_ten_seconds() -> None:
    facts = Facts()
    facts.refills_ms = 9_999
    assert facts.codes() == []
    facts.refills_ms = 10_000
    assert facts.codes() == [SPILLED_UNREADABLE]


async def test_an_engine_says_for_how_long_spilled_jobs_could_not_be_read() -> None:
    async with running(window=TINY, refill_retry_s=0.0) as rig:
        await rig.register()
        rig.journal.refill_errors = [StoreError("away, as the test asked")] * 10_000
        for number in range(9):
            await rig.submit(f"j{number}", cpu=4)
        working = asyncio.create_task(run_all(rig, 9))
        await until(lambda: len(rig.journal.refill_errors) < 9_990)
        rig.fake_clock.pass_by(12_000)
        assert rig.engine.refills_waiting_ms() >= 12_000
        assert HealthMonitor(rig.engine, lambda: 0.0).issues()[0].code == SPILLED_UNREADABLE
        rig.journal.refill_errors.clear()
        await until(lambda: rig.engine.refills_waiting_ms() == 0)
        assert len(await working) == 9
