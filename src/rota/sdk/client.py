"""The synchronous client: one method for every call of the API.

Each method is a line: `calls` builds the request, `request_plan` sends and repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
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
from rota.sdk.transactions import refuse_key, submit_in
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
from rota.wire.workers import (
    ArtifactView,
    CompletionSpec,
    ExecutionPage,
    ExecutionView,
    HeartbeatAnswer,
    HeartbeatSpec,
    LeaseAnswer,
    LeaseSpec,
    ProgressSpec,
    RegisterAnswer,
    RegisterSpec,
    WorkerView,
)

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Client:
    """A Rota server, as Python sees it.

        with Client() as rota:
            job = rota.submit({"name": "hello", "task": {"kind": "command", "argv": ["date"]}})
            print(rota.wait(job.job_id).status)

    Without a URL the local server is found; several, of one cell, are asked in turn when one is
    away. Threads may share one.
    """

    def __init__(
        self,
        url: str | Sequence[str] | Endpoint | None = None,
        token: str | None = None,
        *,
        patience: Patience | None = None,
        clock: Clock | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        from rota.sdk.lines.pool import Pool

        endpoint = url if isinstance(url, Endpoint) else discover(url, token)
        self.endpoint = endpoint
        servers = Servers(endpoint.urls)
        self.state = ClientState(clock or SystemClock(), patience or Patience(), servers)
        self._pool = Pool(endpoint, self.state, transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def call(self, call: Call[T], *, key: str | None = None) -> T:
        """Executes a call and returns its decoded answer."""
        return self.run(request_plan.fetch(self.state, call, key))

    def ask(self, call: Call[Any], *, key: str | None = None) -> Answer:
        """Executes a call and returns its undecoded answer, for callers that pass the bytes on."""
        return self.run(request_plan.ask(self.state, call, key))

    def run(self, plan: RequestPlan[T]) -> T:
        """Executes a plan to its end."""
        plan_run = PlanRun(plan)
        for _ in self._walk(plan_run):
            pass
        return plan_run.result

    def iterate(self, plan: RequestPlan[Any]) -> Iterator[Any]:
        """Executes a plan and yields the items it emits."""
        return self._walk(PlanRun(plan))

    def _walk(self, plan_run: PlanRun[Any]) -> Iterator[Any]:
        with closing(self._pool.talk()) as talk:
            while (step := plan_run.step) is not None:
                if isinstance(step, EmitItem):
                    yield step.item
                    plan_run.take(None)
                    continue
                try:
                    came = talk.take(step)
                except (UnreachableError, ApiError) as error:
                    plan_run.fail(error)
                else:
                    plan_run.take(came)

    # Jobs

    @overload
    def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView: ...
    @overload
    def submit(self, job: JobLike, *, conn: Any) -> str: ...
    @overload
    def submit(self, job: JobLike, *, dry_run: Literal[True]) -> DryRunView: ...
    def submit(
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
            return self.call(calls.dry_run(job))
        if conn is None:
            return self.call(calls.submit(job), key=idempotency_key)
        refuse_key(idempotency_key)
        return self.submit_in(conn, job)

    def submit_in(self, conn: Any, job: JobLike) -> str:
        """Submits a job inside a connection's transaction, like `submit` with `conn`."""
        job_id = submit_in(conn, job)
        self.state.expect_job(job_id)
        return job_id

    def submit_batch(
        self, jobs: Sequence[JobLike], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Submits jobs together, all or none; returns their ids in the order given."""
        return self.call(calls.submit_batch(jobs), key=idempotency_key).job_ids

    def dry_run_batch(self, jobs: Sequence[JobLike]) -> list[DryRunView]:
        """Asks when jobs would start that are submitted together; submits none."""
        return self.call(calls.dry_run_batch(jobs)).jobs

    def submit_many(
        self,
        jobs: Iterable[JobLike],
        *,
        on_progress: Callable[[int], None] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submits any number of jobs in batches; returns their ids in the order given.

        Jobs may refer to earlier ones by `ref:`. Each batch is all or none.
        """
        return self.run(
            batches.submit_many(self.state, jobs, on_progress=on_progress, key=idempotency_key)
        )

    def job(self, job_id: str) -> JobView:
        return self.call(calls.get_job(job_id))

    def jobs(self, search: JobSearch | None = None) -> Iterator[JobView]:
        """Yields all jobs that match, newest first, fetched page by page as needed."""
        return self.iterate(paging.all_jobs(self.state, search or JobSearch()))

    def jobs_page(self, search: JobSearch | None = None) -> JobPage:
        """Returns one page of jobs, newest first."""
        return self.call(calls.list_jobs(search or JobSearch()))

    def update(self, job_id: str, patch: Mapping[str, Any]) -> JobView:
        """Changes a job that has not started; None in the patch restores a default."""
        return self.call(calls.update_job(job_id, patch))

    def delete(self, job_id: str, *, force: bool = False) -> None:
        """Removes a finished job; with `force` a live one too, after cancelling it."""
        self.call(calls.delete_job(job_id, force=force))

    def cancel(self, job_id: str) -> JobView:
        """Stops a job, or prevents its start."""
        return self.call(calls.cancel_job(job_id))

    def retry(self, job_id: str) -> JobView:
        """Runs a job again that ended without success."""
        return self.call(calls.retry_job(job_id))

    def bulk(self, spec: BulkSpec | Mapping[str, Any]) -> BulkAnswer:
        """Acts on all jobs that match a filter."""
        return self.call(calls.bulk(spec))

    def why(self, job_id: str) -> WhyView:
        """Asks why a job is not running yet."""
        return self.call(calls.why(job_id))

    def graph(self, job_id: str) -> GraphView:
        """Reads the dependency graph of a job."""
        return self.call(calls.graph(job_id))

    def logs(self, job_id: str, *, tail: int | None = None) -> bytes:
        """Returns the log of a job so far, or its last lines."""
        return self.call(calls.job_logs(job_id, tail=tail))

    def follow_logs(self, job_id: str, *, tail: int | None = None) -> Iterator[bytes]:
        """Yields the log of a job (or its last lines and what follows) until the job has ended."""
        return self.iterate(watching.follow_log(self.state, job_id, tail))

    def execute(self, job_id: str, worker_id: str) -> ExecutionView:
        """Runs this job on that worker now, without regard to its time, the order or a paused
        queue.
        """
        return self.call(calls.execute(job_id, worker_id))

    def dead_letters(self, *, limit: int | None = None, cursor: str | None = None) -> JobPage:
        """Returns a page of dead letters: jobs that used up their attempts."""
        return self.call(calls.dead_letters(limit=limit, cursor=cursor))

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Waits until a job has ended, and returns it."""
        return self.run(watching.wait_for_end(self.state, job_id, timeout_s))

    def wait_all(
        self,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        on_end: Callable[[str, str], None] | None = None,
    ) -> dict[str, str]:
        """Waits until all jobs have ended; returns the status of each, by id."""
        return self.run(JobWaiter(self.state, job_ids, timeout_s=timeout_s, on_end=on_end).plan())

    def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Waits for the result of a job; raises JobFailed if there is none."""
        return self.run(watching.wait_for_result(self.state, job_id, timeout_s))

    # Workers

    def register(self, spec: RegisterSpec) -> RegisterAnswer:
        """Makes a worker known, or resumes it."""
        return self.call(calls.register(spec))

    def worker(self, worker_id: str) -> WorkerView:
        return self.call(calls.get_worker(worker_id))

    def workers(
        self, *, status: Sequence[str] = (), capabilities: Sequence[str] = ()
    ) -> list[WorkerView]:
        """Lists workers that are in one of the statuses and have all the capabilities."""
        return self.run(paging.all_workers(self.state, status, capabilities))

    def heartbeat(self, worker_id: str, spec: HeartbeatSpec) -> HeartbeatAnswer:
        """Renews a worker's leases."""
        return self.call(calls.heartbeat(worker_id, spec))

    def lease(self, worker_id: str, spec: LeaseSpec) -> LeaseAnswer:
        """Reports, renews and waits for work."""
        return self.call(calls.lease(worker_id, spec))

    def drain_worker(self, worker_id: str) -> WorkerView:
        """Gives a worker no new jobs."""
        return self.call(calls.drain_worker(worker_id))

    def resume_worker(self, worker_id: str) -> WorkerView:
        """Gives a drained worker jobs again."""
        return self.call(calls.resume_worker(worker_id))

    def remove_worker(self, worker_id: str) -> None:
        """Removes a worker; its executions are lost."""
        self.call(calls.remove_worker(worker_id))

    # Executions

    def execution(self, execution_id: str) -> ExecutionView:
        return self.call(calls.get_execution(execution_id))

    def executions(
        self,
        *,
        job_id: str | None = None,
        worker_id: str | None = None,
        status: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ExecutionPage:
        """Returns a page of executions, newest first."""
        return self.call(
            calls.list_executions(
                job_id=job_id, worker_id=worker_id, status=status, limit=limit, cursor=cursor
            )
        )

    def complete(self, execution_id: str, spec: CompletionSpec) -> ExecutionView:
        """Reports the end of an execution."""
        return self.call(calls.complete(execution_id, spec))

    def progress(self, execution_id: str, spec: ProgressSpec) -> HeartbeatAnswer:
        """Reports how far an execution is; the answer says whether to stop it."""
        return self.call(calls.progress(execution_id, spec))

    def append_log(
        self, execution_id: str, data: bytes, *, offset: int, fence: int | None = None
    ) -> None:
        """Adds output from a byte offset on."""
        self.call(calls.append_log(execution_id, data, offset=offset, fence=fence))

    def put_artifact(self, execution_id: str, name: str, data: bytes) -> ArtifactView:
        """Keeps an output file."""
        return self.call(calls.put_artifact(execution_id, name, data))

    # Queues

    def queues(self) -> list[QueueView]:
        """Lists all queues, by name."""
        return self.run(paging.all_queues(self.state))

    def queue(self, name: str) -> QueueView:
        return self.call(calls.get_queue(name))

    def set_queue(
        self, name: str, settings: Mapping[str, Any], *, reset: bool = False
    ) -> QueueView:
        """Changes a queue; with `reset`, settings that are not given return to their defaults."""
        return self.call(calls.set_queue(name, settings, reset=reset))

    def pause_queue(self, name: str) -> QueueView:
        """Starts no more jobs of a queue."""
        return self.call(calls.pause_queue(name))

    def resume_queue(self, name: str) -> QueueView:
        """Starts jobs of a queue again."""
        return self.call(calls.resume_queue(name))

    def purge_queue(self, name: str) -> int:
        """Cancels all waiting jobs of a queue; returns how many."""
        return self.call(calls.purge_queue(name)).count

    # The service

    def health(self) -> Health:
        """Asks whether the server is alive."""
        return self.call(calls.healthz())

    def ready(self) -> Health:
        """Asks whether the server accepts and schedules jobs."""
        return self.call(calls.readyz())

    def stats(self) -> StatsView:
        return self.call(calls.stats())

    def cluster(self) -> ClusterView:
        """Asks which server leads."""
        return self.call(calls.cluster())

    def metrics(self) -> str:
        """Returns the metrics as Prometheus text."""
        return self.call(calls.metrics()).decode()

    def stream(self, *, after: str | None = None) -> Iterator[Event]:
        """Yields every state change from now on, or after an event's id."""
        return self.iterate(watching.events(self.state, after))

    # Schedules

    def schedules(
        self, *, name: str | None = None, tenant: str | None = None, owner: str | None = None
    ) -> list[ScheduleView]:
        """Lists all schedules that match, newest first."""
        return self.run(paging.all_schedules(self.state, name=name, tenant=tenant, owner=owner))

    def schedule(self, schedule_id: str) -> ScheduleView:
        return self.call(schedule_calls.get_schedule(schedule_id))

    def create_schedule(self, schedule: ScheduleLike) -> ScheduleView:
        """Creates a schedule; it is durable when this returns."""
        return self.call(schedule_calls.create_schedule(schedule))

    def update_schedule(self, schedule_id: str, patch: Mapping[str, Any]) -> ScheduleView:
        """Changes a schedule, by JSON Merge Patch."""
        return self.call(schedule_calls.update_schedule(schedule_id, patch))

    def delete_schedule(self, schedule_id: str) -> None:
        """Removes a schedule; its jobs go on."""
        self.call(schedule_calls.delete_schedule(schedule_id))

    def pause_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule make no jobs."""
        return self.call(schedule_calls.pause_schedule(schedule_id))

    def resume_schedule(self, schedule_id: str) -> ScheduleView:
        """Lets a schedule go on."""
        return self.call(schedule_calls.resume_schedule(schedule_id))

    def trigger_schedule(self, schedule_id: str) -> OccurrenceView:
        """Runs a schedule's job now."""
        return self.call(schedule_calls.trigger_schedule(schedule_id))

    def preview_schedule(
        self, schedule_id: str, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """Asks for the next times of a schedule."""
        return (
            self.call(schedule_calls.preview_schedule(schedule_id, count=count, after=after))
        ).items

    def preview(
        self, schedule: ScheduleLike, *, count: int | None = None, after: str | None = None
    ) -> list[ForeseenView]:
        """Asks for the next times of a schedule that does not exist yet."""
        return (self.call(schedule_calls.preview(schedule, count=count, after=after))).items

    def occurrences(self, schedule_id: str, search: LedgerSearch | None = None) -> OccurrencePage:
        """Returns a page of a schedule's occurrences with their outcomes, newest first."""
        return self.call(schedule_calls.occurrences(schedule_id, search or LedgerSearch()))

    def backfill(self, schedule_id: str, spec: BackfillSpec | Mapping[str, Any]) -> BackfillAnswer:
        """Runs a schedule for a past range."""
        return self.call(schedule_calls.backfill(schedule_id, spec))

    def cancel_backfill(self, schedule_id: str, backfill_id: str) -> int:
        """Calls off what is left of a backfill; answers how many jobs."""
        return (self.call(schedule_calls.cancel_backfill(schedule_id, backfill_id))).count

    def deploy_schedules(self, owner: str, schedules: Sequence[ScheduleLike]) -> DeployAnswer:
        """Replaces all schedules of an app; those that are not named are retired."""
        return self.call(schedule_calls.deploy(owner, schedules))

    def calendars(self) -> list[CalendarView]:
        """Lists all calendars, by name."""
        return self.run(paging.all_calendars(self.state))

    def calendar(self, name: str) -> CalendarView:
        return self.call(schedule_calls.get_calendar(name))

    def set_calendar(self, name: str, dates: Sequence[str]) -> CalendarView:
        """Sets a calendar's dates, each written like 2026-12-25."""
        return self.call(schedule_calls.set_calendar(name, dates))

    def delete_calendar(self, name: str) -> None:
        """Removes a calendar that no schedule names."""
        self.call(schedule_calls.delete_calendar(name))

    # Triggers and events

    def triggers(self, *, name: str | None = None, owner: str | None = None) -> list[TriggerView]:
        """Lists all triggers that match, newest first."""
        return self.run(paging.all_triggers(self.state, name=name, owner=owner))

    def trigger(self, trigger_id: str) -> TriggerView:
        return self.call(event_calls.get_trigger(trigger_id))

    def create_trigger(self, trigger: TriggerLike) -> TriggerView:
        """Creates a trigger; it is durable when this returns."""
        return self.call(event_calls.create_trigger(trigger))

    def update_trigger(self, trigger_id: str, patch: Mapping[str, Any]) -> TriggerView:
        """Changes a trigger, by JSON Merge Patch."""
        return self.call(event_calls.update_trigger(trigger_id, patch))

    def delete_trigger(self, trigger_id: str) -> None:
        """Removes a trigger; its jobs go on."""
        self.call(event_calls.delete_trigger(trigger_id))

    def pause_trigger(self, trigger_id: str) -> TriggerView:
        """Pauses a trigger: it makes no jobs."""
        return self.call(event_calls.pause_trigger(trigger_id))

    def resume_trigger(self, trigger_id: str) -> TriggerView:
        return self.call(event_calls.resume_trigger(trigger_id))

    def trigger_events(
        self,
        trigger_id: str,
        *,
        outcome: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ArrivalPage:
        """Returns a page of a trigger's decisions about events, newest first."""
        return self.call(
            event_calls.trigger_events(trigger_id, outcome=outcome, limit=limit, cursor=cursor)
        )

    def try_event(
        self, event: EventLike, *, trigger: TriggerLike | None = None, trigger_id: str | None = None
    ) -> list[TrialView]:
        """Asks how triggers would decide about an event; nothing is stored."""
        return (
            self.call(
                event_calls.try_event(
                    event_calls.with_id(event, self.state.mint_key),
                    trigger=trigger,
                    trigger_id=trigger_id,
                )
            )
        ).items

    def deploy_triggers(self, owner: str, triggers: Sequence[TriggerLike]) -> DeployAnswer:
        """Replaces all triggers of an app; those that are not named are retired."""
        return self.call(event_calls.deploy_triggers(owner, triggers))

    def send_event(self, event: EventLike) -> EventView:
        """Sends an event; it and its effects are durable when this returns."""
        return self.call(event_calls.send_event(event_calls.with_id(event, self.state.mint_key)))

    def send_events(self, events: Sequence[EventLike]) -> list[EventView]:
        """Sends many events at once, all or none."""
        return (
            self.call(
                event_calls.send_events(
                    [event_calls.with_id(one, self.state.mint_key) for one in events]
                )
            )
        ).items

    def events(
        self, *, type: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> EventPage:
        """Returns a page of received events, newest first."""
        return self.call(event_calls.list_events(type=type, limit=limit, cursor=cursor))

    def hooks(self) -> list[HookView]:
        """Lists all webhook endpoints, by name."""
        return self.run(paging.all_hooks(self.state))

    def set_hook(self, name: str, hook: HookSpec | Mapping[str, Any]) -> HookView:
        """Sets up a webhook endpoint."""
        return self.call(event_calls.set_hook(name, hook))

    def delete_hook(self, name: str) -> None:
        """Removes a webhook endpoint."""
        self.call(event_calls.delete_hook(name))

    # Files

    def push_bundle(
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
        source = UploadSource(Path(path))
        return self.run(
            file_calls.push(self.state, source, name or source.path.name, tenant, format)
        )

    def bundles(
        self,
        *,
        tenant: str | None = None,
        unused_for: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> BundlePage:
        """Returns a page of bundles, newest first."""
        return self.call(
            file_calls.list_bundles(
                tenant=tenant, unused_for=unused_for, limit=limit, cursor=cursor
            )
        )

    def bundle(self, bundle_id: str) -> BundleView:
        return self.call(file_calls.get_bundle(bundle_id))

    def delete_bundle(self, bundle_id: str) -> None:
        """Removes a bundle; jobs that name it and have not started will fail."""
        self.call(file_calls.delete_bundle(bundle_id))

    def fetch_bundle(self, bundle_id: str, path: str | os.PathLike[str]) -> None:
        """Downloads a bundle to a file."""
        self._save(file_calls.download_bundle(self.state, bundle_id), Path(path))

    def artifacts(self, execution_id: str) -> list[ArtifactView]:
        """Lists an execution's output files, by name."""
        return self.call(file_calls.list_artifacts(execution_id)).items

    def artifact_link(self, execution_id: str, name: str) -> LinkView:
        """Asks for a URL of an output file."""
        return self.call(file_calls.artifact_link(execution_id, name))

    def read_artifact(self, execution_id: str, name: str) -> bytes:
        """Returns the content of an output file, with its checksum verified."""
        return b"".join(self.iterate(file_calls.download_artifact(self.state, execution_id, name)))

    def fetch_artifact(
        self, execution_id: str, name: str | ArtifactView, path: str | os.PathLike[str]
    ) -> None:
        """Downloads an output file to a path, with its checksum verified; for many, pass the listed
        objects.
        """
        self._save(file_calls.download_artifact(self.state, execution_id, name), Path(path))

    def _save(self, plan: RequestPlan[None], path: Path) -> None:
        with file_calls.atomic_file(path) as file:
            for chunk in self.iterate(plan):
                file.write(chunk)
