"""Pool of warm children: processes for Python functions, started on demand, kept, replaced.

`WarmChild` is the agent's handle on one of them, with the agent's ends of its pipes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

from rota.wire.jobs import FUNCTION_CAPABILITY
from rota.wire.queues import LimitsView
from rota.worker.clock import BootClock
from rota.worker.pychild.protocol import (
    Begin,
    Cancel,
    ChildHello,
    Done,
    FrameError,
    FrameReader,
    FromChild,
    Output,
    Progress,
    ToChild,
    frame,
)
from rota.worker.supervisor.client import Ended, Launch, ProcessTree, Supervisor

READ_BYTES = 256 * 1024
BURST_BYTES = 1024 * 1024
"""Read from one child before its pipe is paused."""
BURST_S = 0.02
"""Length of that pause: a function that floods its output is slowed down, not the agent."""

_from_child = msgspec.msgpack.Decoder(FromChild)


class MessagePipe:
    """Pipe to a child: sends at once what it takes, and the rest later."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.child_end, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self._rest: deque[memoryview] = deque()
        self._is_full = False
        self._closed = False

    def send(self, order: ToChild) -> None:
        """Sends a message; one to a child that is gone is dropped, since its end is reported
        anyway."""
        if self._closed:
            return
        self._rest.append(memoryview(frame(order)))
        if len(self._rest) == 1:
            self._write()

    def close(self) -> None:
        """Closes the pipe, at which the child exits."""
        if not self._closed:
            self._closed = True
            self._loop.remove_writer(self._pipe)
            os.close(self._pipe)

    def _write(self) -> None:
        try:
            while self._rest:
                data = self._rest[0]
                sent = os.write(self._pipe, data)
                if sent == len(data):
                    self._rest.popleft()
                else:
                    self._rest[0] = data[sent:]
        except BlockingIOError:
            self._is_full = True
            self._loop.add_writer(self._pipe, self._write)
        except BrokenPipeError:
            self.close()
        else:
            if self._is_full:
                self._is_full = False
                self._loop.remove_writer(self._pipe)


class ThrottledPipe:
    """Pipe from a child, read as it fills, and paused after a burst.

    `backlogged` says when what was read cannot be passed on yet.
    """

    def __init__(self, sink: Callable[[bytes], None], backlogged: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._backlogged = backlogged
        self._pipe, self.child_end = os.pipe()
        os.set_blocking(self._pipe, False)
        self._burst = 0
        self._resume_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._resume()

    def drain(self) -> None:
        """Reads all that is in the pipe now."""
        while not self._closed and self._take():
            pass

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
        if self._resume_timer is not None:
            self._resume_timer.cancel()

    def _resume(self) -> None:
        self._burst, self._resume_timer = 0, None
        if self._backlogged():
            self._resume_timer = self._loop.call_later(BURST_S, self._resume)
            return
        self._loop.add_reader(self._pipe, self._readable)

    def _readable(self) -> None:
        self._take()
        if not self._closed and (self._burst >= BURST_BYTES or self._backlogged()):
            self._loop.remove_reader(self._pipe)
            self._resume_timer = self._loop.call_later(BURST_S, self._resume)

    def _take(self) -> bool:
        """Returns whether there may be more."""
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._burst += len(data)
        self._sink(data)
        return True


class ChildMessageReader:
    """Splits bytes from a child into messages."""

    def __init__(self) -> None:
        self._frames = FrameReader()

    def messages(self, data: bytes) -> list[FromChild]:
        """Raises FrameError or MsgspecError for what no child sends."""
        return [_from_child.decode(body) for body in self._frames.feed(data)]


TO_CHILD_FD = 3
FROM_CHILD_FD = 4
"""Descriptor numbers at which a child finds its pipes."""
HOLD_SHARE = 0.05
"""The supervisor is not told of a renewal that extends what it knows by less than this share."""
RELEASE_S = 0.25
"""How long an idle child is held to its last call's lease: most often the next call comes soon."""

ChildKind: TypeAlias = Literal["exclusive", "shared"]
"""Whether calls run alone in a process, one after the other, or share it."""

_clock = BootClock()


class Caller(Protocol):
    """Receiver of what happens to a call."""

    @property
    def backlogged(self) -> bool:
        """Whether output read before is still to be sent."""
        ...

    def printed(self, data: bytes) -> None: ...

    def progressed(self, fraction: float, message: str) -> None: ...

    def done(self, done: Done) -> None: ...

    def broken(self, ended: Ended) -> None:
        """Called when the process ended in the middle of the call."""
        ...


class ChildStart(msgspec.Struct, frozen=True):
    """Settings that one child is started with."""

    kind: ChildKind
    app: str | None
    env: Mapping[str, str]
    limits: Mapping[str, int]
    grace_s: float


class WarmChild:
    """Process that waits for calls, and runs them."""

    def __init__(
        self, start: ChildStart, supervisor: Supervisor, gone: Callable[[WarmChild], None]
    ) -> None:
        self.start = start
        self.hello: asyncio.Future[ChildHello] = asyncio.get_running_loop().create_future()
        """Its first message."""
        self.calls = 0
        """Started so far."""
        self.memory = 0
        """Bytes of memory, by its last message."""
        self.memory_first = 0
        """The same after its first call, when its modules are loaded."""
        self.closing = False
        """It gets no more calls."""
        self.single = False
        """It is for one call only."""
        self.calls_reserved = 0
        """Calls that share it, started or about to."""
        self.ending = 0
        """Calls in it that were asked to end and have not."""
        self._gone = gone
        self._callers: dict[int, Caller] = {}
        self._deadlines: dict[int, float] = {}
        self._held_until: float | None = None
        """When the supervisor kills it, as last told; None: for no lease."""
        self._release: asyncio.TimerHandle | None = None
        self._reader = ChildMessageReader()
        self._to_child = MessagePipe()
        self._from_child = ThrottledPipe(self._received, self._is_backlogged)
        self._output = ThrottledPipe(self._printed, self._is_backlogged)
        self._tree = self._spawn(supervisor)
        self._tree.ended.add_done_callback(self._ended)

    def _spawn(self, supervisor: Supervisor) -> ProcessTree:
        start, output = self.start, self._output.child_end
        fds = {1: output, 2: output}
        fds |= {TO_CHILD_FD: self._to_child.child_end, FROM_CHILD_FD: self._from_child.child_end}
        args = [
            start.kind,
            str(TO_CHILD_FD),
            str(FROM_CHILD_FD),
            *([start.app] if start.app else []),
        ]
        launch = Launch(
            argv=[sys.executable, "-P", "-m", "rota.worker.pychild", *args],
            env=start.env,
            cwd=os.getcwd(),
            fds=fds,
            limits=start.limits,
            grace_s=start.grace_s,
        )
        try:
            return supervisor.spawn(launch)
        finally:
            for end in dict.fromkeys(fds.values()):
                os.close(end)

    @property
    def is_open(self) -> bool:
        """Whether another call may start in it; not if the supervisor is about to kill it."""
        held = self._held_until
        return not self.closing and (held is None or held - _clock.now() > RELEASE_S)

    def begin(self, order: Begin, caller: Caller, deadline: float | None) -> None:
        """Starts a call; if that call's lease runs out, the supervisor kills the process."""
        self.calls += 1
        if self._tree.ended.done():
            caller.broken(self._tree.ended.result())
            return
        if not self._callers:
            self._output.drain()  # output since the last call belongs to no call
        self._callers[order.number] = caller
        if deadline is not None:
            self.hold_until(order.number, deadline)
        self._to_child.send(order)

    def hold_until(self, number: int, deadline: float) -> None:
        """Sets the end of a call's lease; when the first of them ends, the supervisor kills the
        process."""
        if number in self._callers:
            self._deadlines[number] = deadline
            self._hold()

    def cancel(self, number: int) -> None:
        """Asks it to end one of several calls."""
        self._to_child.send(Cancel(number))

    def dismiss(self) -> None:
        """Ends it with the usual grace period, without waiting."""
        self.closing = True
        self._tree.stop()

    async def end(self, at_once: asyncio.Event) -> Ended:
        """Ends the process with all its calls: with grace, unless `at_once` is set."""
        self.closing = True
        ended = self._tree.ended
        if not at_once.is_set():
            self._tree.stop()
            immediate = asyncio.create_task(at_once.wait())
            await asyncio.wait((ended, immediate), return_when=asyncio.FIRST_COMPLETED)
            immediate.cancel()
        if not ended.done():
            self._tree.kill()
        return await ended

    def _received(self, data: bytes) -> None:
        try:
            for message in self._reader.messages(data):
                self._take_message(message)
        except (FrameError, msgspec.MsgspecError):
            # A function wrote into the child's pipe: no message on it can be trusted any more.
            self.closing = True
            self._tree.kill()

    def _take_message(self, message: FromChild) -> None:
        match message:
            case ChildHello():
                if not self.hello.done():
                    self.hello.set_result(message)
            case Done():
                self._call_ended(message)
            case Output(number=number, data=data):
                if number in self._callers:
                    self._callers[number].printed(data)
            case Progress(number=number, fraction=fraction, message=text):
                if number in self._callers:
                    self._callers[number].progressed(fraction, text)

    def _call_ended(self, done: Done) -> None:
        self.memory = done.memory
        self.memory_first = self.memory_first or done.memory
        self._output.drain()  # what the call printed is in the pipe by now
        caller = self._callers.pop(done.number, None)
        if self._deadlines.pop(done.number, None) is not None:
            self._hold()
        if caller is not None:
            caller.done(done)

    def _hold(self) -> None:
        """Tells the supervisor, which wakes up for every message, only what makes a difference.

        It may hold the child to less than the first lease to end, until that is renewed or until
        the next call. It never holds it to more.
        """
        deadline, held = min(self._deadlines.values(), default=None), self._held_until
        if deadline is None:
            self._let_go_soon()
        elif held is None or not 0 <= deadline - held <= (deadline - _clock.now()) * HOLD_SHARE:
            self._hold_until(deadline)

    def _hold_until(self, deadline: float | None) -> None:
        self._held_until = deadline
        self._tree.hold_until(deadline)

    def _let_go_soon(self) -> None:
        if self._held_until is None or self._release is not None:
            return
        if self._held_until - _clock.now() < 4 * RELEASE_S:
            self._hold_until(None)
        else:
            loop = asyncio.get_running_loop()
            self._release = loop.call_later(RELEASE_S, self._let_go)

    def _let_go(self) -> None:
        self._release = None
        if not self._deadlines:
            self._hold_until(None)

    def _printed(self, data: bytes) -> None:
        """Passes on output that no call's own stream took, if exactly one call runs.

        Between calls, or among several, nobody can say whose it is.
        """
        if len(self._callers) == 1:
            for caller in self._callers.values():
                caller.printed(data)

    def _is_backlogged(self) -> bool:
        return any(caller.backlogged for caller in self._callers.values())

    def _ended(self, future: asyncio.Future[Ended]) -> None:
        ended = future.result()
        self.closing = True
        self._from_child.drain()
        self._output.drain()
        for pipe in (self._to_child, self._from_child, self._output):
            pipe.close()
        if self._release is not None:
            self._release.cancel()
        callers, self._callers = self._callers, {}
        for caller in callers.values():
            caller.broken(ended)
        if not self.hello.done():
            self.hello.set_result(ChildHello([], _never_ready(ended)))
        self._gone(self)


def _never_ready(ended: Ended) -> str:
    if ended.problem is not None:
        return f"a Python process cannot be started: {ended.problem[2]}"
    return f"a Python process ended with code {ended.returncode} before it was ready"


CHILDREN_MAX = 64
"""Processes at once, whatever the concurrency: further calls wait for one of them."""
CALLS_MAX = 10_000
"""Calls in one process before it is replaced: slow leaks are given back."""
GROWTH_BYTES_MAX = 256 * 1024 * 1024
"""Memory that a process may hold beyond what it held after its first call, before it is
replaced."""
SHARED_CALLS_MAX = 256
"""Asynchronous calls that share one process: the most that is lost if one of them blocks it."""
IDLE_S = 30.0
"""How long a process beyond `idle_max` is kept: a burst must not start one for every call."""
READY_S = 60.0
"""For a new process to import the app."""
KINDS_REMEMBERED_MAX = 10_000
"""Functions of which it is remembered how they run."""
_DEFAULTS = LimitsView()
PLAIN_LIMITS: Mapping[str, int] = {
    "processes": _DEFAULTS.processes,
    "open_files": _DEFAULTS.open_files,
    "file_size": _DEFAULTS.file_size,
}
"""Limits of a process for calls that have none of their own."""


class AppError(Exception):
    """Raised when no Python function can be called here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """Settings of all children of this worker."""

    supervisor: Supervisor
    workspace: Path
    env: Mapping[str, str]
    grace_s: float
    app: str | None
    idle_max: int
    """Idle children that are kept for ever; those beyond it only for `idle_s`."""
    children_max: int = CHILDREN_MAX
    idle_s: float = IDLE_S


class PythonPool:
    """Pool of all warm children; decides which calls share a process.

    Plain functions share with nobody. Asynchronous ones share with each other, whatever the
    function, up to a number; while one of them is being ended, no other joins. If it does not end,
    the process is killed with all of them, and that function runs alone from then on. A plain call
    runs in a process with the call's own limits; shared processes have the default ones, whatever
    memory their calls request.
    """

    def __init__(self, settings: ChildSettings) -> None:
        self._settings = settings
        self._idle: list[WarmChild] = []
        """The one used last is used next, so that the others can time out."""
        self._leaving: dict[WarmChild, asyncio.TimerHandle] = {}
        self._shared: list[WarmChild] = []
        self._folders: dict[WarmChild, Path] = {}
        """Temporary folder of every child."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._kinds: dict[str, ChildKind] = {}
        self._opening = asyncio.Lock()

    @property
    def size(self) -> int:
        """Number of children, including those that start or end."""
        return len(self._folders)

    async def open(self) -> list[str]:
        """Imports the app in a first child; returns the names of its functions. Raises AppError."""
        if self._settings.app is None:
            return []
        child = await self._start("exclusive", PLAIN_LIMITS)
        functions = child.hello.result().functions
        self._kinds = {
            FUNCTION_CAPABILITY + name: "shared" for name, is_async in functions if is_async
        }
        self._keep_idle(child)
        return [name for name, _ in functions]

    async def close(self) -> None:
        """Ends all children; nothing of them is left."""
        at_once = asyncio.Event()
        at_once.set()
        await asyncio.gather(*(child.end(at_once) for child in list(self._folders)))

    def kind_of(self, function: str) -> ChildKind:
        """Returns how this function runs; an unknown one runs alone."""
        return self._kinds.get(function, "exclusive")

    def knows(self, function: str) -> bool:
        return function in self._kinds

    def forget(self, function: str) -> None:
        """Forgets how this function runs, so that it is found out again."""
        self._kinds.pop(function, None)

    def learn(self, function: str, kind: ChildKind) -> None:
        """Remembers how this function runs: it is asynchronous, or blocks others."""
        if len(self._kinds) >= KINDS_REMEMBERED_MAX:
            self._kinds.clear()
        self._kinds[function] = kind

    def take_now(self, kind: ChildKind, limits: Mapping[str, int]) -> WarmChild | None:
        """Returns a child for one more call, if one is idle."""
        if self._waiting:
            return None  # earlier calls wait for a child
        if kind == "exclusive":
            return self._idle_exclusive(limits)
        if self._opening.locked():
            return None
        child = self._open_shared()
        if child is not None:
            child.calls_reserved += 1
        return child

    async def take(self, kind: ChildKind, limits: Mapping[str, int]) -> WarmChild:
        """Returns a child for one more call, and waits for it. Raises AppError."""
        if kind == "exclusive":
            return await self._take_exclusive(limits)
        # One at a time: a burst of calls must not start a process each.
        async with self._opening:
            child = await self._take_shared()
            child.calls_reserved += 1
            return child

    async def take_own(self, limits: Mapping[str, int], env: Mapping[str, str]) -> WarmChild:
        """Starts a child with variables of its own, for one call only. Raises AppError."""
        while self.size >= self._settings.children_max:
            await self._wait_for_slot()
        return await self._start("exclusive", limits, env)

    def give_back(self, child: WarmChild) -> None:
        """Takes back a child after a call."""
        if child.start.kind == "shared":
            child.calls_reserved -= 1
            if child.calls_reserved == 0 and _is_old(child) and not child.closing:
                child.dismiss()
        elif child.single and not child.closing:
            child.dismiss()
        elif not child.closing:
            self._keep_idle(child)
        self._wake_next()

    def _idle_exclusive(self, limits: Mapping[str, int]) -> WarmChild | None:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index].start.limits == limits and self._idle[index].is_open:
                return self._take_idle(index)
        return None

    async def _take_exclusive(self, limits: Mapping[str, int]) -> WarmChild:
        while True:
            child = self._idle_exclusive(limits)
            if child is not None:
                return child
            if self.size < self._settings.children_max:
                return await self._start("exclusive", limits)
            await self._wait_for_slot()

    def _open_shared(self) -> WarmChild | None:
        return next((child for child in self._shared if _takes_one_more(child)), None)

    async def _take_shared(self) -> WarmChild:
        while True:
            child = self._open_shared()
            if child is not None:
                return child
            if self.size < self._settings.children_max:
                child = await self._start("shared", PLAIN_LIMITS)
                self._shared.append(child)
                return child
            await self._wait_for_slot()

    async def _start(
        self, kind: ChildKind, limits: Mapping[str, int], extra: Mapping[str, str] | None = None
    ) -> WarmChild:
        settings = self._settings
        folder = Path(tempfile.mkdtemp(prefix="child-", dir=settings.workspace))
        env = {**settings.env, **(extra or {}), "TMPDIR": str(folder)}
        start = ChildStart(kind, settings.app, env, limits, settings.grace_s)
        child = WarmChild(start, settings.supervisor, self._gone)
        child.single = extra is not None
        self._folders[child] = folder
        try:
            async with asyncio.timeout(READY_S):
                hello = await asyncio.shield(child.hello)
        except TimeoutError:
            child.dismiss()
            raise AppError(f"a Python process was not ready within {READY_S:g} s") from None
        except asyncio.CancelledError:
            child.dismiss()
            raise
        if hello.problem:
            raise AppError(hello.problem)
        return child

    async def _wait_for_slot(self) -> None:
        """Dismisses an idle child of another kind if there is one, and waits for a free place."""
        if self._idle:
            self._take_idle(0).dismiss()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake_next()  # pass the unused turn on
            raise

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _keep_idle(self, child: WarmChild) -> None:
        if _is_old(child):
            child.dismiss()
            return
        self._idle.append(child)
        if len(self._idle) > self._settings.idle_max:
            loop = asyncio.get_running_loop()
            self._leaving[child] = loop.call_later(self._settings.idle_s, self._retire, child)

    def _take_idle(self, index: int) -> WarmChild:
        child = self._idle.pop(index)
        leaving = self._leaving.pop(child, None)
        if leaving is not None:
            leaving.cancel()
        return child

    def _retire(self, child: WarmChild) -> None:
        if child in self._idle:
            self._take_idle(self._idle.index(child)).dismiss()

    def _gone(self, child: WarmChild) -> None:
        if child in self._idle:
            self._take_idle(self._idle.index(child))
        if child in self._shared:
            self._shared.remove(child)
        folder = self._folders.pop(child, None)
        if folder is not None:
            asyncio.get_running_loop().run_in_executor(None, _remove, folder)
        self._wake_next()


def _takes_one_more(child: WarmChild) -> bool:
    if not child.is_open or child.ending or _is_old(child):
        return False
    return child.calls_reserved < SHARED_CALLS_MAX


def _is_old(child: WarmChild) -> bool:
    return child.calls >= CALLS_MAX or child.memory - child.memory_first > GROWTH_BYTES_MAX


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
