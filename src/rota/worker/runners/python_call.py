"""Runs one call of a Python function in a warm child, and reports how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine
from typing import Any, Literal, TypeAlias

import msgspec

from rota.wire.formats import Duration
from rota.wire.jobs import FUNCTION_CAPABILITY, PythonCall
from rota.wire.queues import LimitsView
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.pychild.protocol import Begin, Done
from rota.worker.reports import (
    SHUTDOWN,
    StopReason,
    exit_code_of,
    report_error,
    report_failed,
    report_stopped,
    signal_name,
)
from rota.worker.runners.exit_status import ExitReporter, signals_text
from rota.worker.runners.output_channels import ExecutionOutput
from rota.worker.runners.process import RunnerContext, limits_of
from rota.worker.runners.python_pool import AppError, PythonPool, WarmChild
from rota.worker.supervisor.client import Ended

KILLED_WITH_ANOTHER = "another call killed this process"
"""Error message of calls that shared a process with one that would not end."""
ENDED_WHEN_ASKED = "it ended when asked to"

BreakOffCause: TypeAlias = Literal["timeout", "abandoned"] | StopReason
"""Why a call was ended by the worker."""


def report_done(order: OrderView, done: Done) -> CompletedReport:
    """Reports a call that ended by itself."""
    allowed = (order.limits or LimitsView()).result_size
    if done.succeeded and len(done.document) > allowed:
        message = f"the function's result is {len(done.document)} bytes as JSON, {allowed} are kept"
        error = {"type": "ResultError", "message": message}
        report = report_error(order.execution_id, order.fence, "failed", error)
        report.retryable = False
    else:
        report = CompletedReport(
            execution_id=order.execution_id,
            status="succeeded" if done.succeeded else "failed",
            fence=order.fence,
            retryable=done.retryable,
            retry_after=None if done.delay_ms is None else Duration(done.delay_ms),
        )
        document = msgspec.Raw(done.document)
        if done.succeeded:
            report.result = document
        else:
            report.error = document
    if done.memory_peak:
        report.usage = {"cpu_seconds": done.cpu_s, "memory_peak": done.memory_peak}
    return report


def report_broken(order: OrderView, ended: Ended, tail: str, *, shared: bool) -> CompletedReport:
    """Reports a call whose process died; `tail`: the last lines of its output."""
    if ended.cause not in ("exit", "stop", "kill"):
        return ExitReporter(order).report(ended, None, tail)
    if shared and ended.cause != "exit":
        return report_failed(order.execution_id, order.fence, KILLED_WITH_ANOTHER)
    code = ended.returncode or 0
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    process = "the process, which other calls shared," if shared else "the process"
    error: dict[str, Any] = {"message": f"{process} {how} in the middle of the call"}
    if tail:
        error["tail"] = tail
    report = report_error(order.execution_id, order.fence, "failed", error)
    if not shared:
        report.exit_code, report.usage = exit_code_of(code), ended.usage
    return report


def report_broken_off(
    order: OrderView, cause: BreakOffCause, ended: Ended | None
) -> CompletedReport:
    """Reports a call that was ended, with its process or (`ended` is None) alone."""
    how = ENDED_WHEN_ASKED if ended is None else signals_text(ended)
    error: dict[str, Any] = {"message": SHUTDOWN}
    status: Literal["timed_out", "cancelled", "failed"] = "failed"
    if cause == "timeout":
        status, error = "timed_out", {"message": f"timed out after {order.timeout:g} s; {how}"}
    elif cause == "cancelled":
        status, error = "cancelled", {"message": f"cancelled; {how}"}
    if ended is None:
        return report_error(order.execution_id, order.fence, status, error)
    error["signals"] = [msgspec.structs.asdict(signal) for signal in ended.signals]
    error["left"] = 0
    report = report_error(order.execution_id, order.fence, status, error)
    report.exit_code = None if ended.returncode is None else exit_code_of(ended.returncode)
    return report


ABANDON_S = 0.5
"""For a call among others whose lease is gone: it ends at once when asked to, or never."""

_numbers = itertools.count(1)


class PythonRunner:
    """Runs one execution of a function in a warm child."""

    def __init__(
        self, order: OrderView, task: PythonCall | None, context: RunnerContext, pool: PythonPool
    ) -> None:
        self._order = order
        self._function = FUNCTION_CAPABILITY + order.name if task is None else task.entry
        self._context = context
        self._pool = pool
        self._number = next(_numbers)
        self._first_event: asyncio.Future[Done | Ended | BreakOffCause] = _future()
        """First of these: the call's end, the end of its process, a stop by the worker."""
        self._end: asyncio.Future[Done | Ended] = _future()
        self._at_once = asyncio.Event()
        self._secrets = context.secrets
        self._child: WarmChild | None = None
        self._output = ExecutionOutput(order, context.sink, context.secrets, context.on_progress)
        self.lapsed = False
        """The supervisor ended its process because a lease ran out."""

    @property
    def unsent_log(self) -> asyncio.Task[None] | None:
        """Task that still sends output after the execution ended: the server was away."""
        return self._output.unsent_log

    # Called by the executor.

    def stop(self, reason: StopReason) -> None:
        """Ends it with its grace period."""
        self._happened(reason)

    def abandon(self) -> None:
        """Ends it at once; its report is not wanted."""
        self._at_once.set()
        self._happened("abandoned")

    def hold_until(self, deadline: float) -> None:
        """Passes on that its lease was renewed."""
        if self._child is not None:
            self._child.hold_until(self._number, deadline)

    # Called by the child.

    @property
    def backlogged(self) -> bool:
        """Whether output read before is still to be sent."""
        return self._output.backlogged

    def printed(self, data: bytes) -> None:
        self._output.printed(data)

    def progressed(self, fraction: float, message: str) -> None:
        self._output.progressed(fraction, message or None)

    def done(self, done: Done) -> None:
        self._ended(done)

    def broken(self, ended: Ended) -> None:
        """Notes that the process ended in the middle of the call."""
        self._ended(ended)

    def _ended(self, end: Done | Ended) -> None:
        if not self._end.done():
            self._end.set_result(end)
        self._happened(end)

    def _happened(self, what: Done | Ended | BreakOffCause) -> None:
        if not self._first_event.done():
            self._first_event.set_result(what)

    async def run(self) -> CompletedReport:
        """Returns when nothing of the call is left and its log is being sent."""
        order = self._order
        if self._child is None:
            try:
                self._start_in(await self._take())
            except AppError as error:
                return report_failed(order.execution_id, order.fence, str(error))
            finally:
                if self._child is None:
                    self._context.devices.give_back(order.execution_id)
        child = self._child
        if child is None:
            reason: StopReason = (
                "cancelled" if self._first_event.result() == "cancelled" else "shutdown"
            )
            return report_stopped(order.execution_id, order.fence, reason)
        try:
            report = await self._call(child)
            await self._output.flush(self._at_once)
        finally:
            await self._release_child(child)
            self._output.close()
        return report

    def start_now(self) -> None:
        """Starts the call in an idle child, if there is one, before the agent does anything else:
        above all before its next call to the server."""
        if not self._order.requirements.gpu:
            kind = self._pool.kind_of(self._function)
            self._start_in(self._pool.take_now(kind, limits_of(self._order)))

    def _start_in(self, child: WarmChild | None) -> None:
        self._child = child
        if child is not None:
            child.begin(self._begin(), self, self._context.deadline(self._order.execution_id))

    async def _take(self) -> WarmChild | None:
        """Returns the child to run in; None if the call was stopped before there was one."""
        if self._first_event.done():
            return None
        pool, limits = self._pool, limits_of(self._order)
        gpus = self._gpus()
        if gpus:
            return await self._taken(pool.take_own(limits, gpus))
        kind = pool.kind_of(self._function)
        return pool.take_now(kind, limits) or await self._taken(pool.take(kind, limits))

    async def _taken(self, take: Coroutine[Any, Any, WarmChild]) -> WarmChild | None:
        taking = asyncio.create_task(take)
        await asyncio.wait((taking, self._first_event), return_when=asyncio.FIRST_COMPLETED)
        if not self._first_event.done():
            return await taking
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError, AppError):
            self._pool.give_back(await taking)
        return None

    def _gpus(self) -> dict[str, str]:
        """Sets which devices it may see; a process reads that once, so the call gets a process of
        its own."""
        wanted, key = self._order.requirements.gpu, self._order.execution_id
        devices = self._context.devices.take(key, wanted) if wanted else []
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))} if devices else {}

    async def _release_child(self, child: WarmChild) -> None:
        if child.single:
            await child.end(_set_event())
            self._context.devices.give_back(self._order.execution_id)
        self._pool.give_back(child)

    async def _call(self, child: WarmChild) -> CompletedReport:
        order = self._order
        timer = None
        if order.timeout is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(order.timeout, self._happened, "timeout")
        first = await self._first_event
        if timer is not None:
            timer.cancel()
        if isinstance(first, Done):
            if first.asynchronous and not self._pool.knows(self._function):
                self._pool.learn(self._function, "shared")
            return self._masked(report_done(order, first))
        if isinstance(first, Ended):
            return self._broken(child, first)
        return await self._break_off(child, first)

    def _begin(self) -> Begin:
        order = self._order
        return Begin(
            number=self._number,
            task=bytes(order.task),
            payload=bytes(order.payload),
            name=order.name,
            queue=order.queue,
            job_id=order.job_id,
            execution_id=order.execution_id,
            attempt=order.attempt,
            fence=order.fence,
            timeout_s=order.timeout,
            scheduled_at=order.scheduled_at,
            traceparent=order.traceparent,
            array=order.array,
            gang=order.gang,
        )

    def _broken(self, child: WarmChild, ended: Ended) -> CompletedReport:
        shared = child.start.kind == "shared"
        if shared and ended.cause == "exit":
            # One of its calls broke it. Each function runs alone until it has succeeded once.
            self._pool.forget(self._function)
        self.lapsed = ended.cause == "lease"
        return report_broken(self._order, ended, self._output.tail(), shared=shared)

    async def _break_off(self, child: WarmChild, cause: BreakOffCause) -> CompletedReport:
        """Ends the call: alone with its process, among others by asking it first."""
        at_once = self._at_once
        if child.start.kind == "shared":
            if await self._ends_when_asked(child):
                return report_broken_off(self._order, cause, None)
            self._pool.learn(self._function, "exclusive")
            at_once = _set_event()  # it had its grace period; the other calls end with it
        return report_broken_off(self._order, cause, await child.end(at_once))

    async def _ends_when_asked(self, child: WarmChild) -> bool:
        grace_s = ABANDON_S if self._at_once.is_set() else self._context.grace_s
        # No other call joins meanwhile: if this one does not end, all of them are killed.
        child.ending += 1
        child.cancel(self._number)
        await asyncio.wait((self._end,), timeout=grace_s)
        child.ending -= 1
        return self._end.done()

    def _masked(self, report: CompletedReport) -> CompletedReport:
        """Masks secrets, which an error may quote."""
        if self._secrets and report.status == "failed":
            report.error = msgspec.Raw(self._secrets.hide(bytes(report.error).decode()).encode())
        return report


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
