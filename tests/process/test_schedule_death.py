"""Server killed in the second when many schedules are due: each still fires, once."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from rota.sdk import Client, JobSearch, LedgerSearch
from rota.wire.schedules import OccurrenceView
from tests.process.cell import Cell, until

pytestmark = pytest.mark.process

MANY = 500
NOOP = {"name": "once", "task": {"kind": "noop"}}


def deploy(client: Client, at: datetime) -> None:
    """Schedules that are all due at the same moment."""
    client.deploy_schedules(
        "test", [{"name": f"s{n}", "at": at.isoformat(), "job": NOOP} for n in range(MANY)]
    )


def ledger(client: Client) -> list[OccurrenceView]:
    """What became of every schedule's instant."""
    found = []
    for schedule in client.schedules():
        found += client.occurrences(schedule.schedule_id, LedgerSearch(limit=10)).items
    return found


@pytest.mark.parametrize("after_s", [pytest.param(0.0, marks=pytest.mark.slow), 0.15])
def test_a_server_killed_when_500_are_due_fires_each_once(cell: Cell, after_s: float) -> None:
    cell.up()
    client = cell.client()
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    deploy(client, at)
    assert time.time() < at.timestamp(), "deploying took longer than the schedules had"
    until(lambda: time.time() >= at.timestamp() + after_s, "the moment")
    cell.server.kill()
    cell.up()
    client = cell.client()
    # Most have ended by then: the next instant of a one-off that has fired is none.
    until(lambda: all(one.status == "ended" for one in client.schedules()), "all decided")
    lines = ledger(client)
    assert len(lines) == MANY
    assert {one.outcome for one in lines} <= {"fired", "late", "caught_up"}
    jobs = [job.job_id for job in client.jobs(JobSearch(name="once"))]
    assert len(jobs) == MANY
    assert Counter(one.job_id for one in lines) == Counter(jobs)
