"""Runs one call inside a warm child: its function, context, result or error as JSON, and usage."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import re
import resource
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from rota.sdk.app import App, JobFunction
from rota.sdk.arguments import ArgumentError, FunctionSignature, Payload, document, type_name
from rota.sdk.clock import SystemClock
from rota.sdk.context import Context, ContextInfo, Transport
from rota.sdk.job_exceptions import Cancelled, Fail, Retry
from rota.wire.formats import parse_duration
from rota.wire.jobs import PythonCall
from rota.wire.limits import RESULT_BYTES_MAX
from rota.worker.pychild.protocol import Begin, Done

FOUND_MAX = 10_000
"""Functions cached: more than any code base calls as jobs."""

_python_call = msgspec.json.Decoder(PythonCall)


class FunctionNotFoundError(Exception):
    """Raised when this worker has no such function."""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_call = msgspec.json.Decoder(_Call)


class FoundFunction:
    """Function that is ready to be called."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.function = function
        self.asynchronous = inspect.iscoroutinefunction(function)
        try:
            self._signature: FunctionSignature | None = FunctionSignature(name, function)
        except ValueError:
            self._signature = (
                None  # written in C, without a signature: it gets the arguments undecoded
            )

    def arguments(self, given: bytes, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Decodes the arguments as the function's annotations require."""
        if self._signature is not None:
            return self._signature.decode(given, context)
        call = _call.decode(given)
        return call.args, call.kwargs


def load_entry(entry: str) -> Any:
    """Imports what `package.module:name` names; raises FunctionNotFoundError, or what the import
    raises."""
    module_name, _, path = entry.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name != missing and not module_name.startswith(missing + "."):
            raise  # the module exists, but one that it imports does not
        raise FunctionNotFoundError(f"there is no module {missing} on this worker") from None
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise FunctionNotFoundError(f"module {module_name} has no {path}") from None
    return found


class FunctionLookup:
    """Finds functions of the app and of importable modules, and caches them."""

    def __init__(self, app: App | None) -> None:
        self._app = app
        self._found: dict[str, FoundFunction] = {}

    def find(self, begin: Begin) -> tuple[FoundFunction, bytes]:
        """Returns the function and its arguments as JSON; raises whatever prevents it from being
        found."""
        if begin.task == b"null":
            return self._registered(begin.name), canonical_payload(begin.payload)
        task = _python_call.decode(begin.task)
        given = msgspec.json.encode(Payload(task.args, task.kwargs))
        return self._imported(task.entry), given

    def _registered(self, name: str) -> FoundFunction:
        found = self._found.get(name)
        if found is None:
            if self._app is None or name not in self._app.functions:
                raise FunctionNotFoundError(f"no function {name} is registered on this worker")
            found = self._remember(name, self._app.functions[name].function)
        return found

    def _imported(self, entry: str) -> FoundFunction:
        found = self._found.get(entry)
        if found is None:
            named = load_entry(entry)
            function = named.function if isinstance(named, JobFunction) else named
            if not callable(function):
                raise FunctionNotFoundError(
                    f"{entry} is not a function but a {type(function).__name__}"
                )
            found = self._remember(entry, function)
        return found

    def _remember(self, name: str, function: Callable[..., Any]) -> FoundFunction:
        if len(self._found) >= FOUND_MAX:
            self._found.clear()
        found = self._found[name] = FoundFunction(name, function)
        return found


def canonical_payload(payload: bytes) -> bytes:
    """Converts a payload in any of its forms to `{"args": […], "kwargs": {…}}`."""
    try:
        _call.decode(payload)
    except msgspec.ValidationError:
        given = msgspec.json.decode(payload)
    else:
        return payload
    if given is None:
        return b"{}"
    return msgspec.json.encode({"args": given} if isinstance(given, list) else {"kwargs": given})


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PEAK = re.compile(rb"VmHWM:\s+(\d+) kB")


class UsageMeter:
    """Measures this process's CPU time and memory; 0 where the kernel does not tell."""

    def __init__(self) -> None:
        self._status = _open("/proc/self/status", os.O_RDONLY)
        self._statm = _open("/proc/self/statm", os.O_RDONLY)
        self._reset_peak = _open("/proc/self/clear_refs", os.O_WRONLY)
        self._cpu_s = 0.0

    def start(self) -> None:
        """Starts measuring a call."""
        if self._reset_peak is not None:
            # Writing 5 has the kernel reset the peak to the present size.
            with contextlib.suppress(OSError):
                os.pwrite(self._reset_peak, b"5", 0)
        self._cpu_s = _cpu_s()

    def cpu_s(self) -> float:
        """CPU seconds since the start, including children that were waited for."""
        return round(_cpu_s() - self._cpu_s, 6)

    def memory_peak(self) -> int:
        """Highest memory since the start, in bytes."""
        if self._status is None:
            return 0
        found = _PEAK.search(os.pread(self._status, 4096, 0))
        return int(found.group(1)) * 1024 if found else 0

    def memory(self) -> int:
        """Memory held now, in bytes."""
        if self._statm is None:
            return 0
        return int(os.pread(self._statm, 256, 0).split()[1]) * PAGE_BYTES


def _open(path: str, flags: int) -> int | None:
    try:
        return os.open(path, flags)
    except OSError:
        return None


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


FRAMES_MAX = 40
"""Innermost frames of a traceback that are kept."""
TRACEBACK_CHARS_MAX = 16_000
MESSAGE_CHARS_MAX = 4_000
_OWN_FOLDER = str(Path(__file__).parent)


class ResultError(Exception):
    """Raised when a returned value cannot be kept as a result."""


def result_document(value: Any) -> bytes:
    """Encodes a returned value as JSON; raises ResultError."""
    if value is None:
        return b"null"
    try:
        written = document(f"the function's result, a {type_name(type(value))},", value)
    except ArgumentError as error:
        raise ResultError(str(error)) from None
    if len(written) > RESULT_BYTES_MAX:
        raise ResultError(
            f"the function's result is {len(written)} bytes as JSON, {RESULT_BYTES_MAX} are kept: "
            "store large output elsewhere and return its name"
        )
    return written


def error_document(error: BaseException) -> bytes:
    """Encodes an exception: type, message and traceback, without the values of any variable."""
    fields: dict[str, Any] = {
        "type": type_name(type(error)),
        "message": _message_of(error),
        "traceback": error_text(error),
    }
    if isinstance(error, Retry) and error.delay is not None:
        fields["delay"] = error.delay
    return msgspec.json.encode(fields)


def plain_error(kind: str, message: str) -> bytes:
    """Encodes an error that has no traceback worth reading."""
    return msgspec.json.encode({"type": kind, "message": message[:MESSAGE_CHARS_MAX]})


def delay_ms(error: BaseException) -> int | None:
    """Delay that the function requested before its retry; an invalid one counts as none."""
    if not isinstance(error, Retry) or error.delay is None:
        return None
    try:
        return parse_duration(error.delay).ms
    except ValueError:
        return None


def _message_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the function called sys.exit({error.code!r})"[:MESSAGE_CHARS_MAX]
    try:
        text = str(error)
    except Exception as problem:  # noqa: BLE001  (a user's own __str__ may do anything)
        text = f"its message cannot be read: {type(problem).__name__}"
    return _valid(text)[:MESSAGE_CHARS_MAX]


def error_text(error: BaseException) -> str:
    """Formats an exception with its traceback."""
    try:
        lines = traceback.format_exception(
            type(error), error, _without_own_frames(error.__traceback__), limit=-FRAMES_MAX
        )
    except Exception as problem:  # noqa: BLE001  (as above: it calls methods of the user's classes)
        return f"the traceback cannot be written: {type(problem).__name__}"
    text = _valid("".join(lines))
    if len(text) <= TRACEBACK_CHARS_MAX:
        return text
    return f"[{len(text) - TRACEBACK_CHARS_MAX} characters left out]\n{text[-TRACEBACK_CHARS_MAX:]}"


def _without_own_frames(place: TracebackType | None) -> TracebackType | None:
    """Skips this package's frames at the start of a traceback: they say nothing to the user."""
    start = place
    while start is not None and start.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        start = start.tb_next
    return start if start is not None else place


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


_clock = SystemClock()
_json = msgspec.json.Decoder()


def context_of(begin: Begin, transport: Transport) -> Context:
    """Makes the context that the function is given."""
    deadline = None
    if begin.timeout_s is not None:
        now = datetime.fromtimestamp(_clock.now_ms() / 1000, UTC)
        deadline = now + timedelta(seconds=begin.timeout_s)
    info = ContextInfo(
        job_id=begin.job_id,
        execution_id=begin.execution_id,
        attempt=begin.attempt,
        fence=begin.fence,
        name=begin.name,
        queue=begin.queue,
        payload=_json.decode(begin.payload),
        deadline=deadline,
        scheduled_at=datetime.fromisoformat(begin.scheduled_at),
        traceparent=begin.traceparent,
        array=begin.array,
        gang=begin.gang,
    )
    return Context(info, transport)


class CallResult(msgspec.Struct):
    """Result of a call: its value or its error, as JSON."""

    succeeded: bool
    document: bytes
    retryable: bool = True
    delay_ms: int | None = None

    def to_message(self, number: int, *, asynchronous: bool) -> Done:
        """Makes the message for the agent; the caller fills in the usage."""
        return Done(
            number, self.succeeded, self.document, self.retryable, asynchronous, 0.0, 0, 0,
            self.delay_ms,
        )  # fmt: skip


def call_returned(value: Any) -> CallResult:
    """Encodes what the function returned. A retry would not help if that cannot be kept."""
    try:
        return CallResult(succeeded=True, document=result_document(value))
    except ResultError as error:
        document = plain_error("ResultError", str(error))
        return CallResult(succeeded=False, document=document, retryable=False)


def call_raised(error: BaseException) -> CallResult:
    """Encodes what the function raised, or why it was not found."""
    if isinstance(error, FunctionNotFoundError):
        return CallResult(succeeded=False, document=plain_error("NotFoundError", str(error)))
    if isinstance(error, Cancelled | asyncio.CancelledError):
        return CallResult(succeeded=False, document=plain_error("Cancelled", "cancelled"))
    return CallResult(
        succeeded=False,
        document=error_document(error),
        retryable=not isinstance(error, Fail),
        delay_ms=delay_ms(error),
    )
