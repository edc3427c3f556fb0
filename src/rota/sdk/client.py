"""The synchronous client: one method for every call of the API.

Each method is a line: what a call looks like is in `calls`, how it travels in `carrier`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from rota.sdk import batches, calls, watching
from rota.sdk.calls import JobLike, JobSearch
from rota.sdk.clock import Clock
from rota.sdk.discovery import Endpoint, discover
from rota.sdk.events import Event
from rota.sdk.flows import Patience
from rota.sdk.lines.carrier import Carrier
from rota.sdk.subjects import outlook_calls, paging
from rota.sdk.subjects.event_methods import EventMethods
from rota.sdk.subjects.file_methods import FileMethods
from rota.sdk.subjects.schedule_methods import ScheduleMethods
from rota.sdk.transactions import refuse_key, submit_in
from rota.sdk.watching import Waiting
from rota.wire.executions import (
    ArtifactView,
    CompletionSpec,
    ExecutionPage,
    ExecutionView,
    ProgressSpec,
)
from rota.wire.jobs import (
    BulkAnswer,
    BulkSpec,
    GraphView,
    JobPage,
    JobView,
)
from rota.wire.queues import QueueView
from rota.wire.service import ClusterView, Health, StatsView
from rota.wire.why import DryRunView, WhyView
from rota.wire.workers import (
    HeartbeatAnswer,
    HeartbeatSpec,
    LeaseAnswer,
    LeaseSpec,
    RegisterAnswer,
    RegisterSpec,
    WorkerView,
)

if TYPE_CHECKING:
    import httpx2


class Client(Carrier, ScheduleMethods, EventMethods, FileMethods):
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
        endpoint = url if isinstance(url, Endpoint) else discover(url, token)
        super().__init__(endpoint, patience, clock=clock, transport=transport)

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

        With `dry_run` nothing is submitted: answers when it would start, and why not at once.

        With `conn`, a PostgreSQL connection of the application's own, it is submitted inside that
        connection's transaction and exists once that has been committed; answers its id.
        """
        if dry_run:
            return self.call(outlook_calls.dry_run(job))
        if conn is None:
            return self.call(calls.submit(job), key=idempotency_key)
        refuse_key(idempotency_key)
        return self.submit_in(conn, job)

    def submit_in(self, conn: Any, job: JobLike) -> str:
        """What `submit` does with a connection."""
        job_id = submit_in(conn, job)
        self.terms.expect(job_id)
        return job_id

    def submit_batch(
        self, jobs: Sequence[JobLike], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Submits jobs together, all or none; answers their ids in the order given."""
        return self.call(calls.submit_batch(jobs), key=idempotency_key).job_ids

    def dry_run_batch(self, jobs: Sequence[JobLike]) -> list[DryRunView]:
        """What would become of jobs that are submitted together; none is."""
        return self.call(outlook_calls.dry_run_batch(jobs)).jobs

    def submit_many(
        self,
        jobs: Iterable[JobLike],
        *,
        on_progress: Callable[[int], None] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submits any number of jobs in batches; answers their ids in the order given.

        Jobs may name earlier ones by `ref:`. Each batch is all or none.
        """
        return self.run(
            batches.submit_many(self.terms, jobs, on_progress=on_progress, key=idempotency_key)
        )

    def job(self, job_id: str) -> JobView:
        """One job."""
        return self.call(calls.get_job(job_id))

    def jobs(self, search: JobSearch | None = None) -> Iterator[JobView]:
        """All jobs that match, newest first, fetched page by page as they are asked for."""
        return self.iterate(paging.all_jobs(self.terms, search or JobSearch()))

    def jobs_page(self, search: JobSearch | None = None) -> JobPage:
        """One page of them."""
        return self.call(calls.list_jobs(search or JobSearch()))

    def update(self, job_id: str, patch: Mapping[str, Any]) -> JobView:
        """Changes a job that has not started; None in the patch restores a default."""
        return self.call(calls.update_job(job_id, patch))

    def delete(self, job_id: str, *, force: bool = False) -> None:
        """Removes a finished job; with `force` a live one too, after cancelling it."""
        self.call(calls.delete_job(job_id, force=force))

    def cancel(self, job_id: str) -> JobView:
        """Stops a job, or keeps it from starting."""
        return self.call(calls.cancel_job(job_id))

    def retry(self, job_id: str) -> JobView:
        """Starts a job over that ended without success."""
        return self.call(calls.retry_job(job_id))

    def bulk(self, spec: BulkSpec | Mapping[str, Any]) -> BulkAnswer:
        """Acts on all jobs that match a filter."""
        return self.call(calls.bulk(spec))

    def why(self, job_id: str) -> WhyView:
        """Why a job is not running yet."""
        return self.call(calls.why(job_id))

    def graph(self, job_id: str) -> GraphView:
        """The dependency graph a job is part of."""
        return self.call(calls.graph(job_id))

    def logs(self, job_id: str, *, tail: int | None = None) -> bytes:
        """What a job has printed so far, or the last lines of it."""
        return self.call(calls.job_logs(job_id, tail=tail))

    def follow_logs(self, job_id: str, *, tail: int | None = None) -> Iterator[bytes]:
        """What a job printed (or the last lines of it) and prints, until it has ended."""
        return self.iterate(watching.follow_log(self.terms, job_id, tail))

    def execute(self, job_id: str, worker_id: str) -> ExecutionView:
        """Runs this job on that worker, past time, order and pause."""
        return self.call(calls.execute(job_id, worker_id))

    def dead_letters(self, *, limit: int | None = None, cursor: str | None = None) -> JobPage:
        """A page of the jobs that used up their attempts."""
        return self.call(calls.dead_letters(limit=limit, cursor=cursor))

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Waits until a job has ended, and answers it as it then is."""
        return self.run(watching.ended(self.terms, job_id, timeout_s))

    def wait_all(
        self,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        on_end: Callable[[str, str], None] | None = None,
    ) -> dict[str, str]:
        """Waits until all have ended; answers the status of each, by id."""
        return self.run(Waiting(self.terms, job_ids, timeout_s=timeout_s, on_end=on_end).flow())

    def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Waits for what a job returned; raises JobFailed if it ended otherwise."""
        return self.run(watching.result(self.terms, job_id, timeout_s))

    # Workers

    def register(self, spec: RegisterSpec) -> RegisterAnswer:
        """Makes a worker known, or resumes it."""
        return self.call(calls.register(spec))

    def worker(self, worker_id: str) -> WorkerView:
        """One worker."""
        return self.call(calls.get_worker(worker_id))

    def workers(
        self, *, status: Sequence[str] = (), capabilities: Sequence[str] = ()
    ) -> list[WorkerView]:
        """Workers that are in one of the statuses and have all the capabilities."""
        return self.run(paging.all_workers(self.terms, status, capabilities))

    def heartbeat(self, worker_id: str, spec: HeartbeatSpec) -> HeartbeatAnswer:
        """Renews a worker's leases."""
        return self.call(calls.heartbeat(worker_id, spec))

    def lease(self, worker_id: str, spec: LeaseSpec) -> LeaseAnswer:
        """Reports, renews and waits for work."""
        return self.call(calls.lease(worker_id, spec))

    def drain_worker(self, worker_id: str) -> WorkerView:
        """Gives a worker no new work."""
        return self.call(calls.drain_worker(worker_id))

    def resume_worker(self, worker_id: str) -> WorkerView:
        """Gives a drained worker work again."""
        return self.call(calls.resume_worker(worker_id))

    def remove_worker(self, worker_id: str) -> None:
        """Lets a worker leave."""
        self.call(calls.remove_worker(worker_id))

    # Executions

    def execution(self, execution_id: str) -> ExecutionView:
        """One try of a job."""
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
        """A page of executions, newest first."""
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
        """All queues, by name."""
        return self.run(paging.all_queues(self.terms))

    def queue(self, name: str) -> QueueView:
        """One queue."""
        return self.call(calls.get_queue(name))

    def set_queue(
        self, name: str, settings: Mapping[str, Any], *, reset: bool = False
    ) -> QueueView:
        """Changes a queue; with `reset` what is not given goes back to its default."""
        return self.call(calls.set_queue(name, settings, reset=reset))

    def pause_queue(self, name: str) -> QueueView:
        """Starts nothing more from a queue."""
        return self.call(calls.pause_queue(name))

    def resume_queue(self, name: str) -> QueueView:
        """Lets a queue go on."""
        return self.call(calls.resume_queue(name))

    def purge_queue(self, name: str) -> int:
        """Cancels all that waits in a queue; answers how many."""
        return self.call(calls.purge_queue(name)).count

    # The service

    def health(self) -> Health:
        """Whether the server is alive."""
        return self.call(calls.healthz())

    def ready(self) -> Health:
        """Whether the server can accept and schedule."""
        return self.call(calls.readyz())

    def stats(self) -> StatsView:
        """What an overview shows."""
        return self.call(calls.stats())

    def cluster(self) -> ClusterView:
        """Who leads."""
        return self.call(calls.cluster())

    def metrics(self) -> str:
        """The figures as Prometheus text."""
        return self.call(calls.metrics()).decode()

    def stream(self, *, after: str | None = None) -> Iterator[Event]:
        """Every state change from now on, or after an event's id."""
        return self.iterate(watching.events(self.terms, after))
