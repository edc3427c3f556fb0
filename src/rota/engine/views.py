"""What may be seen of a scheduler's memory. Only looks; everything shown is durable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

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
from rota.core.outlook.autoscale import Demand
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
from rota.core.scheduler import Scheduler
from rota.core.times.foresight import Foreseen
from rota.engine.fresh_keys import FreshKeys
from rota.engine.ports import Clock


class Views(ABC):
    """The engine's side that answers questions and changes nothing."""

    clock: Clock
    _keys: FreshKeys

    def is_new_key(self, key: str) -> bool:
        """Whether it is certain that no leader has accepted anything under this key."""
        return self._keys.is_new(key)

    def promise_key(self, key: str) -> None:
        """This server is about to promise something under it, without a leader."""
        self._keys.promise(key)

    @abstractmethod
    def _brain(self) -> Scheduler:
        """The scheduler; raises UnavailableError where none may be asked."""

    def why(self, job_id: JobId, record: JobRecord | None = None) -> Explanation | None:
        """Why a live job does not run."""
        return self._brain().why(job_id, self.clock.now(), record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """The newest progress of a running job."""
        return self._brain().progress_of(job_id)

    def workers(self) -> Sequence[WorkerGlance]:
        """All workers known."""
        return self._brain().workers(self.clock.now())

    def worker(self, worker_id: WorkerId) -> WorkerGlance | None:
        """One of them."""
        return self._brain().worker(worker_id, self.clock.now())

    def places(self) -> Iterator[PlaceGlance]:
        """What is reserved for jobs that wait."""
        return self._brain().places(self.clock.now())

    def queues(self) -> Sequence[QueueGlance]:
        """All queues."""
        return self._brain().queues()

    def ready_since(self) -> Mapping[str, Instant]:
        """By queue with ready jobs, since when the longest waiting head of a line has been so."""
        return self._brain().ready_since()

    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._brain().policy

    def tenants(self) -> Sequence[TenantGlance]:
        """All tenants that have jobs or settings."""
        return self._brain().tenants(self.clock.now())

    def demand(self, target_ms: Millis, size: Resources | None = None) -> Demand:
        """How many workers would clear what waits in time."""
        return self._brain().demand(target_ms, size, self.clock.now())

    def usages(self) -> Iterator[tuple[Name, Account]]:
        """What jobs of each name take."""
        return self._brain().usages()

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleGlance]:
        """Those to keep, newest first."""
        return self._brain().schedules(keep)

    def schedule(self, schedule_id: ScheduleId) -> ScheduleGlance | None:
        """One of them."""
        return self._brain().schedule(schedule_id)

    def calendars(self) -> Sequence[Calendar]:
        """All calendars."""
        return self._brain().calendars()

    def foresee(self, schedule_id: ScheduleId, after: Instant, count: int) -> Sequence[Foreseen]:
        """The next instants of a schedule."""
        return self._brain().foresee(schedule_id, after, count)

    def foresee_plan(self, plan: Plan, after: Instant, count: int) -> Sequence[Foreseen]:
        """The same of a plan that nobody has."""
        return self._brain().foresee_plan(plan, after, count)

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> Sequence[Instant]:
        """The instants of a schedule within a range."""
        return self._brain().instants(schedule_id, start, end, limit)

    def triggers(self) -> Sequence[TriggerGlance]:
        """All triggers."""
        return self._brain().triggers()

    def trigger(self, trigger_id: TriggerId) -> TriggerGlance | None:
        """One of them."""
        return self._brain().trigger(trigger_id)

    def try_event(self, event: Event, only: TriggerId | None = None) -> Sequence[Trial]:
        """What triggers would make of an event."""
        return self._brain().try_event(event, only, self.clock.now())

    def try_rule(self, rule: Rule, event: Event) -> Trial:
        """The same of a trigger that nobody has."""
        return self._brain().try_rule(rule, event, self.clock.now())
