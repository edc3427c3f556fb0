"""Executes orders: starts, stops and abandons executions, as the session says.

Each execution has the runner of its kind of task.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, assert_never

import msgspec
from structlog.typing import FilteringBoundLogger

from rota.wire.jobs import BundleRun, Command, Container, HttpCall, Noop, PythonCall, Task
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.clock import MonotonicClock
from rota.worker.reports import StopReason, report_failed, report_noop
from rota.worker.runners.http_call import HttpRunner
from rota.worker.runners.http_policy import HttpSessions
from rota.worker.runners.process import ProcessRunner, RunnerContext
from rota.worker.runners.python_call import PythonRunner
from rota.worker.runners.python_pool import PythonPool
from rota.worker.session import LAPSED, Abandon, Action, Session, Start, Stop

RENEW_SHARE = 0.05
"""Share of a lease after which its renewal is passed on to the guard."""

RunnableTask: TypeAlias = Command | BundleRun | Container | PythonCall | HttpCall
"""What takes time; the rest is over at once."""

_task: msgspec.json.Decoder[Task | None] = msgspec.json.Decoder(Task | None)


class Runner(Protocol):
    """One execution, whatever kind of task it is."""

    lapsed: bool
    """The guard ended it because its lease ran out."""

    @property
    def unsent_log(self) -> asyncio.Task[None] | None:
        """Still carrying output when the run is over: the server was away."""
        ...

    def stop(self, reason: StopReason) -> None:
        """Ends it with grace."""
        ...

    def abandon(self) -> None:
        """Ends it at once; nobody wants its report."""
        ...

    def hold_until(self, deadline: float) -> None:
        """Its lease was renewed."""
        ...

    async def run(self) -> CompletedReport:
        """Returns when nothing of it is left."""
        ...


class RunnerFactory(Protocol):
    """Makes a run of an order."""

    def runner_of(self, order: OrderView, task: RunnableTask | None) -> Runner:
        """An execution that is yet to run; no task: the registered function of the job's name."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerDeps:
    """What each kind of task runs with."""

    context: RunnerContext
    pool: PythonPool
    sessions: HttpSessions

    def runner_of(self, order: OrderView, task: RunnableTask | None) -> Runner:
        """An execution that is yet to run; no task: the registered function of the job's name."""
        match task:
            case Command() | BundleRun() | Container():
                return ProcessRunner(order, task, self.context)
            case PythonCall() | None:
                call = PythonRunner(order, task, self.context, self.pool)
                call.start_now()
                return call
            case HttpCall():
                return HttpRunner(order, task, self.sessions)
            case _:
                assert_never(task)


class Executor:
    """The executions that run now."""

    def __init__(
        self,
        session: Session,
        workshop: RunnerFactory,
        diary: FilteringBoundLogger,
        wake: Callable[[], None],
        clock: MonotonicClock,
    ) -> None:
        self._session = session
        self._factory = workshop
        self._log = diary
        self._wake = wake
        self._clock = clock
        self._runners: dict[str, Runner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log_uploads: set[asyncio.Task[None]] = set()
        self._renewed_at = 0.0
        self.ended: Counter[str] = Counter()
        """How many executions ended here, by how."""

    @property
    def held(self) -> int:
        """Executions that it has."""
        return self._session.held

    @property
    def owed(self) -> int:
        """Reports that no server has heard yet."""
        return self._session.pending_reports

    def carry_out(self, instructions: Iterable[Action]) -> None:
        """Does as told; what a step yields in turn is done as well."""
        todo = list(instructions)
        while todo:
            over: list[CompletedReport] = []
            for instruction in todo:
                match instruction:
                    case Start():
                        self._start(instruction.order, over)
                    case Stop():
                        self._runners[instruction.execution_id].stop(instruction.reason)
                    case Abandon():
                        self._abandon(instruction)
                    case _:
                        assert_never(instruction)
            todo = self._report_ends(over) if over else []

    def renew(self, now: float) -> None:
        """Lets the guard know of renewed leases: not each time, for it forgets none."""
        if now < self._renewed_at + self._session.lease_ttl * RENEW_SHARE:
            return
        self._renewed_at = now
        for execution_id, run in self._runners.items():
            deadline = self._session.deadline(execution_id)
            if deadline is not None:
                run.hold_until(deadline)

    async def wait_until_finished(self) -> None:
        """Waits until no process is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def wait_for_logs(self, limit_s: float) -> None:
        """Waits a while for output that is still on its way, then gives it up."""
        if self._log_uploads:
            await asyncio.wait(self._log_uploads, timeout=limit_s)
        for task in self._log_uploads:
            task.cancel()

    def _start(self, order: OrderView, over: list[CompletedReport]) -> None:
        """Runs it; the report of what is over at once goes to the others."""
        try:
            task = _task.decode(order.task)
        except msgspec.MsgspecError as error:
            message = f"this worker cannot run the task: {error}"
            over.append(report_failed(order.execution_id, order.fence, message))
            return
        if isinstance(task, Noop):
            over.append(report_noop(order.execution_id, order.fence))
            return
        run = self._runners[order.execution_id] = self._factory.runner_of(order, task)
        running = asyncio.create_task(self._run(order, run))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def _report_ends(self, reports: Sequence[CompletedReport]) -> list[Action]:
        self.ended.update(report.status for report in reports)
        return self._session.ended(reports, self._clock.now())

    def _abandon(self, instruction: Abandon) -> None:
        self._log.warning(
            "abandons an execution", execution_id=instruction.execution_id, why=instruction.why
        )
        self._runners[instruction.execution_id].abandon()

    async def _run(self, order: OrderView, run: Runner) -> None:
        try:
            report = await run.run()
        except Exception as error:  # noqa: BLE001  (the top of a run: a defect must end as a report)
            self._log.exception("an execution broke its runner", **log_fields(order))
            message = f"the worker failed to run this: {type(error).__name__}: {error}"
            report = report_failed(order.execution_id, order.fence, message)
        if report.status != "succeeded":
            self._log.info(
                "an execution did not succeed", status=report.status, **log_fields(order)
            )
        self._finish(run, report)

    def _finish(self, run: Runner, report: CompletedReport) -> None:
        del self._runners[report.execution_id]
        if run.lapsed and self._session.lapsed(report.execution_id):
            # The guard was faster than the watch of leases.
            self._log.warning("abandons an execution", execution_id=report.execution_id, why=LAPSED)
        if run.unsent_log is not None:
            self._log_uploads.add(run.unsent_log)
            run.unsent_log.add_done_callback(self._log_uploads.discard)
        self.carry_out(self._report_ends([report]))
        self._wake()


def log_fields(order: OrderView) -> dict[str, Any]:
    """By which a line of the log is found again, beside the job and its trace."""
    names: dict[str, Any] = {
        "job_id": order.job_id,
        "execution_id": order.execution_id,
        "attempt": order.attempt,
        "name": order.name,
    }
    if order.traceparent:
        names["trace_id"] = order.traceparent.split("-")[1]
    return names
