"""What may be seen of a scheduler from outside; nothing here decides or changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from rota.core.learned import Name
from rota.core.model import (
    Instant,
    JobId,
    JobRecord,
    Millis,
    Resources,
    ScheduleId,
    TriggerId,
    WorkerId,
)
from rota.core.outlook.autoscale import Demand, demand
from rota.core.outlook.foreseeing import Foreseeing
from rota.core.records.events import Event, Rule
from rota.core.records.glance import (
    Explanation,
    PlaceGlance,
    QueueGlance,
    ScheduleGlance,
    TenantGlance,
    Trial,
    TriggerGlance,
    WorkerGlance,
)
from rota.core.records.policy import Policy
from rota.core.records.schedules import Calendar, Plan, Schedule
from rota.core.records.usage import Account
from rota.core.steps import schedules as planning
from rota.core.steps import triggers
from rota.core.times.foresight import Foreseen, foresee
from rota.core.why.explain import explain
from rota.core.why.views import (
    glance_places,
    glance_queue,
    glance_schedule,
    glance_tenant,
    glance_worker,
)


class Looking(Foreseeing):
    """The side of a scheduler that answers questions."""

    def why(
        self, job_id: JobId, now: Instant, record: JobRecord | None = None
    ) -> Explanation | None:
        """Why a live job does not run; on the shelf it is known by `record`. None: not live."""
        return explain(self._t, job_id, now, record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """The newest progress of a running job, written or not."""
        job = self._t.jobs.get(job_id)
        if job is None or job.life.execution_id is None:
            return None
        cell = self._t.executions.get(job.life.execution_id)
        return None if cell is None else (cell.progress, cell.message)

    def workers(self, now: Instant) -> list[WorkerGlance]:
        """All workers known."""
        return [glance_worker(self._t, cell, now) for cell in self._t.fleet.workers.values()]

    def worker(self, worker_id: WorkerId, now: Instant) -> WorkerGlance | None:
        """One of them."""
        cell = self._t.fleet.workers.get(worker_id)
        return None if cell is None else glance_worker(self._t, cell, now)

    def places(self, now: Instant) -> Iterator[PlaceGlance]:
        """What is reserved for jobs that wait."""
        return glance_places(self._t, now)

    def queues(self) -> list[QueueGlance]:
        """All queues, by name."""
        return [glance_queue(self._t, self._t.queues[name]) for name in sorted(self._t.queues)]

    def ready_since(self) -> dict[str, Instant]:
        """By queue with ready jobs, since when the longest waiting head of a line has been so."""
        return self._t.lines.ready_since()

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleGlance]:
        """Those to keep, newest first; looked at as they are asked for, for there may be many."""
        cells = self._t.agenda.cells
        for schedule_id in sorted(cells, reverse=True):
            if keep(cells[schedule_id].schedule):
                yield glance_schedule(self._t, cells[schedule_id])

    def schedule(self, schedule_id: ScheduleId) -> ScheduleGlance | None:
        """One of them."""
        cell = self._t.agenda.cells.get(schedule_id)
        return None if cell is None else glance_schedule(self._t, cell)

    def calendars(self) -> list[Calendar]:
        """All calendars, by name."""
        return [self._t.agenda.calendars[name] for name in sorted(self._t.agenda.calendars)]

    def foresee_plan(self, plan: Plan, after: Instant, count: int) -> list[Foreseen]:
        """What a schedule with this plan would do if it were made at `after`."""
        return foresee(planning.check_plan(self._t, plan, after), after, count)

    def foresee(self, schedule_id: ScheduleId, after: Instant, count: int) -> list[Foreseen]:
        """What a schedule's timetable says, paused or not."""
        ways = self._t.agenda.cell(schedule_id).ways
        return [] if ways is None else foresee(ways, after, count)

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> list[Instant]:
        """The instants of a schedule's timetable within a range, so many at most."""
        ways = self._t.agenda.cell(schedule_id).ways
        return [] if ways is None else list(islice(ways.between(start, end), limit))

    def triggers(self) -> list[TriggerGlance]:
        """All triggers, in order of creation."""
        return [triggers.glance(cell) for cell in self._t.bus.cells.values()]

    def trigger(self, trigger_id: TriggerId) -> TriggerGlance | None:
        """One of them."""
        cell = self._t.bus.cells.get(trigger_id)
        return None if cell is None else triggers.glance(cell)

    def try_event(self, event: Event, only: TriggerId | None, now: Instant) -> list[Trial]:
        """What triggers would make of an event."""
        return triggers.try_event(self._t, event, only, now)

    def try_rule(self, rule: Rule, event: Event, now: Instant) -> Trial:
        """What a trigger that nobody has made would make of it."""
        return triggers.try_rule(rule, event, now)

    @property
    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._t.policy

    def tenants(self, now: Instant) -> list[TenantGlance]:
        """All tenants that have jobs or settings, by name."""
        return [
            glance_tenant(self._t, self._t.tenants.cells[name], now)
            for name in sorted(self._t.tenants.cells)
        ]

    def demand(self, target_ms: Millis, size: Resources | None, now: Instant) -> Demand:
        """How many workers would clear what waits within the target."""
        return demand(self._t, target_ms, size, now)

    def usages(self) -> Iterator[tuple[Name, Account]]:
        """What jobs of each name take, by tenant and name."""
        return self._t.runtimes.usages.all()

    def live_jobs(self) -> int:
        """How many jobs are in memory."""
        return len(self._t.jobs)
