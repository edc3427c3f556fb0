"""Asynchronous client: one method for each call of the API, executed in one event loop.

The blocking client has the same methods.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from rota.sdk import batches, calls, request_plan, watching
from rota.sdk.calls import Call, JobLike, JobSearch
from rota.sdk.clock import Clock, SystemClock
from rota.sdk.discovery import Endpoint, discover
from rota.sdk.errors import ApiError, UnreachableError
from rota.sdk.methods import event_calls, file_calls, paging, schedule_calls
from rota.sdk.methods.event_calls import EventLike, TriggerLike
from rota.sdk.methods.file_calls import UploadSource
from rota.sdk.methods.schedule_calls import LedgerSearch, ScheduleLike
from rota.sdk.request_plan import Answer, ClientState, EmitItem, Patience, PlanRun, RequestPlan
from rota.sdk.servers import Servers
from rota.sdk.transactions import refuse_key, submit_in_async
from rota.sdk.watching import Event, JobWaiter
from rota.wire.bundles import BundlePage, BundleView, Format, LinkView
from rota.wire.events import (
    ArrivalPage,
    EventPage,
    EventView,
    HookSpec,
    HookView,
    TrialView,
    TriggerView,
)
from rota.wire.jobs import BulkAnswer, BulkSpec, GraphView, JobPage, JobView
from rota.wire.queues import QueueView
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
from rota.wire.service import ClusterView, Health, StatsView
from rota.wire.why import DryRunView, WhyView
from rota.wire.workers import ArtifactView, ExecutionPage, ExecutionView, WorkerView

if TYPE_CHECKING:
    import httpx2


T = TypeVar("T")


class AsyncClient:
    """Client of a Rota server, for asyncio.

        async with AsyncClient() as rota:
            job = await rota.submit({"name": "hello", "task": {"kind": "noop"}})
            print((await rota.wait(job.job_id)).status)

    Without a URL the local server is found; several URLs, of one cell, are asked in turn when one
    is away. It belongs to the event loop it was first used in.
    """

    def __init__(
        self,
        url: str | Sequence[str] | Endpoint | None = None,
        token: str | None = None,
        *,
        patience: Patience | None = None,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        from rota.sdk.lines.pool import AsyncPool

        endpoint = url if isinstance(url, Endpoint) else discover(url, token)
        self.endpoint = endpoint
        servers = Servers(endpoint.urls)
        self.state = ClientState(clock or SystemClock(), patience or Patience(), servers)
        self._pool = AsyncPool(endpoint, self.state, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._pool.close()

    async def call(self, call: Call[T], *, key: str | None = None) -> T:
        """Executes a call and returns its decoded answer."""
        return await self.run(request_plan.fetch(self.state, call, key))

    async def ask(self, call: Call[Any], *, key: str | None = None) -> Answer:
        """Executes a call and returns its undecoded answer, for callers that pass the bytes on."""
        return await self.run(request_plan.ask(self.state, call, key))

    async def run(self, plan: RequestPlan[T]) -> T:
        """Executes a plan to its end."""
        plan_run = PlanRun(plan)
        async with aclosing(self._walk(plan_run)) as walk:
            async for _ in walk:
                pass
        return plan_run.result

    def iterate(self, plan: RequestPlan[Any]) -> AsyncIterator[Any]:
        """Executes a plan and yields the items it emits."""
        return self._walk(PlanRun(plan))

    async def _walk(self, plan_run: PlanRun[Any]) -> AsyncGenerator[Any, None]:
        async with aclosing(self._pool.talk()) as talk:
            while (step := plan_run.step) is not None:
                if isinstance(step, EmitItem):
                    yield step.item
                    plan_run.take(None)
                    continue
                try:
                    came = await talk.take(step)
                except (UnreachableError, ApiError) as error:
                    plan_run.fail(error)
                else:
                    plan_run.take(came)

    # Jobs

    @overload
    async def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView: ...
    @overload
    async def submit(self, job: JobLike, *, conn: Any) -> str: ...
    @overload
    async def submit(self, job: JobLike, *, dry_run: Literal[True]) -> DryRunView: ...
    async def submit(
        self,
        job: JobLike,
        *,
        idempotency_key: str | None = None,
        conn: Any = None,
        dry_run: bool = False,
    ) -> JobView | str | DryRunView:
        """Submits a job; it is durable when this returns.

        With `dry_run` nothing is submitted: returns when the job would start, and why not at once.

        With `conn`, a PostgreSQL connection of the application's own, the job is submitted inside
        that connection's transaction and exists once that is committed; returns its id.
        """
        if dry_run:
            return await self.call(calls.dry_run(job))
        if conn is None:
            return await self.call(calls.submit(job), key=idempotency_key)
        refuse_key(idempotency_key)
        return await self.submit_in(conn, job)

    async def submit_in(self, conn: Any, job: JobLike) -> str:
        """Submits a job inside a connection's transaction, like `submit` with `conn`."""
        job_id = await submit_in_async(conn, job)
        self.state.expect_job(job_id)
        return job_id

    async def submit_batch(
        self, jobs: Sequence[JobLike], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Submits jobs together, all or none; returns their ids in the order given."""
        return (await self.call(calls.submit_batch(jobs), key=idempotency_key)).job_ids

    async def dry_run_batch(self, jobs: Sequence[JobLike]) -> list[DryRunView]:
        """Asks when jobs would start that are submitted together; submits none."""
        return (await self.call(calls.dry_run_batch(jobs))).jobs

    async def submit_many(
        self,
        jobs: Iterable[JobLike],
        *,
        on_progress: Callable[[int], None] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submits any number of jobs in batches; returns their ids in the order given.

        Jobs may refer to earlier ones by `ref:`. Each batch is all or none.
        """
        return await self.run(
            batches.submit_many(self.state, jobs, on_progress=on_progress, key=idempotency_key)
        )

    async def job(self, job_id: str) -> JobView:
        return await self.call(calls.get_job(job_id))

    def jobs(self, search: JobSearch | None = None) -> AsyncIterator[JobView]:
        """Yields all jobs that match, newest first, fetched page by page as needed."""
        return self.iterate(paging.all_jobs(self.state, search or JobSearch()))

    async def jobs_page(self, search: JobSearch | None = None) -> JobPage:
        """Returns one page of jobs, newest first."""
        return await self.call(calls.list_jobs(search or JobSearch()))

    async def update(self, job_id: str, patch: Mapping[str, Any]) -> JobView:
        """Changes a job that has not started; None in the patch restores a default."""
        return await self.call(calls.update_job(job_id, patch))

    async def delete(self, job_id: str, *, force: bool = False) -> None:
        """Removes a finished job; with `force` a live one too, after cancelling it."""
        await self.call(calls.delete_job(job_id, force=force))

    async def cancel(self, job_id: str) -> JobView:
        """Stops a job, or prevents its start."""
        return await self.call(calls.cancel_job(job_id))

    async def retry(self, job_id: str) -> JobView:
        """Runs a job again that ended without success."""
        return await self.call(calls.retry_job(job_id))

    async def bulk(self, spec: BulkSpec | Mapping[str, Any]) -> BulkAnswer:
        """Acts on all jobs that match a filter."""
        return await self.call(calls.bulk(spec))

    async def why(self, job_id: str) -> WhyView:
        """Asks why a job is not running yet."""
        return await self.call(calls.why(job_id))

    async def graph(self, job_id: str) -> GraphView:
        """Reads the dependency graph of a job."""
        return await self.call(calls.graph(job_id))

    async def logs(self, job_id: str, *, tail: int | None = None) -> bytes:
        """Returns the log of a job so far, or its last lines."""
        return await self.call(calls.job_logs(job_id, tail=tail))

    def follow_logs(self, job_id: str, *, tail: int | None = None) -> AsyncIterator[bytes]:
        """Yields the log of a job (or its last lines and what follows) until the job has ended."""
        return self.iterate(watching.follow_log(self.state, job_id, tail))

    async def execute(self, job_id: str, worker_id: str) -> ExecutionView:
        """Runs this job on that worker now, without regard to its time, the order or a paused
        queue.
        """
        return await self.call(calls.execute(job_id, worker_id))

    async def dead_letters(self, *, limit: int | None = None, cursor: str | None = None) -> JobPage:
        """Returns a page of dead letters: jobs that used up their attempts."""
        return await self.call(calls.dead_letters(limit=limit, cursor=cursor))

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Waits until a job has ended, and returns it."""
        return await self.run(watching.wait_for_end(self.state, job_id, timeout_s))

    async def wait_all(
        self,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        on_end: Callable[[str, str], None] | None = None,
    ) -> dict[str, str]:
        """Waits until all jobs have ended; returns the status of each, by id."""
        return await self.run(
            JobWaiter(self.state, job_ids, timeout_s=timeout_s, on_end=on_end).plan()
        )

    async def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Waits for the result of a job; raises JobFailed if there is none."""
        return await self.run(watching.wait_for_result(self.state, job_id, timeout_s))

    # Workers

    async def worker(self, worker_id: str) -> WorkerView:
        return await self.call(calls.get_worker(worker_id))

    async def workers(
        self, *, status: Sequence[str] = (), capabilities: Sequence[str] = ()
    ) -> list[WorkerView]:
        """Lists workers that are in one of the statuses and have all the capabilities."""
        return await self.run(paging.all_workers(self.state, status, capabilities))

    async def drain_worker(self, worker_id: str) -> WorkerView:
        """Gives a worker no new jobs."""
        return await self.call(calls.drain_worker(worker_id))

    async def resume_worker(self, worker_id: str) -> WorkerView:
        """Gives a drained worker jobs again."""
        return await self.call(calls.resume_worker(worker_id))

    async def remove_worker(self, worker_id: str) -> None:
        """Removes a worker; its executions are lost."""
        await self.call(calls.remove_worker(worker_id))

    # Executions

    async def execution(self, execution_id: str) -> ExecutionView:
        return await self.call(calls.get_execution(execution_id))

    async def executions(
        self,
        *,
        job_id: str | None = None,
        worker_id: str | None = None,
        status: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ExecutionPage:
        """Returns a page of executions, newest first."""
        return await self.call(
            calls.list_executions(
                job_id=job_id, worker_id=worker_id, status=status, limit=limit, cursor=cursor
            )
        )

    # Queues

    async def queues(self) -> list[QueueView]:
        """Lists all queues, by name."""
        return await self.run(paging.all_queues(self.state))

    async def queue(self, name: str) -> QueueView:
        return await self.call(calls.get_queue(name))

    async def set_queue(
        self, name: str, settings: Mapping[str, Any], *, reset: bool = False
    ) -> QueueView:
        """Changes a queue; with `reset`, settings that are not given return to their defaults."""
        return await self.call(calls.set_queue(name, settings, reset=reset))

    async def pause_queue(self, name: str) -> QueueView:
        """Starts no more jobs of a queue."""
        return await self.call(calls.pause_queue(name))

    async def resume_queue(self, name: str) -> QueueView:
        """Starts jobs of a queue again."""
        return await self.call(calls.resume_queue(name))

    async def purge_queue(self, name: str) -> int:
        """Cancels all waiting jobs of a queue; returns how many."""
        return (await self.call(calls.purge_queue(name))).count

    # The service

    async def health(self) -> Health:
        """Asks whether the server is alive."""
        return await self.call(calls.healthz())

    async def ready(self) -> Health:
        """Asks whether the server accepts and schedules jobs."""
        return await self.call(calls.readyz())

    async def stats(self) -> StatsView:
        return await self.call(calls.stats())

    async def cluster(self) -> ClusterView:
        """Asks which server leads."""
        return await self.call(calls.cluster())

    async def metrics(self) -> str:
        """Returns the metrics as Prometheus text."""
        return (await self.call(calls.metrics())).decode()

    def stream(self, *, after: str | None = None) -> AsyncIterator[Event]:
        """Yields every state change from now on, or after an event's id."""
        return self.iterate(watching.events(self.state, after))

    # Schedules

    async def schedules(
        self, *, name: str | None = None, tenant: str | None = None, owner: str | None = None
    ) -> list[ScheduleView]:
        """Lists all schedules that match, newest first."""
        return await self.run(
            paging.all_schedules(self.state, name=name, tenant=tenant, owner=owner)
        )

    async def schedule(self, schedule_id: str) -> ScheduleView:
        return await self.call(schedule_calls.get_schedule(schedule_id))

    async def create_schedule(self, schedule: ScheduleLike) -> ScheduleView:
        """Creates a schedule; it is durable when this returns."""
        return await self.call(schedule_calls.create_schedule(schedule))

    async def update_schedule(self, schedule_id: str, patch: Mapping[str, Any]) -> ScheduleView:
        """Changes a schedule, by JSON Merge Patch."""
        return await self.call(schedule_calls.update_schedule(schedule_id, patch))

    async def delete_schedule(self, schedule_id: str) -> None:
        """Removes a schedule; its jobs go on."""
        await self.call(schedule_calls.delete_schedule(schedule_id))

    async def pause_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule make no jobs."""
        return await self.call(schedule_calls.pause_schedule(schedule_id))

    async def resume_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule go on."""
        return await self.call(schedule_calls.resume_schedule(schedule_id))

    async def trigger_schedule(self, schedule_id: str) -> OccurrenceView:
        """Runs a schedule's job now."""
        return await self.call(schedule_calls.trigger_schedule(schedule_id))

    async def preview_schedule(
        self, schedule_id: str, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """Asks for the next times of a schedule."""
        return (
            await self.call(schedule_calls.preview_schedule(schedule_id, count=count, after=after))
        ).items

    async def preview(
        self, schedule: ScheduleLike, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """Asks for the next times of a schedule that does not exist yet."""
        return (await self.call(schedule_calls.preview(schedule, count=count, after=after))).items

    async def occurrences(
        self, schedule_id: str, search: LedgerSearch | None = None
    ) -> OccurrencePage:
        """Returns a page of a schedule's occurrences with their outcomes, newest first."""
        return await self.call(schedule_calls.occurrences(schedule_id, search or LedgerSearch()))

    async def backfill(
        self, schedule_id: str, spec: BackfillSpec | Mapping[str, Any]
    ) -> BackfillAnswer:
        """Runs a schedule for a past range."""
        return await self.call(schedule_calls.backfill(schedule_id, spec))

    async def cancel_backfill(self, schedule_id: str, backfill_id: str) -> int:
        """Calls off what is left of a backfill; answers how many jobs."""
        return (await self.call(schedule_calls.cancel_backfill(schedule_id, backfill_id))).count

    async def deploy_schedules(self, owner: str, schedules: Sequence[ScheduleLike]) -> DeployAnswer:
        """Replaces all schedules of an app; those that are not named are retired."""
        return await self.call(schedule_calls.deploy(owner, schedules))

    async def calendars(self) -> list[CalendarView]:
        """Lists all calendars, by name."""
        return await self.run(paging.all_calendars(self.state))

    async def calendar(self, name: str) -> CalendarView:
        return await self.call(schedule_calls.get_calendar(name))

    async def set_calendar(self, name: str, dates: Sequence[str]) -> CalendarView:
        """Sets a calendar's dates, each written like 2026-12-25."""
        return await self.call(schedule_calls.set_calendar(name, dates))

    async def delete_calendar(self, name: str) -> None:
        """Removes a calendar that no schedule names."""
        await self.call(schedule_calls.delete_calendar(name))

    # Triggers and events

    async def triggers(
        self, *, name: str | None = None, owner: str | None = None
    ) -> list[TriggerView]:
        """Lists all triggers that match, newest first."""
        return await self.run(paging.all_triggers(self.state, name=name, owner=owner))

    async def trigger(self, trigger_id: str) -> TriggerView:
        return await self.call(event_calls.get_trigger(trigger_id))

    async def create_trigger(self, trigger: TriggerLike) -> TriggerView:
        """Creates a trigger; it is durable when this returns."""
        return await self.call(event_calls.create_trigger(trigger))

    async def update_trigger(self, trigger_id: str, patch: Mapping[str, Any]) -> TriggerView:
        """Changes a trigger, by JSON Merge Patch."""
        return await self.call(event_calls.update_trigger(trigger_id, patch))

    async def delete_trigger(self, trigger_id: str) -> None:
        """Removes a trigger; its jobs go on."""
        await self.call(event_calls.delete_trigger(trigger_id))

    async def pause_trigger(self, trigger_id: str) -> TriggerView:
        """Pauses a trigger: it makes no jobs."""
        return await self.call(event_calls.pause_trigger(trigger_id))

    async def resume_trigger(self, trigger_id: str) -> TriggerView:
        return await self.call(event_calls.resume_trigger(trigger_id))

    async def trigger_events(
        self,
        trigger_id: str,
        *,
        outcome: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ArrivalPage:
        """Returns a page of a trigger's decisions about events, newest first."""
        return await self.call(
            event_calls.trigger_events(trigger_id, outcome=outcome, limit=limit, cursor=cursor)
        )

    async def try_event(
        self, event: EventLike, *, trigger: TriggerLike | None = None, trigger_id: str | None = None
    ) -> list[TrialView]:
        """Asks how triggers would decide about an event; nothing is stored."""
        return (
            await self.call(
                event_calls.try_event(
                    event_calls.with_id(event, self.state.mint_key),
                    trigger=trigger,
                    trigger_id=trigger_id,
                )
            )
        ).items

    async def deploy_triggers(self, owner: str, triggers: Sequence[TriggerLike]) -> DeployAnswer:
        """Replaces all triggers of an app; those that are not named are retired."""
        return await self.call(event_calls.deploy_triggers(owner, triggers))

    async def send_event(self, event: EventLike) -> EventView:
        """Sends an event; it and its effects are durable when this returns."""
        return await self.call(
            event_calls.send_event(event_calls.with_id(event, self.state.mint_key))
        )

    async def send_events(self, events: Sequence[EventLike]) -> list[EventView]:
        """Sends many events at once, all or none."""
        return (
            await self.call(
                event_calls.send_events(
                    [event_calls.with_id(one, self.state.mint_key) for one in events]
                )
            )
        ).items

    async def events(
        self, *, type: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> EventPage:
        """Returns a page of received events, newest first."""
        return await self.call(event_calls.list_events(type=type, limit=limit, cursor=cursor))

    async def hooks(self) -> list[HookView]:
        """Lists all webhook endpoints, by name."""
        return await self.run(paging.all_hooks(self.state))

    async def set_hook(self, name: str, hook: HookSpec | Mapping[str, Any]) -> HookView:
        """Sets up a webhook endpoint."""
        return await self.call(event_calls.set_hook(name, hook))

    async def delete_hook(self, name: str) -> None:
        """Removes a webhook endpoint."""
        await self.call(event_calls.delete_hook(name))

    # Files

    async def push_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        tenant: str | None = None,
        format: Format | None = None,
    ) -> BundleView:
        """Uploads a program, a script or an archive; content that the server has is not
        sent again.
        """
        source = await asyncio.to_thread(UploadSource, Path(path))
        named = name or source.path.name
        return await self.run(file_calls.push(self.state, source, named, tenant, format))

    async def bundles(
        self,
        *,
        tenant: str | None = None,
        unused_for: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> BundlePage:
        """Returns a page of bundles, newest first."""
        return await self.call(
            file_calls.list_bundles(
                tenant=tenant, unused_for=unused_for, limit=limit, cursor=cursor
            )
        )

    async def bundle(self, bundle_id: str) -> BundleView:
        return await self.call(file_calls.get_bundle(bundle_id))

    async def delete_bundle(self, bundle_id: str) -> None:
        """Removes a bundle; jobs that name it and have not started will fail."""
        await self.call(file_calls.delete_bundle(bundle_id))

    async def fetch_bundle(self, bundle_id: str, path: str | os.PathLike[str]) -> None:
        """Downloads a bundle to a file."""
        await self._save(file_calls.download_bundle(self.state, bundle_id), Path(path))

    async def artifacts(self, execution_id: str) -> list[ArtifactView]:
        """Lists an execution's output files, by name."""
        return (await self.call(file_calls.list_artifacts(execution_id))).items

    async def artifact_link(self, execution_id: str, name: str) -> LinkView:
        """Asks for a URL of an output file."""
        return await self.call(file_calls.artifact_link(execution_id, name))

    async def read_artifact(self, execution_id: str, name: str) -> bytes:
        """Returns the content of an output file, with its checksum verified."""
        plan = file_calls.download_artifact(self.state, execution_id, name)
        return b"".join([chunk async for chunk in self.iterate(plan)])

    async def fetch_artifact(
        self, execution_id: str, name: str | ArtifactView, path: str | os.PathLike[str]
    ) -> None:
        """Downloads an output file to a path, with its checksum verified; for many, pass the listed
        objects.
        """
        await self._save(file_calls.download_artifact(self.state, execution_id, name), Path(path))

    async def _save(self, plan: RequestPlan[None], path: Path) -> None:
        with file_calls.atomic_file(path) as file:
            async for chunk in self.iterate(plan):
                await asyncio.to_thread(file.write, chunk)
