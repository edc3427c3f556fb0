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
from rota.worker.pychild.calls import (
    CallResult,
    FunctionLookup,
    UsageMeter,
    call_raised,
    call_returned,
    context_of,
)
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
"""Text without a line feed is kept back up to this length."""

_current_output: ContextVar[CallOutput | None] = ContextVar("rota_voice", default=None)


class CallOutput:
    """Output of one call: its log, sent by lines, and its progress."""

    def __init__(self, number: int, writer: PipeWriter) -> None:
        self._number = number
        self._writer = writer
        self._buffer = ""
        self._lock = threading.Lock()

    def report_progress(self, fraction: float, message: str) -> None:
        self._writer.send(Progress(self._number, fraction, message))

    def write_log(self, text: str) -> None:
        """Adds to the log; whole lines are sent."""
        with self._lock:
            self._buffer += text
            if "\n" in text or len(self._buffer) > LINE_CHARS_MAX:
                self._send()

    def flush(self) -> None:
        """Sends also text without a line feed."""
        with self._lock:
            self._send()

    def _send(self) -> None:
        data = self._buffer.encode("utf-8", "replace")
        self._buffer = ""
        for start in range(0, len(data), OUTPUT_BYTES_MAX):
            self._writer.send(Output(self._number, data[start : start + OUTPUT_BYTES_MAX]))


class RoutedStream(io.TextIOBase):
    """Replaces stdout and stderr, so that what a call prints goes into that call's log.

    The context follows the code: through `await`, into tasks it creates and `asyncio.to_thread`.
    Text printed outside of any call, such as by a library's thread, goes to the real stream.
    """

    encoding = "utf-8"

    def __init__(self, real: io.TextIOBase) -> None:
        self._real = real

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        output = _current_output.get()
        if output is None:
            return self._real.write(text)
        output.write_log(text)
        return len(text)

    def flush(self) -> None:
        output = _current_output.get()
        if output is None:
            self._real.flush()
        else:
            output.flush()

    @property
    def buffer(self) -> RoutedByteStream:
        """Byte stream beneath, for code that writes bytes."""
        return RoutedByteStream(self)

    def fileno(self) -> int:
        """Real descriptor, for programs that are given this stream."""
        return self._real.fileno()


class RoutedByteStream(io.RawIOBase):
    def __init__(self, text: RoutedStream) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._text.write(content.decode("utf-8", "replace"))
        return len(content)

    def flush(self) -> None:
        self._text.flush()


class AsyncCalls:
    """Runs asynchronous calls side by side in this process."""

    def __init__(self, pipe: int, writer: PipeWriter, functions: FunctionLookup) -> None:
        self._pipe = pipe
        self._writer = writer
        self._functions = functions
        self._meter = UsageMeter()
        self._reader = FrameReader()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._contexts: dict[int, Context] = {}
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serves until the agent is gone or sends SIGTERM."""
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
        # Neither is there any more if the call ended before this message came.
        if number in self._contexts:
            self._contexts[number].cancel()
        if number in self._tasks:
            self._tasks[number].cancel()

    async def _call(self, begin: Begin) -> None:
        output = CallOutput(begin.number, self._writer)
        _current_output.set(output)
        asynchronous = True
        try:
            found, given = self._functions.find(begin)
            asynchronous = found.asynchronous
            context = self._contexts[begin.number] = context_of(begin, output)
            args, kwargs = found.arguments(given, context)
            with context.active():
                result = call_returned(await found.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  (the top of a call: it must end as a report)
            result = call_raised(error)
        self._contexts.pop(begin.number, None)
        self._send_done(result, begin.number, output, asynchronous=asynchronous)

    def _send_done(
        self, result: CallResult, number: int, output: CallOutput, *, asynchronous: bool
    ) -> None:
        output.flush()
        done = result.to_message(number, asynchronous=asynchronous)
        self._writer.send(msgspec.structs.replace(done, memory=self._meter.memory()))


def route_output() -> None:
    """Routes everything printed from now on to its call; must run before any user code is
    loaded."""
    for name in ("stdout", "stderr"):
        with contextlib.suppress(AttributeError):
            setattr(sys, name, RoutedStream(getattr(sys, name)))
