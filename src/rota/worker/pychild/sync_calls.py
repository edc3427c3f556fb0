"""Runs one call at a time on the main thread: plain functions, and others that must run alone.

SIGTERM ends the call: `Cancelled` is raised in the function wherever it is, once, so that its own
cleanup is not interrupted; then the process exits. One that does not exit is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
from types import FrameType
from typing import Any

import msgspec

from rota.sdk.context import Context
from rota.sdk.job_exceptions import Cancelled
from rota.worker.group_env import GROUP_VARIABLES, group_variables
from rota.worker.pychild.calls import (
    CallResult,
    FunctionLookup,
    UsageMeter,
    call_raised,
    call_returned,
    context_of,
)
from rota.worker.pychild.protocol import Begin, Done, PipeReader, PipeWriter, Progress


class SyncCalls:
    """Runs calls one after the other in this process."""

    def __init__(self, reader: PipeReader, writer: PipeWriter, functions: FunctionLookup) -> None:
        self._reader = reader
        self._writer = writer
        self._functions = functions
        self._meter = UsageMeter()
        self._pid = os.getpid()
        self._start_folder = os.getcwd()
        self._idle = False
        self._in_user_code = False
        """User code runs: `Cancelled` may be raised in it."""
        self._stop_deferred = False
        """SIGTERM came in the middle of a frame: `Cancelled` is raised after that."""
        self._stopping = False
        self._context: Context | None = None

    def run(self) -> None:
        """Serves until the agent is gone or sends SIGTERM."""
        self._reset_process()
        while not self._stopping:
            self._idle = True
            order = self._reader.read()
            self._idle = False
            if not isinstance(order, Begin):
                return
            self._writer.send(self._call(order))
            self._reset_process()

    def _reset_process(self) -> None:
        """Undoes what a call may have changed in the process. Done before the next call arrives, so
        that it need not wait."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        with contextlib.suppress(OSError):
            os.chdir(self._start_folder)
        for name in GROUP_VARIABLES:
            os.environ.pop(name, None)  # set by the previous call
        self._meter.start()

    def _call(self, begin: Begin) -> Done:
        os.environ.update(_call_variables(begin))
        self._context = None
        asynchronous = False
        try:
            # From here on the call may be stopped: importing the function's module may take long.
            self._in_user_code = True
            found, given = self._functions.find(begin)
            asynchronous = found.asynchronous
            self._context = context_of(begin, _SyncCallOutput(self, begin.number))
            args, kwargs = found.arguments(given, self._context)
            with self._context.active():
                value = found.function(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = asyncio.run(_wait_for(value))
            self._in_user_code = False
            result = call_returned(value)
        except BaseException as error:  # noqa: BLE001  (the top of a call: it must end as a report)
            self._in_user_code = False
            result = call_raised(error)
        if os.getpid() != self._pid:
            os._exit(0)  # the function forked, and this is the copy, whose answer is not wanted
        return self._done(result, begin.number, asynchronous=asynchronous)

    def _done(self, result: CallResult, number: int, *, asynchronous: bool) -> Done:
        _flush()
        return msgspec.structs.replace(
            result.to_message(number, asynchronous=asynchronous),
            cpu_s=self._meter.cpu_s(),
            memory_peak=self._meter.memory_peak(),
            memory=self._meter.memory(),
        )

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        if self._idle:
            raise SystemExit
        if self._context is not None:
            self._context.cancel()
        if self._in_user_code and self._writer.main_thread_writes:
            self._stop_deferred = True
        elif self._in_user_code:
            self._in_user_code = False
            raise Cancelled("the job is to stop")

    def progress(self, message: Progress) -> None:
        """Sends progress; raises `Cancelled` if a stop was deferred meanwhile."""
        self._writer.send(message)
        if self._stop_deferred:
            self._stop_deferred = self._in_user_code = False
            raise Cancelled("the job is to stop")


class _SyncCallOutput:
    """Output of the one call in this process."""

    def __init__(self, calls: SyncCalls, number: int) -> None:
        self._calls = calls
        self._number = number

    def report_progress(self, fraction: float, message: str) -> None:
        self._calls.progress(Progress(self._number, fraction, message))

    def write_log(self, text: str) -> None:
        """Prints: everything printed here belongs to the one call."""
        if sys.__stdout__ is not None:
            sys.__stdout__.write(text)


async def _wait_for(value: Any) -> Any:
    return await value


def _call_variables(begin: Begin) -> dict[str, str]:
    """Variables for programs that the function starts; the execution id lets them be found and
    ended."""
    return {
        "ROTA_JOB_ID": begin.job_id,
        "ROTA_EXECUTION_ID": begin.execution_id,
        "ROTA_ATTEMPT": str(begin.attempt),
        "ROTA_FENCE": str(begin.fence),
        **group_variables(begin.array, begin.gang),
    }


def _flush() -> None:
    """Flushes all output before the call's end is reported, also through streams that the function
    replaced."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(ValueError, OSError, AttributeError):
            stream.flush()  # type: ignore[union-attr]  # suppressed
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
