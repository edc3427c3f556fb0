"""Runs one call at a time, on the main thread: plain functions, and whatever must be alone.

SIGTERM means: end the call. `Cancelled` is raised in the function wherever it is, once, so that its
own cleaning up is not interrupted; then the process leaves. Who does not leave is killed.
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
from rota.worker.child.calls import Ending, context_of, raised, returned
from rota.worker.child.frames import Begin, Done, Progress
from rota.worker.child.functions import Functions
from rota.worker.child.measure import Meter
from rota.worker.child.pipes import Ear, Mouth
from rota.worker.marks import NAMES, member_marks


class Solo:
    """The one call of this process, and the wait for the next."""

    def __init__(self, ear: Ear, mouth: Mouth, functions: Functions) -> None:
        self._ear = ear
        self._mouth = mouth
        self._functions = functions
        self._meter = Meter()
        self._pid = os.getpid()
        self._home = os.getcwd()
        self._idle = False
        self._inside = False
        """The user's code runs: `Cancelled` may be raised in it."""
        self._late = False
        """SIGTERM came in the middle of a frame: it is raised after that."""
        self._stopping = False
        self._context: Context | None = None

    def run(self) -> None:
        """Until the agent is gone, or says so by SIGTERM."""
        self._tidy()
        while not self._stopping:
            self._idle = True
            order = self._ear.listen()
            self._idle = False
            if not isinstance(order, Begin):
                return
            self._mouth.say(self._call(order))
            self._tidy()

    def _tidy(self) -> None:
        """What a call may have moved is where the next one expects it; all that can be done before
        that comes is done now."""
        signal.signal(signal.SIGTERM, self._told_to_stop)
        with contextlib.suppress(OSError):
            os.chdir(self._home)
        for name in NAMES:
            os.environ.pop(name, None)  # of the call before
        self._meter.start()

    def _call(self, begin: Begin) -> Done:
        os.environ.update(_marks(begin))
        self._context = None
        asynchronous = False
        try:
            self._inside = True  # from here on it may be ended: to import a module may take long
            found, given = self._functions.find(begin)
            asynchronous = found.asynchronous
            self._context = context_of(begin, _Voice(self, begin.number))
            args, kwargs = found.arguments(given, self._context)
            with self._context.active():
                value = found.function(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = asyncio.run(_wait_for(value))
            self._inside = False
            ending = returned(value)
        except BaseException as error:  # noqa: BLE001  (the top of a call: it must end as a report)
            self._inside = False
            ending = raised(error)
        if os.getpid() != self._pid:
            os._exit(0)  # the function forked, and this is the copy: nobody waits for its answer
        return self._told(ending, begin.number, asynchronous=asynchronous)

    def _told(self, ending: Ending, number: int, *, asynchronous: bool) -> Done:
        _flush()
        return msgspec.structs.replace(
            ending.done(number, asynchronous=asynchronous),
            cpu_s=self._meter.cpu_s(),
            memory_peak=self._meter.memory_peak(),
            memory=self._meter.memory(),
        )

    def _told_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        if self._idle:
            raise SystemExit
        if self._context is not None:
            self._context.cancel()
        if self._inside and self._mouth.main_speaks:
            self._late = True
        elif self._inside:
            self._inside = False
            raise Cancelled("the job is to stop")

    def progress(self, message: Progress) -> None:
        """The function says how far it is."""
        self._mouth.say(message)
        if self._late:
            self._late = self._inside = False
            raise Cancelled("the job is to stop")


class _Voice:
    """What a context of this process speaks through."""

    def __init__(self, solo: Solo, number: int) -> None:
        self._solo = solo
        self._number = number

    def report_progress(self, fraction: float, message: str) -> None:
        """To the agent."""
        self._solo.progress(Progress(self._number, fraction, message))

    def write_log(self, text: str) -> None:
        """All that is printed here is this call's."""
        if sys.__stdout__ is not None:
            sys.__stdout__.write(text)


async def _wait_for(value: Any) -> Any:
    return await value


def _marks(begin: Begin) -> dict[str, str]:
    """For programs that the function starts; by the second one they are found and ended."""
    return {
        "ROTA_JOB_ID": begin.job_id,
        "ROTA_EXECUTION_ID": begin.execution_id,
        "ROTA_ATTEMPT": str(begin.attempt),
        "ROTA_FENCE": str(begin.fence),
        **member_marks(begin.array, begin.gang),
    }


def _flush() -> None:
    """What the function printed is out before its end is told, also through streams of its own."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(ValueError, OSError, AttributeError):
            stream.flush()  # type: ignore[union-attr]  # suppressed
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
