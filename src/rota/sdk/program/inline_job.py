"""One job that runs in this process: its record as a server would show it, and what it said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec

from rota.sdk.calls import JobLike, uuid7
from rota.sdk.context import Context, ContextInfo
from rota.sdk.documents import document, error_record
from rota.sdk.errors import InvalidError
from rota.wire.bands import ArrayView, GangView, PlaceView, RankView
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
from rota.wire.units import dec_hook, encode, from_instant, number, to_instant


@dataclass(frozen=True, slots=True)
class Try:
    """A call to be made."""

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    context: Context


def problem(status: int, title: str, detail: str) -> Problem:
    """What a server would answer."""
    return Problem("about:blank", title, status, detail)


def read_spec(job: JobLike) -> JobSpec:
    """A job as a server would read it; raises InvalidError as it would refuse it."""
    try:
        return msgspec.json.decode(encode(job), type=BatchJobSpec, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise InvalidError(problem(422, "Invalid", str(error))) from error


class InlineRun:
    """A job submitted inline, and all that came of it."""

    def __init__(self, spec: JobSpec, *, number: int, now_ms: int) -> None:
        # The number in place of chance: ids of one test run are the same every time.
        self.id = uuid7(now_ms, number.to_bytes(10, "big"))
        self.spec = spec
        self.view = _view(spec, self.id, now_ms)
        self.errors: list[BaseException] = []
        """What each failed try raised."""
        self.progress: list[tuple[float, str]] = []
        """What it said by `ctx.progress`."""
        self.log = ""
        """What it said by `ctx.log`, all tries."""
        self._fence = 0
        self._context: Context | None = None
        self._array: PlaceView | None = None
        self._gang: RankView | None = None

    def __repr__(self) -> str:
        return f"<InlineRun of {self.name}: {self.status} after {self.attempts}>"

    @property
    def size(self) -> int:
        """How many members it stands for; 0: it is a job, or a member itself."""
        if self._array is not None or self._gang is not None:
            return 0
        return self.spec.count or (self.spec.gang.size if self.spec.gang is not None else 0)

    def join(self, band: InlineRun, index: int) -> None:
        """It is a member of this array or gang."""
        if band.spec.gang is not None:
            self._gang = RankView(band.id, index, band.size, ["inline"] * band.size)
            self.view.gang_id, self.view.gang_index = band.id, index
        else:
            self._array = PlaceView(band.id, index, band.size)
            self.view.array_id, self.view.array_index = band.id, index

    def gather(self, members: Sequence[InlineRun]) -> None:
        """Its members have ended, and it with them; a gang returns what the first returned."""
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
        """The function's name."""
        return self.spec.name

    @property
    def status(self) -> Status:
        """Where it is."""
        return self.view.status

    @property
    def attempts(self) -> int:
        """How often it was tried."""
        return self.view.attempt

    @property
    def args(self) -> list[Any]:
        """The positional arguments, as they were in JSON."""
        return list(msgspec.json.decode(self.spec.payload).get("args", []))

    @property
    def kwargs(self) -> dict[str, Any]:
        """The named arguments, as they were in JSON."""
        return dict(msgspec.json.decode(self.spec.payload).get("kwargs", {}))

    @property
    def result(self) -> Any:
        """What it returned, as it was in JSON."""
        return self.view.result

    @property
    def may_retry(self) -> bool:
        """Whether there are tries left."""
        once = self.spec.semantics == "at_most_once"
        return not once and self.view.attempt < self.spec.retry.max_attempts

    def start(self) -> Context:
        """Another try begins; its context."""
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
        """Its context says so."""
        self.progress.append((fraction, message))
        self.view.progress, self.view.message = fraction, message or None

    def write_log(self, text: str) -> None:
        """Its context says so."""
        self.log += text

    def succeed(self, returned: Any) -> None:
        """It returned; raises ArgumentError if that is not JSON, which is a failure of the try."""
        whole = document(f"the result of {self.name}", returned)
        self.view.result = msgspec.json.decode(whole)
        self.end("succeeded")

    def end(
        self, status: Status, *, error: BaseException | None = None, reason: str | None = None
    ) -> None:
        """It has ended."""
        self.view.status, self.view.reason = status, reason
        self.view.finished_at = self.view.created_at
        if error is not None:
            self.view.error = error_record(error)

    def park(self) -> None:
        """No function has its name: it waits, as it would on a server."""
        self.view.reason = "no_function"

    def cancel(self) -> None:
        """Stops it, or keeps it from starting."""
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
