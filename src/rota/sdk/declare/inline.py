"""Runs jobs inline, in this process and without a server: for the tests of programs that use Rota.

It keeps what a test could get wrong as in production: arguments and results go through JSON,
attempts are counted, dependencies hold, a failed job raises `JobFailed`. It does not wait: backoff,
`run_at` and limits are recorded only.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from rota.sdk.arguments import document, error_record
from rota.sdk.batches import resolve_refs
from rota.sdk.calls import FINAL, JobLike, uuid7
from rota.sdk.clock import Clock
from rota.sdk.context import Context, ContextInfo
from rota.sdk.declare.functions import JobFunction, run_to_end
from rota.sdk.errors import ConflictError, InvalidError, JobFailed, NotFoundError, WaitTimeoutError
from rota.sdk.job_exceptions import Cancelled, Fail
from rota.wire.formats import dec_hook, encode, from_instant, number, to_instant
from rota.wire.groups import ArrayView, GangView, PlaceView, RankView
from rota.wire.jobs import (
    BatchJobSpec,
    ConcurrencyView,
    DependencySpec,
    DependencyView,
    JobSpec,
    JobView,
    RequirementsView,
    RetryView,
    Status,
)
from rota.wire.problems import Problem


@dataclass(frozen=True, slots=True)
class InlineAttempt:
    """Call to make: one attempt of a job."""

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    context: Context


def problem(status: int, title: str, detail: str) -> Problem:
    """Builds the problem document that a server would answer with."""
    return Problem("about:blank", title, status, detail)


def read_spec(job: JobLike) -> JobSpec:
    """Parses a job as a server does; raises InvalidError where a server would refuse it."""
    try:
        return msgspec.json.decode(encode(job), type=BatchJobSpec, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise InvalidError(problem(422, "Invalid", str(error))) from error


class InlineRun:
    """A job that was submitted inline, and its outcome."""

    def __init__(self, spec: JobSpec, *, number: int, now_ms: int) -> None:
        # A number instead of random bytes: the ids are the same in every test run.
        self.id = uuid7(now_ms, number.to_bytes(10, "big"))
        self.spec = spec
        self.view = _view(spec, self.id, now_ms)
        self.errors: list[BaseException] = []
        """Exception of each failed attempt."""
        self.progress: list[tuple[float, str]] = []
        """Reports by `ctx.progress`."""
        self.log = ""
        """Lines by `ctx.log`, of all attempts."""
        self._fence = 0
        self._context: Context | None = None
        self._array: PlaceView | None = None
        self._gang: RankView | None = None

    def __repr__(self) -> str:
        return f"<InlineRun of {self.name}: {self.status} after {self.attempts}>"

    @property
    def size(self) -> int:
        """Number of members; 0 for a job or a member."""
        if self._array is not None or self._gang is not None:
            return 0
        return self.spec.count or (self.spec.gang.size if self.spec.gang is not None else 0)

    def join(self, group: InlineRun, index: int) -> None:
        """Makes this run a member of an array or gang."""
        if group.spec.gang is not None:
            self._gang = RankView(group.id, index, group.size, ["inline"] * group.size)
            self.view.gang_id, self.view.gang_index = group.id, index
        else:
            self._array = PlaceView(group.id, index, group.size)
            self.view.array_id, self.view.array_index = group.id, index

    def gather(self, members: Sequence[InlineRun]) -> None:
        """Ends an array or gang after its members; a gang returns the result of the first one."""
        self.errors = [error for member in members for error in member.errors]
        counts = Counter(str(member.status) for member in members)
        ended = (counts["succeeded"], counts["failed"], counts["cancelled"])
        if self.spec.gang is None:
            most = self.spec.max_parallel
            self.view.array = ArrayView(self.size, most, 0, 0, *ended)
        else:
            self.view.gang = GangView(self.size, 0, 0, *ended)
            self.view.result = members[0].result
        worst = next((state for state in ("failed", "cancelled") if counts[state]), "succeeded")
        self.end(cast("Status", worst), reason="members" if worst == "failed" else None)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def status(self) -> Status:
        return self.view.status

    @property
    def attempts(self) -> int:
        """Number of attempts."""
        return self.view.attempt

    @property
    def args(self) -> list[Any]:
        """Positional arguments, as in JSON."""
        return list(msgspec.json.decode(self.spec.payload).get("args", []))

    @property
    def kwargs(self) -> dict[str, Any]:
        """Named arguments, as in JSON."""
        return dict(msgspec.json.decode(self.spec.payload).get("kwargs", {}))

    @property
    def result(self) -> Any:
        """Result, as in JSON."""
        return self.view.result

    @property
    def may_retry(self) -> bool:
        """Whether attempts are left."""
        once = self.spec.semantics == "at_most_once"
        return not once and self.view.attempt < self.spec.retry.max_attempts

    def start(self) -> Context:
        """Starts another attempt and returns its context."""
        self._fence += 1
        self.view.status, self.view.reason = "running", None
        self.view.attempt, self.view.fence = self.view.attempt + 1, self._fence
        info = ContextInfo(
            job_id=self.id,
            execution_id=uuid7(self._fence, bytes.fromhex(self.id.replace("-", ""))[:10]),
            attempt=self.view.attempt,
            fence=self._fence,
            name=self.name,
            queue=self.spec.queue,
            payload=msgspec.json.decode(self.spec.payload),
            scheduled_at=datetime.fromisoformat(self.view.scheduled_at),
            array=self._array,
            gang=self._gang,
        )
        self.view.execution_id = info.execution_id
        self._context = Context(info, self)
        return self._context

    def report_progress(self, fraction: float, message: str) -> None:
        """Records a report of the context."""
        self.progress.append((fraction, message))
        self.view.progress, self.view.message = fraction, message or None

    def write_log(self, text: str) -> None:
        """Appends to the log."""
        self.log += text

    def succeed(self, returned: Any) -> None:
        """Ends the job with a result; raises ArgumentError if that has no form in JSON, which fails
        the attempt.
        """
        whole = document(f"the result of {self.name}", returned)
        self.view.result = msgspec.json.decode(whole)
        self.end("succeeded")

    def end(
        self, status: Status, *, error: BaseException | None = None, reason: str | None = None
    ) -> None:
        self.view.status, self.view.reason = status, reason
        self.view.finished_at = self.view.created_at
        if error is not None:
            self.view.error = error_record(error)

    def park(self) -> None:
        """Keeps the job waiting, as on a server, because no function has its name."""
        self.view.reason = "no_function"

    def cancel(self) -> None:
        """Stops the job, or prevents its start."""
        if self._context is None or self.view.status == "pending":
            self.end("cancelled", reason="cancelled")
        else:
            self.view.status = "cancelling"
            self._context.cancel()


def _view(spec: JobSpec, job_id: str, now_ms: int) -> JobView:
    at = from_instant(now_ms)
    needs, retry, limit = spec.requirements, spec.retry, spec.concurrency
    return JobView(
        job_id=job_id, name=spec.name, queue=spec.queue, tenant=spec.tenant,
        priority=spec.priority, status="pending", reason=None,
        task=msgspec.Raw(encode(spec.task)), payload=spec.payload,
        requirements=RequirementsView(
            needs.cpu, needs.memory.bytes, needs.storage.bytes, needs.gpu, dict(needs.custom),
            needs.capabilities,
        ),
        dependencies=[_dependency(one) for one in spec.dependencies],
        run_at=_time(spec.run_at), expires_at=_time(spec.expires_at),
        timeout=None if spec.timeout is None else number(spec.timeout.ms),
        expected_runtime=None if spec.expected_runtime is None else spec.expected_runtime.seconds,
        retry=RetryView(
            retry.max_attempts, retry.backoff, number(retry.delay.ms), retry.factor,
            number(retry.longest_delay.ms), retry.jitter,
        ),
        semantics=spec.semantics,
        concurrency=None if limit is None else ConcurrencyView(limit.key, limit.limit),
        preemptible=spec.preemptible, labels=spec.labels, attempt=0, fence=0, losses=0,
        execution_id=None, worker_id=None, created_at=at,
        scheduled_at=_time(spec.run_at) or at, started_at=None, finished_at=None,
        progress=None, message=None, result=None, error=None,
        finish_by=_finish_by(spec, now_ms),
    )  # fmt: skip


def _finish_by(spec: JobSpec, now_ms: int) -> str | None:
    due = spec.finish_by
    if due is None or due.within is None:
        return None if due is None else _time(due.at)
    return from_instant(now_ms + due.within.ms)


def _dependency(given: str | DependencySpec) -> DependencyView:
    if isinstance(given, str):
        return DependencyView(given, "succeeded")
    return DependencyView(given.job_id, given.when)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else from_instant(to_instant(moment))


InlineWork: TypeAlias = Generator[InlineAttempt, Any, None]
"""Yields each call to make, and is sent its result or thrown its exception."""


class FunctionTable(Protocol):
    """Table of functions: the app."""

    functions: dict[str, JobFunction[..., Any]]
    clock: Clock


class Runs:
    """Inline jobs in the order of submission, with their outcomes."""

    def __init__(self, app: FunctionTable, *, eager: bool = True) -> None:
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
        """Returns the runs of one function."""
        name = function if isinstance(function, str) else function.name
        return [run for run in self if run.name == name]

    def run_all(self) -> None:
        """Runs all waiting jobs, and the jobs that they submit, until none can run."""
        _drive(self.work())

    # The methods of a client (`Port`)

    def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView:
        """Submits a job, and runs it at once unless the runs are not eager."""
        job_id = self.put(job, idempotency_key)
        if self._eager:
            self.run_all()
        return self.job(job_id)

    def submit_in(self, conn: Any, job: JobLike) -> str:
        """Submits a job; no database is used, and nothing waits for a commit."""
        return self.submit(job).job_id

    def submit_many(
        self,
        jobs: Iterable[JobLike],
        *,
        on_progress: Callable[[int], None] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submits jobs, which may refer to earlier ones by `ref:`, and runs them in order."""
        ids: list[str] = []
        known: dict[str, str] = {}
        for place, job in enumerate(jobs):
            key = None if idempotency_key is None else f"{idempotency_key}-{place}"
            ids.append(self.put(resolve_refs(job, known), key))
            if isinstance(job, Mapping) and "ref" in job:
                known[job["ref"]] = ids[-1]
        if self._eager:
            self.run_all()
        if on_progress is not None:
            on_progress(len(ids))
        return ids

    def job(self, job_id: str) -> JobView:
        return self._find(job_id).view

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Runs waiting jobs if this one waits; raises WaitTimeoutError if that does not end it."""
        if self.job(job_id).status not in FINAL:
            self.run_all()
        return self.ended(job_id)

    def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Returns the result of a job; raises JobFailed if there is none."""
        self.wait(job_id, timeout_s=timeout_s)
        return self.returned(job_id)

    def cancel(self, job_id: str) -> JobView:
        """Cancels a waiting job; a running one is told to stop."""
        run = self._find(job_id)
        if run.view.status in FINAL:
            detail = f"job {job_id} has ended: it cannot be cancelled"
            raise ConflictError(problem(409, "Conflict", detail))
        run.cancel()
        return run.view

    def logs(self, job_id: str) -> bytes:
        """Returns the lines by `ctx.log`."""
        return self._find(job_id).log.encode()

    def follow_logs(self, job_id: str) -> Iterator[bytes]:
        """Yields the log; the job has ended already."""
        return iter((self.logs(job_id),))

    # Shared with AsyncRuns

    def put(self, job: JobLike, key: str | None) -> str:
        """Accepts a job without running it."""
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

    def work(self) -> InlineWork:
        """Yields the attempts that can run now, one after the other."""
        while (run := self._next()) is not None:
            function = self._app.functions[run.name]
            yield from self._members(run, function) if run.size else _run(run, function)

    def _members(self, group: InlineRun, function: JobFunction[..., Any]) -> InlineWork:
        """Runs the members of an array or gang, one after the other."""
        members: list[InlineRun] = []
        for index in range(group.size):
            number, now_ms = len(self._runs) + 1, self._app.clock.now_ms()
            member = InlineRun(group.spec, number=number, now_ms=now_ms)
            member.join(group, index)
            self._runs[member.id] = member
            yield from _run(member, function)
            members.append(member)
        group.gather(members)

    def ended(self, job_id: str) -> JobView:
        """Returns a job that must have ended; raises WaitTimeoutError."""
        view = self.job(job_id)
        if view.status not in FINAL:
            raise WaitTimeoutError((job_id,))
        return view

    def returned(self, job_id: str) -> Any:
        """Returns the result of an ended job; raises JobFailed."""
        run = self._find(job_id)
        if run.view.status == "succeeded":
            return run.view.result
        cause = run.errors[-1] if run.errors else None
        raise JobFailed(run.view, run.log) from cause

    @property
    def eager(self) -> bool:
        """Whether jobs run when they are submitted."""
        return self._eager

    def _find(self, job_id: str) -> InlineRun:
        if job_id not in self._runs:
            raise NotFoundError(problem(404, "Not found", f"there is no job {job_id}"))
        return self._runs[job_id]

    def _next(self) -> InlineRun | None:
        """Selects the first waiting job that can run; skips jobs whose dependencies failed."""
        for run in self:
            if run.view.status != "pending":
                continue
            ends = [(self.job(need.job_id).status, need.when) for need in run.view.dependencies]
            if any(status not in FINAL for status, _ in ends):
                continue
            if any(not _is_satisfied(status, when) for status, when in ends):
                run.end("skipped", reason="upstream")
            elif run.name in self._app.functions:
                return run
            else:
                run.park()
        return None


def _is_satisfied(status: str, when: str) -> bool:
    return when == "finished" or status == when


def _run(run: InlineRun, function: JobFunction[..., Any]) -> InlineWork:
    """Runs the attempts of one job."""
    while True:
        context = run.start()
        try:
            args, kwargs = function.signature.decode(bytes(run.spec.payload), context)
            returned = yield InlineAttempt(function.function, args, kwargs, context)
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


def _drive(work: InlineWork) -> None:
    """Makes the calls, and waits for each."""

    def make(call: InlineAttempt) -> Any:
        with call.context.active():
            return run_to_end(call.function, call.args, call.kwargs)

    step = next(work, None)
    while step is not None:
        try:
            returned = make(step)
        except BaseException as error:  # noqa: BLE001 - the generator decides which ones end a job
            step = _throw(work, error)
        else:
            step = _resume(work, returned)


async def _drive_async(work: InlineWork) -> None:
    """Makes the calls, awaiting asynchronous functions in the caller's own event loop."""
    step = next(work, None)
    while step is not None:
        try:
            with step.context.active():
                returned = step.function(*step.args, **step.kwargs)
                if inspect.isawaitable(returned):
                    returned = await returned
        except BaseException as error:  # noqa: BLE001 - as above
            step = _throw(work, error)
        else:
            step = _resume(work, returned)


def _resume(work: InlineWork, returned: Any) -> InlineAttempt | None:
    try:
        return work.send(returned)
    except StopIteration:
        return None


def _throw(work: InlineWork, error: BaseException) -> InlineAttempt | None:
    try:
        return work.throw(error)
    except StopIteration:
        return None


class AsyncRuns:
    """Inline jobs, for asyncio."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView:
        """Submits a job, and runs it at once unless the runs are not eager."""
        job_id = self._runs.put(job, idempotency_key)
        if self._runs.eager:
            await _drive_async(self._runs.work())
        return self._runs.job(job_id)

    async def submit_in(self, conn: Any, job: JobLike) -> str:
        """Submits a job; no database is used, and nothing waits for a commit."""
        return (await self.submit(job)).job_id

    async def job(self, job_id: str) -> JobView:
        return self._runs.job(job_id)

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Runs waiting jobs if this one waits; raises WaitTimeoutError if that does not end it."""
        if self._runs.job(job_id).status not in FINAL:
            await _drive_async(self._runs.work())
        return self._runs.ended(job_id)

    async def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Returns the result of a job; raises JobFailed if there is none."""
        await self.wait(job_id, timeout_s=timeout_s)
        return self._runs.returned(job_id)

    async def cancel(self, job_id: str) -> JobView:
        """Cancels a waiting job."""
        return self._runs.cancel(job_id)

    async def logs(self, job_id: str) -> bytes:
        """Returns the lines by `ctx.log`."""
        return self._runs.logs(job_id)

    async def follow_logs(self, job_id: str) -> AsyncIterator[bytes]:
        """Yields the log; the job has ended already."""
        yield self._runs.logs(job_id)
