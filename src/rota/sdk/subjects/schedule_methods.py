"""What both clients can ask about schedules: a method a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rota.sdk.calls import Call
from rota.sdk.flows import Flow, Terms
from rota.sdk.subjects import paging
from rota.sdk.subjects import schedule_calls as calls
from rota.sdk.subjects.schedule_calls import LedgerSearch, ScheduleLike
from rota.wire.schedules import (
    BackfillAnswer,
    BackfillSpec,
    CalendarView,
    DeployAnswer,
    ForeseenView,
    OccurrencePage,
    OccurrenceView,
    ScheduleView,
)

T = TypeVar("T")


class ScheduleMethods:
    """For the client that blocks; whoever has it carries calls."""

    if TYPE_CHECKING:
        terms: Terms

        def call(self, call: Call[T], *, key: str | None = None) -> T: ...
        def run(self, flow: Flow[T]) -> T: ...

    def schedules(
        self, *, name: str | None = None, tenant: str | None = None, owner: str | None = None
    ) -> list[ScheduleView]:
        """All schedules that match, newest first."""
        return self.run(paging.all_schedules(self.terms, name=name, tenant=tenant, owner=owner))

    def schedule(self, schedule_id: str) -> ScheduleView:
        """One schedule."""
        return self.call(calls.get_schedule(schedule_id))

    def create_schedule(self, schedule: ScheduleLike) -> ScheduleView:
        """Makes a schedule; it is durable when this returns."""
        return self.call(calls.create_schedule(schedule))

    def update_schedule(self, schedule_id: str, patch: Mapping[str, Any]) -> ScheduleView:
        """Changes a schedule, by JSON Merge Patch."""
        return self.call(calls.update_schedule(schedule_id, patch))

    def delete_schedule(self, schedule_id: str) -> None:
        """Removes a schedule; its jobs go on."""
        self.call(calls.delete_schedule(schedule_id))

    def pause_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule make no jobs."""
        return self.call(calls.pause_schedule(schedule_id))

    def resume_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule go on."""
        return self.call(calls.resume_schedule(schedule_id))

    def trigger_schedule(self, schedule_id: str) -> OccurrenceView:
        """Runs a schedule's job now."""
        return self.call(calls.trigger_schedule(schedule_id))

    def preview_schedule(
        self, schedule_id: str, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """The next instants of a schedule."""
        return (self.call(calls.preview_schedule(schedule_id, count=count, after=after))).items

    def preview(
        self, schedule: ScheduleLike, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """The same of a schedule that is not made."""
        return (self.call(calls.preview(schedule, count=count, after=after))).items

    def occurrences(self, schedule_id: str, search: LedgerSearch | None = None) -> OccurrencePage:
        """What became of a schedule's instants, newest first."""
        return self.call(calls.occurrences(schedule_id, search or LedgerSearch()))

    def backfill(self, schedule_id: str, spec: BackfillSpec | Mapping[str, Any]) -> BackfillAnswer:
        """Runs a schedule for a past range."""
        return self.call(calls.backfill(schedule_id, spec))

    def cancel_backfill(self, schedule_id: str, backfill_id: str) -> int:
        """Calls off what is left of a backfill; answers how many jobs."""
        return (self.call(calls.cancel_backfill(schedule_id, backfill_id))).count

    def deploy_schedules(self, owner: str, schedules: Sequence[ScheduleLike]) -> DeployAnswer:
        """Sets all schedules of a program; what it names no more is retired."""
        return self.call(calls.deploy(owner, schedules))

    def calendars(self) -> list[CalendarView]:
        """All calendars, by name."""
        return self.run(paging.all_calendars(self.terms))

    def calendar(self, name: str) -> CalendarView:
        """One calendar."""
        return self.call(calls.get_calendar(name))

    def set_calendar(self, name: str, dates: Sequence[str]) -> CalendarView:
        """Sets a calendar's dates, each written like 2026-12-25."""
        return self.call(calls.set_calendar(name, dates))

    def delete_calendar(self, name: str) -> None:
        """Removes a calendar that no schedule names."""
        self.call(calls.delete_calendar(name))


class AsyncScheduleMethods:
    """The same, awaited."""

    if TYPE_CHECKING:
        terms: Terms

        async def call(self, call: Call[T], *, key: str | None = None) -> T: ...
        async def run(self, flow: Flow[T]) -> T: ...

    async def schedules(
        self, *, name: str | None = None, tenant: str | None = None, owner: str | None = None
    ) -> list[ScheduleView]:
        """All schedules that match, newest first."""
        return await self.run(
            paging.all_schedules(self.terms, name=name, tenant=tenant, owner=owner)
        )

    async def schedule(self, schedule_id: str) -> ScheduleView:
        """One schedule."""
        return await self.call(calls.get_schedule(schedule_id))

    async def create_schedule(self, schedule: ScheduleLike) -> ScheduleView:
        """Makes a schedule; it is durable when this returns."""
        return await self.call(calls.create_schedule(schedule))

    async def update_schedule(self, schedule_id: str, patch: Mapping[str, Any]) -> ScheduleView:
        """Changes a schedule, by JSON Merge Patch."""
        return await self.call(calls.update_schedule(schedule_id, patch))

    async def delete_schedule(self, schedule_id: str) -> None:
        """Removes a schedule; its jobs go on."""
        await self.call(calls.delete_schedule(schedule_id))

    async def pause_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule make no jobs."""
        return await self.call(calls.pause_schedule(schedule_id))

    async def resume_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule go on."""
        return await self.call(calls.resume_schedule(schedule_id))

    async def trigger_schedule(self, schedule_id: str) -> OccurrenceView:
        """Runs a schedule's job now."""
        return await self.call(calls.trigger_schedule(schedule_id))

    async def preview_schedule(
        self, schedule_id: str, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """The next instants of a schedule."""
        return (
            await self.call(calls.preview_schedule(schedule_id, count=count, after=after))
        ).items

    async def preview(
        self, schedule: ScheduleLike, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """The same of a schedule that is not made."""
        return (await self.call(calls.preview(schedule, count=count, after=after))).items

    async def occurrences(
        self, schedule_id: str, search: LedgerSearch | None = None
    ) -> OccurrencePage:
        """What became of a schedule's instants, newest first."""
        return await self.call(calls.occurrences(schedule_id, search or LedgerSearch()))

    async def backfill(
        self, schedule_id: str, spec: BackfillSpec | Mapping[str, Any]
    ) -> BackfillAnswer:
        """Runs a schedule for a past range."""
        return await self.call(calls.backfill(schedule_id, spec))

    async def cancel_backfill(self, schedule_id: str, backfill_id: str) -> int:
        """Calls off what is left of a backfill; answers how many jobs."""
        return (await self.call(calls.cancel_backfill(schedule_id, backfill_id))).count

    async def deploy_schedules(self, owner: str, schedules: Sequence[ScheduleLike]) -> DeployAnswer:
        """Sets all schedules of a program; what it names no more is retired."""
        return await self.call(calls.deploy(owner, schedules))

    async def calendars(self) -> list[CalendarView]:
        """All calendars, by name."""
        return await self.run(paging.all_calendars(self.terms))

    async def calendar(self, name: str) -> CalendarView:
        """One calendar."""
        return await self.call(calls.get_calendar(name))

    async def set_calendar(self, name: str, dates: Sequence[str]) -> CalendarView:
        """Sets a calendar's dates, each written like 2026-12-25."""
        return await self.call(calls.set_calendar(name, dates))

    async def delete_calendar(self, name: str) -> None:
        """Removes a calendar that no schedule names."""
        await self.call(calls.delete_calendar(name))
