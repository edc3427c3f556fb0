"""Carries out what the session says: starts, stops and abandons executions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, assert_never

import msgspec
from structlog.typing import FilteringBoundLogger

from rota.wire.executions import CompletedReport
from rota.wire.tasks import BundleRun, Command, Container, HttpCall, Noop, PythonCall, Task
from rota.wire.workers import OrderView
from rota.worker.clock import Clock
from rota.worker.instructions import Abandon, Instruction, Start, Stop
from rota.worker.reports import StopReason, report_failed, report_noop
from rota.worker.runners.http_call import HttpRun
from rota.worker.runners.http_gate import Sessions
from rota.worker.runners.process import ProcessRun, Site
from rota.worker.runners.python_call import PythonRun
from rota.worker.runners.python_pool import Pool
from rota.worker.session import LAPSED, Session

RENEW_SHARE = 0.05
"""Share of a lease after which its renewal is passed on to the guard."""

RunTask: TypeAlias = Command | BundleRun | Container | PythonCall | HttpCall
"""What takes time; the rest is over at once."""

_task: msgspec.json.Decoder[Task | None] = msgspec.json.Decoder(Task | None)


class Run(Protocol):
    """One execution, whatever kind of task it is."""

    lapsed: bool
    """The guard ended it because its lease ran out."""

    @property
    def log_left(self) -> asyncio.Task[None] | None:
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


class Runners(Protocol):
    """Makes a run of an order."""

    def run_of(self, order: OrderView, task: RunTask | None) -> Run:
        """An execution that is yet to run; no task: the registered function of the job's name."""
        ...


@dataclass(frozen=True, slots=True)
class Workshop:
    """What each kind of task runs with."""

    site: Site
    pool: Pool
    sessions: Sessions

    def run_of(self, order: OrderView, task: RunTask | None) -> Run:
        """An execution that is yet to run; no task: the registered function of the job's name."""
        match task:
            case Command() | BundleRun() | Container():
                return ProcessRun(order, task, self.site)
            case PythonCall() | None:
                call = PythonRun(order, task, self.site, self.pool)
                call.start_now()
                return call
            case HttpCall():
                return HttpRun(order, task, self.sessions)
            case _:
                assert_never(task)


class Crew:
    """The executions that run now."""

    def __init__(
        self,
        session: Session,
        workshop: Runners,
        diary: FilteringBoundLogger,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._session = session
        self._workshop = workshop
        self._diary = diary
        self._wake = wake
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._logs: set[asyncio.Task[None]] = set()
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
        return self._session.owed

    def obey(self, instructions: Iterable[Instruction]) -> None:
        """Does as told; what a step yields in turn is done as well."""
        todo = list(instructions)
        while todo:
            over: list[CompletedReport] = []
            for instruction in todo:
                match instruction:
                    case Start():
                        self._start(instruction.order, over)
                    case Stop():
                        self._runs[instruction.execution_id].stop(instruction.reason)
                    case Abandon():
                        self._abandon(instruction)
                    case _:
                        assert_never(instruction)
            todo = self._ended(over) if over else []

    def renew(self, now: float) -> None:
        """Lets the guard know of renewed leases: not each time, for it forgets none."""
        if now < self._renewed_at + self._session.lease_ttl * RENEW_SHARE:
            return
        self._renewed_at = now
        for execution_id, run in self._runs.items():
            deadline = self._session.deadline(execution_id)
            if deadline is not None:
                run.hold_until(deadline)

    async def finished(self) -> None:
        """Waits until no process is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def logs_sent(self, limit_s: float) -> None:
        """Waits a while for output that is still on its way, then gives it up."""
        if self._logs:
            await asyncio.wait(self._logs, timeout=limit_s)
        for task in self._logs:
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
        run = self._runs[order.execution_id] = self._workshop.run_of(order, task)
        running = asyncio.create_task(self._attend(order, run))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def _ended(self, reports: Sequence[CompletedReport]) -> list[Instruction]:
        self.ended.update(report.status for report in reports)
        return self._session.ended(reports, self._clock.now())

    def _abandon(self, instruction: Abandon) -> None:
        self._diary.warning(
            "abandons an execution", execution_id=instruction.execution_id, why=instruction.why
        )
        self._runs[instruction.execution_id].abandon()

    async def _attend(self, order: OrderView, run: Run) -> None:
        try:
            report = await run.run()
        except Exception as error:  # noqa: BLE001  (the top of a run: a defect must end as a report)
            self._diary.exception("an execution broke its runner", **names_of(order))
            message = f"the worker failed to run this: {type(error).__name__}: {error}"
            report = report_failed(order.execution_id, order.fence, message)
        if report.status != "succeeded":
            self._diary.info(
                "an execution did not succeed", status=report.status, **names_of(order)
            )
        self._over(run, report)

    def _over(self, run: Run, report: CompletedReport) -> None:
        del self._runs[report.execution_id]
        if run.lapsed and self._session.lapsed(report.execution_id):
            # The guard was faster than the watch of leases.
            self._diary.warning(
                "abandons an execution", execution_id=report.execution_id, why=LAPSED
            )
        if run.log_left is not None:
            self._logs.add(run.log_left)
            run.log_left.add_done_callback(self._logs.discard)
        self.obey(self._ended([report]))
        self._wake()


def names_of(order: OrderView) -> dict[str, Any]:
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
