"""Executes orders: starts, stops and abandons executions as the session decides.

Each execution gets the runner for its kind of task.
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
from rota.worker.runners.http_call import HttpRunner, HttpSessions
from rota.worker.runners.process import ProcessRunner, RunnerContext
from rota.worker.runners.python_call import PythonRunner
from rota.worker.runners.python_pool import PythonPool
from rota.worker.session import LAPSED, Abandon, Action, Session, Start, Stop

RENEW_SHARE = 0.05
"""The supervisor hears of a renewed lease only after this share of its length, to save messages."""

RunnableTask: TypeAlias = Command | BundleRun | Container | PythonCall | HttpCall
"""Tasks that take time; the other kinds end at once."""

_task: msgspec.json.Decoder[Task | None] = msgspec.json.Decoder(Task | None)


class Runner(Protocol):
    """Runs one execution of any kind of task."""

    lapsed: bool
    """The supervisor ended it because its lease ran out."""

    @property
    def unsent_log(self) -> asyncio.Task[None] | None:
        """Task that still sends output after the execution ended, because the server was away."""
        ...

    def stop(self, reason: StopReason) -> None:
        """Ends the execution: SIGTERM first, SIGKILL after the grace period."""
        ...

    def abandon(self) -> None:
        """Ends the execution at once; its report is not wanted."""
        ...

    def hold_until(self, deadline: float) -> None:
        """Passes on that the lease was renewed."""
        ...

    async def run(self) -> CompletedReport:
        """Returns the report when nothing of the execution is left."""
        ...


class RunnerFactory(Protocol):
    """Makes the runner for an order."""

    def runner_of(self, order: OrderView, task: RunnableTask | None) -> Runner:
        """Returns a runner that has not started; no task means the registered function of the job's
        name."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerDeps:
    """Dependencies of the runners, and the factory that chooses one by kind of task."""

    context: RunnerContext
    pool: PythonPool
    sessions: HttpSessions

    def runner_of(self, order: OrderView, task: RunnableTask | None) -> Runner:
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
    """Runs the executions that the session starts, and hands their reports back to it."""

    def __init__(
        self,
        session: Session,
        factory: RunnerFactory,
        log: FilteringBoundLogger,
        wake: Callable[[], None],
        clock: MonotonicClock,
    ) -> None:
        self._session = session
        self._factory = factory
        self._log = log
        self._wake = wake
        self._clock = clock
        self._runners: dict[str, Runner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log_uploads: set[asyncio.Task[None]] = set()
        self._renewed_at = 0.0
        self.ended: Counter[str] = Counter()
        """How many executions ended here, by status."""

    @property
    def held(self) -> int:
        """Executions that this worker holds."""
        return self._session.held

    @property
    def owed(self) -> int:
        """Reports that no server has confirmed yet."""
        return self._session.pending_reports

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Carries out actions of the session, and the further actions that result from them."""
        todo = list(actions)
        while todo:
            finished: list[CompletedReport] = []
            for action in todo:
                match action:
                    case Start():
                        self._start(action.order, finished)
                    case Stop():
                        self._runners[action.execution_id].stop(action.reason)
                    case Abandon():
                        self._abandon(action)
                    case _:
                        assert_never(action)
            todo = self._report_ends(finished) if finished else []

    def renew(self, now: float) -> None:
        """Tells the supervisor about renewed leases, though not each time: see RENEW_SHARE."""
        if now < self._renewed_at + self._session.lease_ttl * RENEW_SHARE:
            return
        self._renewed_at = now
        for execution_id, runner in self._runners.items():
            deadline = self._session.deadline(execution_id)
            if deadline is not None:
                runner.hold_until(deadline)

    async def wait_until_finished(self) -> None:
        """Waits until no execution is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def wait_for_logs(self, limit_s: float) -> None:
        """Waits up to `limit_s` for output that is still being sent, then drops it."""
        if self._log_uploads:
            await asyncio.wait(self._log_uploads, timeout=limit_s)
        for task in self._log_uploads:
            task.cancel()

    def _start(self, order: OrderView, finished: list[CompletedReport]) -> None:
        """Starts an execution; reports of tasks that end at once are added to `finished`."""
        try:
            task = _task.decode(order.task)
        except msgspec.MsgspecError as error:
            message = f"this worker cannot run the task: {error}"
            finished.append(report_failed(order.execution_id, order.fence, message))
            return
        if isinstance(task, Noop):
            finished.append(report_noop(order.execution_id, order.fence))
            return
        runner = self._runners[order.execution_id] = self._factory.runner_of(order, task)
        running = asyncio.create_task(self._run(order, runner))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def _report_ends(self, reports: Sequence[CompletedReport]) -> list[Action]:
        self.ended.update(report.status for report in reports)
        return self._session.ended(reports, self._clock.now())

    def _abandon(self, action: Abandon) -> None:
        self._log_abandoned(action.execution_id, action.why)
        self._runners[action.execution_id].abandon()

    def _log_abandoned(self, execution_id: str, why: str) -> None:
        self._log.warning("abandoned an execution", execution_id=execution_id, why=why)

    async def _run(self, order: OrderView, runner: Runner) -> None:
        try:
            report = await runner.run()
        except Exception as error:  # noqa: BLE001  (the top of an execution: a bug must end as a report)
            self._log.exception("the runner of an execution crashed", **log_fields(order))
            message = f"the worker failed to run this: {type(error).__name__}: {error}"
            report = report_failed(order.execution_id, order.fence, message)
        if report.status != "succeeded":
            self._log.info(
                "an execution did not succeed", status=report.status, **log_fields(order)
            )
        self._finish(runner, report)

    def _finish(self, runner: Runner, report: CompletedReport) -> None:
        del self._runners[report.execution_id]
        if runner.lapsed and self._session.lapsed(report.execution_id):
            # The supervisor ended it before `RunLoop.watch` noticed.
            self._log.warning(
                "abandoned an execution", execution_id=report.execution_id, why=LAPSED
            )
        if runner.unsent_log is not None:
            self._log_uploads.add(runner.unsent_log)
            runner.unsent_log.add_done_callback(self._log_uploads.discard)
        self.carry_out(self._report_ends([report]))
        self._wake()


def log_fields(order: OrderView) -> dict[str, Any]:
    """Fields that identify an execution in the agent's log: job, execution, trace."""
    names: dict[str, Any] = {
        "job_id": order.job_id,
        "execution_id": order.execution_id,
        "attempt": order.attempt,
        "name": order.name,
    }
    if order.traceparent:
        names["trace_id"] = order.traceparent.split("-")[1]
    return names
