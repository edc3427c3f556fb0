"""Carries out what the session says: starts, stops and abandons executions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec
from structlog.typing import FilteringBoundLogger

from rota.wire.executions import CompletedReport
from rota.wire.jobs import Command, Noop, Task
from rota.wire.workers import OrderView
from rota.worker.instructions import Abandon, Instruction, Start, Stop
from rota.worker.reports import report_failed, report_noop
from rota.worker.runners.process import ProcessRun, Site
from rota.worker.session import Session

_task = msgspec.json.Decoder(Task)


class Crew:
    """The executions that run now."""

    def __init__(
        self, session: Session, site: Site, diary: FilteringBoundLogger, wake: Callable[[], None]
    ) -> None:
        self._session = session
        self._site = site
        self._diary = diary
        self._wake = wake
        self._runs: dict[str, ProcessRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._logs: set[asyncio.Task[None]] = set()

    def obey(self, instructions: Iterable[Instruction]) -> None:
        """Does as told; what a step yields in turn is done as well."""
        todo = list(instructions)
        while todo:
            more: list[Instruction] = []
            for instruction in todo:
                match instruction:
                    case Start():
                        more += self._start(instruction.order)
                    case Stop():
                        self._runs[instruction.execution_id].stop(instruction.reason)
                    case Abandon():
                        self._abandon(instruction)
                    case _:
                        assert_never(instruction)
            todo = more

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

    def _start(self, order: OrderView) -> list[Instruction]:
        try:
            task = _task.decode(order.task)
        except msgspec.MsgspecError as error:
            message = f"this worker cannot run the task: {error}"
            return self._session.ended(report_failed(order.execution_id, order.fence, message))
        match task:
            case Noop():
                return self._session.ended(report_noop(order.execution_id, order.fence))
            case Command():
                run = self._runs[order.execution_id] = ProcessRun(order, task, self._site)
                running = asyncio.create_task(self._attend(order, run))
                self._tasks.add(running)
                running.add_done_callback(self._tasks.discard)
                return []
            case _:
                assert_never(task)

    def _abandon(self, instruction: Abandon) -> None:
        self._diary.warning(
            "abandons an execution", execution_id=instruction.execution_id, why=instruction.why
        )
        self._runs[instruction.execution_id].abandon()

    async def _attend(self, order: OrderView, run: ProcessRun) -> None:
        try:
            report = await run.run()
        except Exception as error:  # noqa: BLE001  (the top of a run: a defect must end as a report)
            self._diary.exception("an execution broke its runner", execution_id=order.execution_id)
            message = f"the worker failed to run this: {type(error).__name__}: {error}"
            report = report_failed(order.execution_id, order.fence, message)
        self._over(run, report)

    def _over(self, run: ProcessRun, report: CompletedReport) -> None:
        del self._runs[report.execution_id]
        if run.log_left is not None:
            self._logs.add(run.log_left)
            run.log_left.add_done_callback(self._logs.discard)
        self.obey(self._session.ended(report))
        self._wake()
