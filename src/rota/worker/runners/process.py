"""Runs a `command`: any program, with everything it starts, from its first breath to its last."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from rota.wire.executions import CompletedReport
from rota.wire.jobs import Command
from rota.wire.workers import OrderView
from rota.worker.backoff import delay_s
from rota.worker.devices import Devices
from rota.worker.instructions import StopReason
from rota.worker.link import AwayError, RefusedError
from rota.worker.logs import LogPump, LogSink
from rota.worker.reports import (
    SHUTDOWN,
    exit_code_of,
    report_ended,
    report_exit,
    report_failed,
)
from rota.worker.runners.child import Child, Launch, StartError
from rota.worker.runners.folder import Folder, UnusableError, environment
from rota.worker.runners.pipes import OutputPipe, ProgressPipe
from rota.worker.runners.progress import ProgressSink, ProgressTeller
from rota.worker.runners.reaper import Reaper
from rota.worker.runners.tree import Tree

STRAY_GRACE_S = 1.0
"""For what a job leaves behind after its own end."""
DRAIN_S = 1.0
"""For the last output once all processes are gone; only an escaped one could hold it longer."""
FLUSH_S = 5.0
"""The report waits this long for the log before it: readers then see the whole log at the end."""
PROGRESS_S = 1.0
"""For the last word on progress; the end of the job says more."""
UPLOAD_RETRY_CAP_S = 3.0

Cause: TypeAlias = Literal["exit", "timeout", "abandoned"] | StopReason


class JobSink(LogSink, ProgressSink, Protocol):
    """Where everything beside the report goes."""

    async def send_artifact(self, execution_id: str, file: Path) -> None:
        """Raises AwayError to be asked again, RefusedError if it cannot be kept."""
        ...


class Watcher(Protocol):
    """Ends the processes it knows of when the agent dies."""

    def watch(self, session: int, execution_id: str) -> None:
        """These are a job's."""
        ...

    def release(self, session: int) -> None:
        """They are gone."""
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """What all executions of an agent share."""

    workplace: Path
    worker: str
    grace_s: float
    sink: JobSink
    reaper: Reaper
    devices: Devices
    warden: Watcher
    progressed: Callable[[str, float, str | None], None]


class ProcessRun:
    """One execution of a command."""

    def __init__(self, order: OrderView, command: Command, site: Site) -> None:
        self._order = order
        self._command = command
        self._site = site
        self._stop: asyncio.Future[Cause] = asyncio.get_running_loop().create_future()
        self._at_once = asyncio.Event()
        self._log = LogPump(order.execution_id, order.fence, site.sink)
        self._teller = ProgressTeller(order.execution_id, order.fence, site.sink)
        self.log_left: asyncio.Task[None] | None = None
        """Still carrying output when the run is over: the server was away."""

    def stop(self, reason: StopReason) -> None:
        """Ends it with grace."""
        if not self._stop.done():
            self._stop.set_result(reason)

    def abandon(self) -> None:
        """Ends it at once; nobody wants its report."""
        self._at_once.set()
        if not self._stop.done():
            self._stop.set_result("abandoned")

    async def run(self) -> CompletedReport:
        """Returns when every process of it is gone and its files are sent."""
        order = self._order
        try:
            folder = Folder(self._site.workplace, order)
        except OSError as error:
            message = f"the worker could not make a folder for this job: {error.strerror}"
            return report_failed(order.execution_id, order.fence, message)
        try:
            return await self._run_in(folder)
        except StartError as error:
            return report_failed(order.execution_id, order.fence, str(error))
        finally:
            self._site.devices.give_back(order.execution_id)
            await asyncio.to_thread(folder.remove)

    async def _run_in(self, folder: Folder) -> CompletedReport:
        output = OutputPipe(self._log.add)
        progress = ProgressPipe(folder.progress, self._progressed)
        try:
            child = Child(self._launch(folder, output.write_end), self._site.reaper)
        except StartError:
            output.started()
            output.close()
            progress.close()
            raise
        output.started()
        self._site.warden.watch(child.pid, self._order.execution_id)
        tasks = [asyncio.create_task(self._log.run()), asyncio.create_task(self._teller.run())]
        try:
            report = await self._live(child)
            report.usage = child.usage
            await output.drained(DRAIN_S)
            progress.close()
            if not self._at_once.is_set():
                report = await self._hand_over(folder, report)
                await self._flush(tasks[0])
        finally:
            child.kill_if_alive()
            self._site.warden.release(child.pid)
            for task in tasks:
                if task is not self.log_left:
                    task.cancel()
        return report

    def _launch(self, folder: Folder, output: int) -> Launch:
        env = environment(self._order, self._command.env, folder, self._site.worker)
        wanted = self._order.requirements.gpu
        devices = self._site.devices.take(self._order.execution_id, wanted) if wanted else []
        if devices:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
        cwd = self._command.cwd or os.fspath(folder.cwd)
        return Launch(self._command.argv, env, cwd, output)

    async def _live(self, child: Child) -> CompletedReport:
        """Until the end, by itself or by us."""
        tree = Tree(self._order.execution_id, child, self._site.reaper)
        await asyncio.wait(
            (child.ended, self._stop),
            timeout=self._order.timeout,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if child.ended.done():
            if tree.strays():
                await tree.end(min(STRAY_GRACE_S, self._site.grace_s), self._at_once)
            return self._exited(child.ended.result())
        cause: Cause = self._stop.result() if self._stop.done() else "timeout"
        deeds = await tree.end(self._site.grace_s, self._at_once)
        code = exit_code_of(await child.ended)
        order = self._order
        if cause == "timeout":
            message = f"timed out after {order.timeout:g} s; {deeds}"
            return report_ended(order.execution_id, order.fence, "timed_out", message, code)
        if cause == "cancelled":
            message = f"cancelled; {deeds}"
            return report_ended(order.execution_id, order.fence, "cancelled", message, code)
        return report_ended(order.execution_id, order.fence, "failed", SHUTDOWN, code)

    def _exited(self, returncode: int) -> CompletedReport:
        tail = self._log.buffer.tail()
        return report_exit(self._order.execution_id, self._order.fence, returncode, tail)

    async def _hand_over(self, folder: Folder, report: CompletedReport) -> CompletedReport:
        """The result and the output files; without them a success would not be one."""
        try:
            result = folder.read_result()
            await self._upload(folder)
        except UnusableError as error:
            if report.status != "succeeded":
                return report
            order = self._order
            failed = report_failed(order.execution_id, order.fence, str(error))
            failed.exit_code, failed.usage = report.exit_code, report.usage
            return failed
        if result is not None:
            report.result = result
        return report

    async def _upload(self, folder: Folder) -> None:
        files, others = folder.kept_files()
        for other in others:
            self._note(
                f"{other.name} in ROTA_ARTIFACTS is not kept: it is hidden or not a plain file"
            )
        for file in files:
            try:
                await self._upload_one(file)
            except (RefusedError, OSError) as error:
                raise UnusableError(
                    f"the output file {file.name} could not be kept: {error}"
                ) from None

    async def _upload_one(self, file: Path) -> None:
        attempt = 0
        order = self._order
        while not self._at_once.is_set():
            try:
                await self._site.sink.send_artifact(order.execution_id, file)
            except AwayError as away:
                pause = delay_s(order.execution_id, attempt, UPLOAD_RETRY_CAP_S)
                attempt += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(pause, away.retry_after_s)):
                        await self._at_once.wait()
            else:
                return

    def _note(self, text: str) -> None:
        self._log.add(f"[rota: {text}]\n".encode())

    async def _flush(self, pump: asyncio.Task[None]) -> None:
        self._log.end()
        abandoned = asyncio.create_task(self._at_once.wait())
        last_word = asyncio.create_task(self._teller.flush())
        await asyncio.wait((pump, abandoned), timeout=FLUSH_S, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((last_word,), timeout=0 if self._at_once.is_set() else PROGRESS_S)
        abandoned.cancel()
        last_word.cancel()
        if not pump.done():
            self.log_left = pump

    def _progressed(self, progress: float, message: str | None) -> None:
        self._site.progressed(self._order.execution_id, progress, message)
        self._teller.tell(progress, message)
