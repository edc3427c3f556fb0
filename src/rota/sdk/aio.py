"""The asynchronous client: the same calls as `client.Client`, awaited."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from rota.sdk import batches, calls, flows, watching
from rota.sdk.answers import Answer
from rota.sdk.calls import Call, JobLike, JobSearch
from rota.sdk.clock import Clock, SystemClock
from rota.sdk.discovery import Endpoint, discover
from rota.sdk.errors import ApiError, UnreachableError
from rota.sdk.events import Event
from rota.sdk.flows import Course, Emit, Flow, Patience, Terms
from rota.sdk.servers import Servers
from rota.sdk.subjects import outlook_calls, paging
from rota.sdk.subjects.event_methods import AsyncEventMethods
from rota.sdk.subjects.file_methods import AsyncFileMethods
from rota.sdk.subjects.schedule_methods import AsyncScheduleMethods
from rota.sdk.transactions import refuse_key, submit_in_async
from rota.sdk.watching import Waiting
from rota.wire.executions import ExecutionPage, ExecutionView
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
from rota.wire.workers import WorkerView

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class AsyncCarrier:
    """Walks flows over connections of one event loop."""

    def __init__(
        self,
        endpoint: Endpoint,
        patience: Patience | None = None,
        *,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        from rota.sdk.lines.pool import AsyncPool

        self.endpoint = endpoint
        servers = Servers(endpoint.urls)
        self.terms = Terms(clock or SystemClock(), patience or Patience(), servers)
        self._pool = AsyncPool(endpoint, self.terms, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Gives the connections back."""
        await self._pool.close()

    async def call(self, call: Call[T], *, key: str | None = None) -> T:
        """The answer of a call."""
        return await self.run(flows.fetch(self.terms, call, key))

    async def ask(self, call: Call[Any], *, key: str | None = None) -> Answer:
        """The same, unread: for those who pass the bytes on as they are."""
        return await self.run(flows.ask(self.terms, call, key))

    async def run(self, flow: Flow[T]) -> T:
        """Walks a flow to its end."""
        course = Course(flow)
        async with aclosing(self._walk(course)) as walk:
            async for _ in walk:
                pass
        return course.result

    def iterate(self, flow: Flow[Any]) -> AsyncIterator[Any]:
        """Walks a flow for what it emits."""
        return self._walk(Course(flow))

    async def _walk(self, course: Course[Any]) -> AsyncGenerator[Any, None]:
        async with aclosing(self._pool.talk()) as talk:
            while (step := course.step) is not None:
                if isinstance(step, Emit):
                    yield step.item
                    course.take(None)
                    continue
                try:
                    came = await talk.take(step)
                except (UnreachableError, ApiError) as error:
                    course.fail(error)
                else:
                    course.take(came)


class AsyncClient(AsyncCarrier, AsyncScheduleMethods, AsyncEventMethods, AsyncFileMethods):
    """A Rota server, as asyncio sees it.

        async with AsyncClient() as rota:
            job = await rota.submit({"name": "hello", "task": {"kind": "noop"}})
            print((await rota.wait(job.job_id)).status)

    Without a URL the local server is found; several, of one cell, are asked in turn when one is
    away. It belongs to the event loop it was first used in.
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
        endpoint = url if isinstance(url, Endpoint) else discover(url, token)
        super().__init__(endpoint, patience, clock=clock, transport=transport)

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

        With `dry_run` nothing is submitted: answers when it would start, and why not at once.

        With `conn`, a PostgreSQL connection of the application's own, it is submitted inside that
        connection's transaction and exists once that has been committed; answers its id.
        """
        if dry_run:
            return await self.call(outlook_calls.dry_run(job))
        if conn is None:
            return await self.call(calls.submit(job), key=idempotency_key)
        refuse_key(idempotency_key)
        return await self.submit_in(conn, job)

    async def submit_in(self, conn: Any, job: JobLike) -> str:
        """What `submit` does with a connection."""
        job_id = await submit_in_async(conn, job)
        self.terms.expect(job_id)
        return job_id

    async def submit_batch(
        self, jobs: Sequence[JobLike], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Submits jobs together, all or none; answers their ids in the order given."""
        return (await self.call(calls.submit_batch(jobs), key=idempotency_key)).job_ids

    async def dry_run_batch(self, jobs: Sequence[JobLike]) -> list[DryRunView]:
        """What would become of jobs that are submitted together; none is."""
        return (await self.call(outlook_calls.dry_run_batch(jobs))).jobs

    async def submit_many(
        self,
        jobs: Iterable[JobLike],
        *,
        on_progress: Callable[[int], None] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submits any number of jobs in batches; answers their ids in the order given.

        Jobs may name earlier ones by `ref:`. Each batch is all or none.
        """
        return await self.run(
            batches.submit_many(self.terms, jobs, on_progress=on_progress, key=idempotency_key)
        )

    async def job(self, job_id: str) -> JobView:
        """One job."""
        return await self.call(calls.get_job(job_id))

    def jobs(self, search: JobSearch | None = None) -> AsyncIterator[JobView]:
        """All jobs that match, newest first, fetched page by page as they are asked for."""
        return self.iterate(paging.all_jobs(self.terms, search or JobSearch()))

    async def jobs_page(self, search: JobSearch | None = None) -> JobPage:
        """One page of them."""
        return await self.call(calls.list_jobs(search or JobSearch()))

    async def update(self, job_id: str, patch: Mapping[str, Any]) -> JobView:
        """Changes a job that has not started; None in the patch restores a default."""
        return await self.call(calls.update_job(job_id, patch))

    async def delete(self, job_id: str, *, force: bool = False) -> None:
        """Removes a finished job; with `force` a live one too, after cancelling it."""
        await self.call(calls.delete_job(job_id, force=force))

    async def cancel(self, job_id: str) -> JobView:
        """Stops a job, or keeps it from starting."""
        return await self.call(calls.cancel_job(job_id))

    async def retry(self, job_id: str) -> JobView:
        """Starts a job over that ended without success."""
        return await self.call(calls.retry_job(job_id))

    async def bulk(self, spec: BulkSpec | Mapping[str, Any]) -> BulkAnswer:
        """Acts on all jobs that match a filter."""
        return await self.call(calls.bulk(spec))

    async def why(self, job_id: str) -> WhyView:
        """Why a job is not running yet."""
        return await self.call(calls.why(job_id))

    async def graph(self, job_id: str) -> GraphView:
        """The dependency graph a job is part of."""
        return await self.call(calls.graph(job_id))

    async def logs(self, job_id: str, *, tail: int | None = None) -> bytes:
        """What a job has printed so far, or the last lines of it."""
        return await self.call(calls.job_logs(job_id, tail=tail))

    def follow_logs(self, job_id: str, *, tail: int | None = None) -> AsyncIterator[bytes]:
        """What a job printed (or the last lines of it) and prints, until it has ended."""
        return self.iterate(watching.follow_log(self.terms, job_id, tail))

    async def execute(self, job_id: str, worker_id: str) -> ExecutionView:
        """Runs this job on that worker, past time, order and pause."""
        return await self.call(calls.execute(job_id, worker_id))

    async def dead_letters(self, *, limit: int | None = None, cursor: str | None = None) -> JobPage:
        """A page of the jobs that used up their attempts."""
        return await self.call(calls.dead_letters(limit=limit, cursor=cursor))

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Waits until a job has ended, and answers it as it then is."""
        return await self.run(watching.ended(self.terms, job_id, timeout_s))

    async def wait_all(
        self,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        on_end: Callable[[str, str], None] | None = None,
    ) -> dict[str, str]:
        """Waits until all have ended; answers the status of each, by id."""
        return await self.run(
            Waiting(self.terms, job_ids, timeout_s=timeout_s, on_end=on_end).flow()
        )

    async def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Waits for what a job returned; raises JobFailed if it ended otherwise."""
        return await self.run(watching.result(self.terms, job_id, timeout_s))

    # Workers

    async def worker(self, worker_id: str) -> WorkerView:
        """One worker."""
        return await self.call(calls.get_worker(worker_id))

    async def workers(
        self, *, status: Sequence[str] = (), capabilities: Sequence[str] = ()
    ) -> list[WorkerView]:
        """Workers that are in one of the statuses and have all the capabilities."""
        return await self.run(paging.all_workers(self.terms, status, capabilities))

    async def drain_worker(self, worker_id: str) -> WorkerView:
        """Gives a worker no new work."""
        return await self.call(calls.drain_worker(worker_id))

    async def resume_worker(self, worker_id: str) -> WorkerView:
        """Gives a drained worker work again."""
        return await self.call(calls.resume_worker(worker_id))

    async def remove_worker(self, worker_id: str) -> None:
        """Lets a worker leave."""
        await self.call(calls.remove_worker(worker_id))

    # Executions

    async def execution(self, execution_id: str) -> ExecutionView:
        """One try of a job."""
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
        """A page of executions, newest first."""
        return await self.call(
            calls.list_executions(
                job_id=job_id, worker_id=worker_id, status=status, limit=limit, cursor=cursor
            )
        )

    # Queues

    async def queues(self) -> list[QueueView]:
        """All queues, by name."""
        return await self.run(paging.all_queues(self.terms))

    async def queue(self, name: str) -> QueueView:
        """One queue."""
        return await self.call(calls.get_queue(name))

    async def set_queue(
        self, name: str, settings: Mapping[str, Any], *, reset: bool = False
    ) -> QueueView:
        """Changes a queue; with `reset` what is not given goes back to its default."""
        return await self.call(calls.set_queue(name, settings, reset=reset))

    async def pause_queue(self, name: str) -> QueueView:
        """Starts nothing more from a queue."""
        return await self.call(calls.pause_queue(name))

    async def resume_queue(self, name: str) -> QueueView:
        """Lets a queue go on."""
        return await self.call(calls.resume_queue(name))

    async def purge_queue(self, name: str) -> int:
        """Cancels all that waits in a queue; answers how many."""
        return (await self.call(calls.purge_queue(name))).count

    # The service

    async def health(self) -> Health:
        """Whether the server is alive."""
        return await self.call(calls.healthz())

    async def ready(self) -> Health:
        """Whether the server can accept and schedule."""
        return await self.call(calls.readyz())

    async def stats(self) -> StatsView:
        """What an overview shows."""
        return await self.call(calls.stats())

    async def cluster(self) -> ClusterView:
        """Who leads."""
        return await self.call(calls.cluster())

    async def metrics(self) -> str:
        """The figures as Prometheus text."""
        return (await self.call(calls.metrics())).decode()

    def stream(self, *, after: str | None = None) -> AsyncIterator[Event]:
        """Every state change from now on, or after an event's id."""
        return self.iterate(watching.events(self.terms, after))
