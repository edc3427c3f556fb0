"""Schedules in the loop: a clock that is set during a sleep, and appends that fail as they fire."""

from __future__ import annotations

import asyncio

import pytest

from rota.core.commands import CreateSchedule, NewSchedule
from rota.core.model import ScheduleId
from rota.core.schedule_model import Occurrence
from rota.store.queries import OccurrenceQuery
from tests.core.schedule_builders import plan
from tests.engine.rig import PATIENCE_S, Rig, running

HOUR = 3_600_000
SCHEDULE = ScheduleId("schedule-1")


async def hourly(rig: Rig) -> None:
    """Creates a schedule whose first instant is an hour away."""
    new = NewSchedule(id=SCHEDULE, definition=plan(interval_ms=HOUR))
    await rig.engine.post(CreateSchedule(schedule=new))


async def occurrences(rig: Rig, count: int) -> list[Occurrence]:
    """Waits for so many occurrences, and returns them."""
    query, seen = OccurrenceQuery(schedule_id=SCHEDULE), 0
    async with asyncio.timeout(PATIENCE_S):
        while len(found := await rig.store.queries.find_occurrences(query)) < count:
            seen = await rig.engine.journal_notifier.wait_beyond(seen)
    return found


async def test_a_clock_that_is_set_forward_during_a_sleep_is_noticed() -> None:
    async with running(clock_look_s=0.01) as rig:
        await hourly(rig)
        rig.fake_clock.set_by(HOUR)
        (only,) = await occurrences(rig, 1)
        assert only.job_id is not None


@pytest.mark.parametrize("written", [True, False])
async def test_an_instant_whose_append_has_an_unknown_fate_is_decided_once(written: bool) -> None:
    async with running(clock_look_s=0.01) as rig:
        await hourly(rig)
        rig.store.journal.leave_next_append_uncertain(written=written)
        rig.fake_clock.pass_by(HOUR)
        (before,) = await occurrences(rig, 1)
        rig.fake_clock.pass_by(HOUR)
        second, first = await occurrences(rig, 2)
        assert first == before
        jobs = await rig.store.queries.jobs([first.job_id or "", second.job_id or ""])  # type: ignore[list-item]
        assert len(jobs) == 2
        assert sum(rig.metrics.reloads.values()) == 1
