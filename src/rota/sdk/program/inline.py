"""Runs jobs in this process, without a server: for the tests of programs that use Rota.

What a test could get wrong is kept as it is in production: arguments and results go through JSON,
tries are counted, dependencies hold, a failed job raises `JobFailed`. What a test should not wait
for is left out: backoff, `run_at` and limits are recorded but not waited for.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from rota.sdk.batches import resolved
from rota.sdk.calls import FINAL, JobLike
from rota.sdk.clock import Clock
from rota.sdk.endings import Cancelled, Fail
from rota.sdk.errors import ConflictError, JobFailed, NotFoundError, WaitTimeoutError
from rota.sdk.program.functions import JobFunction
from rota.sdk.program.inline_job import InlineRun, Try, problem, read_spec
from rota.sdk.program.running import run_to_end
from rota.wire.jobs import JobView

Work: TypeAlias = Generator[Try, Any, None]
"""Yields each call to be made and is sent what it returned, or thrown what it raised."""


class Functions(Protocol):
    """Who knows the functions: the app."""

    functions: dict[str, JobFunction[..., Any]]
    clock: Clock


class Runs:
    """The jobs that were submitted inline, in order, and how each ended."""

    def __init__(self, app: Functions, *, eager: bool = True) -> None:
        self._app = app
        self._eager = eager
        self._runs: dict[str, InlineRun] = {}
        self._keys: dict[str, str] = {}

    def __iter__(self) -> Iterator[InlineRun]:
        return iter(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, place: int) -> InlineRun:
        return list(self._runs.values())[place]

    def of(self, function: JobFunction[..., Any] | str) -> list[InlineRun]:
        """The runs of one function."""
        name = function if isinstance(function, str) else function.name
        return [run for run in self if run.name == name]

    def run_all(self) -> None:
        """Runs all that waits, and what that submits, until nothing is left that can run."""
        _drive(self.work())

    # What a server's client has, too

    def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView:
        """Submits a job, and runs it unless it is to wait for `run_all`."""
        job_id = self.put(job, idempotency_key)
        if self._eager:
            self.run_all()
        return self.job(job_id)

    def submit_in(self, conn: Any, job: JobLike) -> str:
        """The same: no database is asked, and nothing waits for a commit."""
        return self.submit(job).job_id

    def submit_many(
        self,
        jobs: Iterable[JobLike],
        *,
        on_progress: Callable[[int], None] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submits jobs, which may name earlier ones by `ref:`, and runs them in their order."""
        ids: list[str] = []
        known: dict[str, str] = {}
        for place, job in enumerate(jobs):
            key = None if idempotency_key is None else f"{idempotency_key}-{place}"
            ids.append(self.put(resolved(job, known), key))
            if isinstance(job, Mapping) and "ref" in job:
                known[job["ref"]] = ids[-1]
        if self._eager:
            self.run_all()
        if on_progress is not None:
            on_progress(len(ids))
        return ids

    def job(self, job_id: str) -> JobView:
        """One job."""
        return self._find(job_id).view

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Runs what waits, if this job does; raises WaitTimeoutError if that does not end it."""
        if self.job(job_id).status not in FINAL:
            self.run_all()
        return self.ended(job_id)

    def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """What a job returned; raises JobFailed if it ended otherwise."""
        self.wait(job_id, timeout_s=timeout_s)
        return self.returned(job_id)

    def cancel(self, job_id: str) -> JobView:
        """Keeps a job from running; one that runs is told."""
        run = self._find(job_id)
        if run.view.status in FINAL:
            detail = f"job {job_id} has ended: it cannot be cancelled"
            raise ConflictError(problem(409, "Conflict", detail))
        run.cancel()
        return run.view

    def logs(self, job_id: str) -> bytes:
        """What a job printed by `ctx.log`."""
        return self._find(job_id).log.encode()

    def follow_logs(self, job_id: str) -> Iterator[bytes]:
        """The same: it has ended."""
        return iter((self.logs(job_id),))

    # For those above, and for AsyncRuns

    def put(self, job: JobLike, key: str | None) -> str:
        """Takes a job, and does not run it yet."""
        if key is not None and key in self._keys:
            return self._keys[key]
        spec = read_spec(job)
        run = InlineRun(spec, number=len(self._runs) + 1, now_ms=self._app.clock.now_ms())
        for need in run.view.dependencies:
            self._find(need.job_id)
        self._runs[run.id] = run
        if key is not None:
            self._keys[key] = run.id
        return run.id

    def work(self) -> Work:
        """All that can run now, one try after the other."""
        while (run := self._next()) is not None:
            function = self._app.functions[run.name]
            yield from self._members(run, function) if run.size else _run(run, function)

    def _members(self, band: InlineRun, function: JobFunction[..., Any]) -> Work:
        """The members of an array or gang, one after the other; each is a run of its own."""
        members: list[InlineRun] = []
        for index in range(band.size):
            number, now_ms = len(self._runs) + 1, self._app.clock.now_ms()
            member = InlineRun(band.spec, number=number, now_ms=now_ms)
            member.join(band, index)
            self._runs[member.id] = member
            yield from _run(member, function)
            members.append(member)
        band.gather(members)

    def ended(self, job_id: str) -> JobView:
        """A job that must have ended by now."""
        view = self.job(job_id)
        if view.status not in FINAL:
            raise WaitTimeoutError((job_id,))
        return view

    def returned(self, job_id: str) -> Any:
        """What it returned; raises JobFailed."""
        run = self._find(job_id)
        if run.view.status == "succeeded":
            return run.view.result
        cause = run.errors[-1] if run.errors else None
        raise JobFailed(run.view, run.log) from cause

    @property
    def eager(self) -> bool:
        """Whether jobs run as they are submitted."""
        return self._eager

    def _find(self, job_id: str) -> InlineRun:
        if job_id not in self._runs:
            raise NotFoundError(problem(404, "Not found", f"there is no job {job_id}"))
        return self._runs[job_id]

    def _next(self) -> InlineRun | None:
        """The first that waits and may go; what may never go is skipped."""
        for run in self:
            if run.view.status != "pending":
                continue
            ends = [(self.job(need.job_id).status, need.when) for need in run.view.dependencies]
            if any(status not in FINAL for status, _ in ends):
                continue
            if any(not _lets_go(status, when) for status, when in ends):
                run.end("skipped", reason="upstream")
            elif run.name in self._app.functions:
                return run
            else:
                run.park()
        return None


def _lets_go(status: str, when: str) -> bool:
    return when == "finished" or status == when


def _run(run: InlineRun, function: JobFunction[..., Any]) -> Work:
    """The tries of one job."""
    while True:
        context = run.start()
        try:
            args, kwargs = function.shape.decode(bytes(run.spec.payload), context)
            returned = yield Try(function.function, args, kwargs, context)
            run.succeed(returned)
            return
        except Cancelled as error:
            run.errors.append(error)
            run.end("cancelled", error=error)
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything
            run.errors.append(error)
            if isinstance(error, Fail) or not run.may_retry:
                run.end("failed", error=error)
                return


def _drive(work: Work) -> None:
    """Makes the calls, and waits for each."""

    def make(call: Try) -> Any:
        with call.context.active():
            return run_to_end(call.function, call.args, call.kwargs)

    step = next(work, None)
    while step is not None:
        try:
            returned = make(step)
        except BaseException as error:  # noqa: BLE001 - the work knows which ones end a job
            step = _thrown(work, error)
        else:
            step = _sent(work, returned)


async def _drive_async(work: Work) -> None:
    """The same, awaiting asynchronous functions in the caller's own event loop."""
    step = next(work, None)
    while step is not None:
        try:
            with step.context.active():
                returned = step.function(*step.args, **step.kwargs)
                if inspect.isawaitable(returned):
                    returned = await returned
        except BaseException as error:  # noqa: BLE001 - as above
            step = _thrown(work, error)
        else:
            step = _sent(work, returned)


def _sent(work: Work, returned: Any) -> Try | None:
    try:
        return work.send(returned)
    except StopIteration:
        return None


def _thrown(work: Work, error: BaseException) -> Try | None:
    try:
        return work.throw(error)
    except StopIteration:
        return None


class AsyncRuns:
    """The same for asyncio."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView:
        """Submits a job, and runs it unless it is to wait for `run_all`."""
        job_id = self._runs.put(job, idempotency_key)
        if self._runs.eager:
            await _drive_async(self._runs.work())
        return self._runs.job(job_id)

    async def submit_in(self, conn: Any, job: JobLike) -> str:
        """The same: no database is asked, and nothing waits for a commit."""
        return (await self.submit(job)).job_id

    async def job(self, job_id: str) -> JobView:
        """One job."""
        return self._runs.job(job_id)

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Runs what waits, if this job does."""
        if self._runs.job(job_id).status not in FINAL:
            await _drive_async(self._runs.work())
        return self._runs.ended(job_id)

    async def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """What a job returned; raises JobFailed if it ended otherwise."""
        await self.wait(job_id, timeout_s=timeout_s)
        return self._runs.returned(job_id)

    async def cancel(self, job_id: str) -> JobView:
        """Keeps a job from running."""
        return self._runs.cancel(job_id)

    async def logs(self, job_id: str) -> bytes:
        """What a job printed by `ctx.log`."""
        return self._runs.logs(job_id)

    async def follow_logs(self, job_id: str) -> AsyncIterator[bytes]:
        """The same: it has ended."""
        yield self._runs.logs(job_id)
