"""Runs many asynchronous calls at once in one event loop, each with its own context and log."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import threading
from contextvars import ContextVar
from typing import Any

import msgspec

from rota.sdk.context import Context
from rota.worker.pychild.calls import CallResult, UsageMeter, call_raised, call_returned, context_of
from rota.worker.pychild.functions import FunctionLookup
from rota.worker.pychild.protocol import (
    OUTPUT_BYTES_MAX,
    Begin,
    Cancel,
    FrameReader,
    Output,
    PipeWriter,
    Progress,
    ToChild,
    decode_message,
)

READ_BYTES = 256 * 1024
LINE_CHARS_MAX = 8_192
"""Text without a line feed is held back up to this."""

_current_output: ContextVar[CallOutput | None] = ContextVar("rota_voice", default=None)


class CallOutput:
    """What one call says: lines for its log, and how far it is."""

    def __init__(self, number: int, mouth: PipeWriter) -> None:
        self._number = number
        self._writer = mouth
        self._held = ""
        self._lock = threading.Lock()

    def report_progress(self, fraction: float, message: str) -> None:
        """To the agent."""
        self._writer.send(Progress(self._number, fraction, message))

    def write_log(self, text: str) -> None:
        """For the log, by lines."""
        with self._lock:
            self._held += text
            if "\n" in text or len(self._held) > LINE_CHARS_MAX:
                self._send()

    def flush(self) -> None:
        """Also what has no line feed yet."""
        with self._lock:
            self._send()

    def _send(self) -> None:
        data = self._held.encode("utf-8", "replace")
        self._held = ""
        for start in range(0, len(data), OUTPUT_BYTES_MAX):
            self._writer.send(Output(self._number, data[start : start + OUTPUT_BYTES_MAX]))


class RoutedStream(io.TextIOBase):
    """Takes the place of stdout and stderr: what a call prints goes into the log of that call.

    The context follows the code: through `await`, into tasks it creates and `asyncio.to_thread`.
    What is printed by nobody's code, such as a thread of a library, goes to the real stream.
    """

    encoding = "utf-8"

    def __init__(self, real: io.TextIOBase) -> None:
        self._real = real

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def write(self, text: str) -> int:
        """Whole lines go out at once."""
        voice = _current_output.get()
        if voice is None:
            return self._real.write(text)
        voice.write_log(text)
        return len(text)

    def flush(self) -> None:
        """What is held back."""
        voice = _current_output.get()
        if voice is None:
            self._real.flush()
        else:
            voice.flush()

    @property
    def buffer(self) -> RoutedByteStream:
        """For those who write bytes."""
        return RoutedByteStream(self)

    def fileno(self) -> int:
        """For programs that are given this stream."""
        return self._real.fileno()


class RoutedByteStream(io.RawIOBase):
    """The same for bytes."""

    def __init__(self, text: RoutedStream) -> None:
        self._text = text

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def write(self, data: Any) -> int:
        """As text."""
        content = bytes(data)
        self._text.write(content.decode("utf-8", "replace"))
        return len(content)

    def flush(self) -> None:
        """What is held back."""
        self._text.flush()


class AsyncCalls:
    """The calls that run here now."""

    def __init__(self, pipe: int, mouth: PipeWriter, functions: FunctionLookup) -> None:
        self._pipe = pipe
        self._writer = mouth
        self._functions = functions
        self._meter = UsageMeter()
        self._reader = FrameReader()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._contexts: dict[int, Context] = {}
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Until the agent is gone, or says so by SIGTERM."""
        loop = asyncio.get_running_loop()
        os.set_blocking(self._pipe, False)
        loop.add_reader(self._pipe, self._readable)
        loop.add_signal_handler(signal.SIGTERM, self._ended.set)
        await self._ended.wait()
        loop.remove_reader(self._pipe)
        for number in list(self._tasks):
            self._cancel(number)
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _readable(self) -> None:
        data = os.read(self._pipe, READ_BYTES)
        if not data:
            self._ended.set()
        for body in self._reader.feed(data):
            self._handle(decode_message(body))

    def _handle(self, order: ToChild) -> None:
        if isinstance(order, Cancel):
            self._cancel(order.number)
            return
        task = asyncio.create_task(self._call(order))
        self._tasks[order.number] = task
        task.add_done_callback(lambda _: self._tasks.pop(order.number))

    def _cancel(self, number: int) -> None:
        # Neither is there any more if the call's end and this order crossed.
        if number in self._contexts:
            self._contexts[number].cancel()
        if number in self._tasks:
            self._tasks[number].cancel()

    async def _call(self, begin: Begin) -> None:
        voice = CallOutput(begin.number, self._writer)
        _current_output.set(voice)
        asynchronous = True
        try:
            found, given = self._functions.find(begin)
            asynchronous = found.asynchronous
            context = self._contexts[begin.number] = context_of(begin, voice)
            args, kwargs = found.arguments(given, context)
            with context.active():
                ending = call_returned(await found.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  (the top of a call: it must end as a report)
            ending = call_raised(error)
        self._contexts.pop(begin.number, None)
        self._send_done(ending, begin.number, voice, asynchronous=asynchronous)

    def _send_done(
        self, ending: CallResult, number: int, voice: CallOutput, *, asynchronous: bool
    ) -> None:
        voice.flush()
        done = ending.to_message(number, asynchronous=asynchronous)
        self._writer.send(msgspec.structs.replace(done, memory=self._meter.memory()))


def route_output() -> None:
    """From now on everything that is printed finds its call; before any user's code is loaded."""
    for name in ("stdout", "stderr"):
        with contextlib.suppress(AttributeError):
            setattr(sys, name, RoutedStream(getattr(sys, name)))
