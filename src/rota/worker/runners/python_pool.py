"""Pool of warm children: processes for Python functions, started on demand, kept, replaced.

`WarmChild` is one of them from the outside, with the agent's ends of its pipes.
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
"""Read from one child before it has to wait its turn."""
BURST_S = 0.02
"""How long that turn takes: a function that floods its output is slowed down, not the agent."""

_from_child = msgspec.msgpack.Decoder(FromChild)


class MessagePipe:
    """Sends at once what the pipe takes, and the rest when it takes more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.child_end, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self._rest: deque[memoryview] = deque()
        self._is_full = False
        self._closed = False

    def send(self, order: ToChild) -> None:
        """A child that is gone hears nothing; its end says so."""
        if self._closed:
            return
        self._rest.append(memoryview(frame(order)))
        if len(self._rest) == 1:
            self._write()

    def close(self) -> None:
        """The child sees it, and leaves."""
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
    """One pipe from a child, read as it fills; a flood has to wait its turn.

    `crowded` says when what was read cannot be passed on yet.
    """

    def __init__(self, sink: Callable[[bytes], None], crowded: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._crowded = crowded
        self._pipe, self.child_end = os.pipe()
        os.set_blocking(self._pipe, False)
        self._burst = 0
        self._turn: asyncio.TimerHandle | None = None
        self._closed = False
        self._next_turn()

    def drain(self) -> None:
        """Takes all that is in the pipe now."""
        while not self._closed and self._take():
            pass

    def close(self) -> None:
        """Reads no more."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
        if self._turn is not None:
            self._turn.cancel()

    def _next_turn(self) -> None:
        self._burst, self._turn = 0, None
        if self._crowded():
            self._turn = self._loop.call_later(BURST_S, self._next_turn)
            return
        self._loop.add_reader(self._pipe, self._readable)

    def _readable(self) -> None:
        self._take()
        if not self._closed and (self._burst >= BURST_BYTES or self._crowded()):
            self._loop.remove_reader(self._pipe)
            self._turn = self._loop.call_later(BURST_S, self._next_turn)

    def _take(self) -> bool:
        """Whether there may be more."""
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
    """Cuts what a child says into its words."""

    def __init__(self) -> None:
        self._frames = FrameReader()

    def messages(self, data: bytes) -> list[FromChild]:
        """Raises FrameError or MsgspecError if that is not our child speaking."""
        return [_from_child.decode(body) for body in self._frames.feed(data)]


TO_CHILD_FD = 3
FROM_CHILD_FD = 4
"""The numbers under which a child finds its pipes."""
HOLD_SHARE = 0.05
"""The guard need not hear of a lease of which it holds the child to all but this share."""
RELEASE_S = 0.25
"""How long an idle child is held to its last call's lease: most often the next one comes soon."""

Lane: TypeAlias = Literal["solo", "crowd"]
"""Alone in its process, or with others."""

_clock = BootClock()


class Caller(Protocol):
    """Who waits for a call."""

    @property
    def crowded(self) -> bool:
        """What was printed last is still to be passed on."""
        ...

    def printed(self, data: bytes) -> None:
        """The call printed something."""
        ...

    def progressed(self, fraction: float, message: str) -> None:
        """The call said how far it is."""
        ...

    def done(self, done: Done) -> None:
        """The call is over."""
        ...

    def broken(self, ended: Ended) -> None:
        """The process ended in the middle of the call."""
        ...


class ChildStart(msgspec.Struct, frozen=True):
    """What a child is started with."""

    lane: Lane
    app: str | None
    env: Mapping[str, str]
    limits: Mapping[str, int]
    grace_s: float


class WarmChild:
    """A process that waits for calls, and runs them."""

    def __init__(
        self, nest: ChildStart, guard: Supervisor, gone: Callable[[WarmChild], None]
    ) -> None:
        self.start = nest
        self.hello: asyncio.Future[ChildHello] = asyncio.get_running_loop().create_future()
        """What it said first."""
        self.calls = 0
        """Begun so far."""
        self.memory = 0
        """Bytes of memory, as it said last."""
        self.memory_first = 0
        """The same after its first call: its modules are loaded then."""
        self.closing = False
        """It gets no more calls."""
        self.single = False
        """It is for one call only."""
        self.calls_reserved = 0
        """Calls that are to run in it together, begun or about to."""
        self.ending = 0
        """Calls in it that were asked to end and have not."""
        self._gone = gone
        self._callers: dict[int, Caller] = {}
        self._deadlines: dict[int, float] = {}
        self._held_until: float | None = None
        """When the guard kills it, as it was told last; None: not for any lease."""
        self._release: asyncio.TimerHandle | None = None
        self._reader = ChildMessageReader()
        self._to_child = MessagePipe()
        self._from_child = ThrottledPipe(self._received, self._is_crowded)
        self._output = ThrottledPipe(self._printed, self._is_crowded)
        self._tree = self._spawn(guard)
        self._tree.ended.add_done_callback(self._ended)

    def _spawn(self, guard: Supervisor) -> ProcessTree:
        nest, output = self.start, self._output.child_end
        fds = {1: output, 2: output}
        fds |= {TO_CHILD_FD: self._to_child.child_end, FROM_CHILD_FD: self._from_child.child_end}
        words = [nest.lane, str(TO_CHILD_FD), str(FROM_CHILD_FD), *([nest.app] if nest.app else [])]
        launch = Launch(
            argv=[sys.executable, "-P", "-m", "rota.worker.pychild", *words],
            env=nest.env,
            cwd=os.getcwd(),
            fds=fds,
            limits=nest.limits,
            grace_s=nest.grace_s,
        )
        try:
            return guard.spawn(launch)
        finally:
            for end in dict.fromkeys(fds.values()):
                os.close(end)

    @property
    def is_open(self) -> bool:
        """Whether another call may begin in it: not in one that the guard is about to end."""
        held = self._held_until
        return not self.closing and (held is None or held - _clock.now() > RELEASE_S)

    def begin(self, order: Begin, caller: Caller, deadline: float | None) -> None:
        """Hands it a call; if the lease of that runs out, the guard kills the process."""
        self.calls += 1
        if self._tree.ended.done():
            caller.broken(self._tree.ended.result())
            return
        if not self._callers:
            self._output.drain()  # whatever came since the last call is nobody's
        self._callers[order.number] = caller
        if deadline is not None:
            self.hold_until(order.number, deadline)
        self._to_child.send(order)

    def hold_until(self, number: int, deadline: float) -> None:
        """A call's lease was given or renewed: when the first of them ends, the guard kills all."""
        if number in self._callers:
            self._deadlines[number] = deadline
            self._hold()

    def cancel(self, number: int) -> None:
        """Asks it to end one of many calls."""
        self._to_child.send(Cancel(number))

    def dismiss(self) -> None:
        """Its time is over; it is given the usual grace to leave."""
        self.closing = True
        self._tree.stop()

    async def end(self, at_once: asyncio.Event) -> Ended:
        """Ends the process with all that is in it: with grace, unless `at_once`."""
        self.closing = True
        ended = self._tree.ended
        if not at_once.is_set():
            self._tree.stop()
            hurry = asyncio.create_task(at_once.wait())
            await asyncio.wait((ended, hurry), return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
        if not ended.done():
            self._tree.kill()
        return await ended

    def _received(self, data: bytes) -> None:
        try:
            for word in self._reader.messages(data):
                self._take_message(word)
        except (FrameError, msgspec.MsgspecError):
            # A function got hold of our pipe and wrote into it: nothing it says can be trusted.
            self.closing = True
            self._tree.kill()

    def _take_message(self, word: FromChild) -> None:
        match word:
            case ChildHello():
                if not self.hello.done():
                    self.hello.set_result(word)
            case Done():
                self._call_ended(word)
            case Output(number=number, data=data):
                if number in self._callers:
                    self._callers[number].printed(data)
            case Progress(number=number, fraction=fraction, message=message):
                if number in self._callers:
                    self._callers[number].progressed(fraction, message)

    def _call_ended(self, done: Done) -> None:
        self.memory = done.memory
        self.memory_first = self.memory_first or done.memory
        self._output.drain()  # all that was printed before the word was said is in the pipe
        caller = self._callers.pop(done.number, None)
        if self._deadlines.pop(done.number, None) is not None:
            self._hold()
        if caller is not None:
            caller.done(done)

    def _hold(self) -> None:
        """Tells the guard, who wakes up for every word, only what makes a difference.

        It may hold the child to less than the first lease to end: until that is renewed, or until
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
        """Where many calls run, only what no call's code has printed comes this way.

        It is a call's if there is one only; between calls, or among many, it is nobody's.
        """
        if len(self._callers) == 1:
            for caller in self._callers.values():
                caller.printed(data)

    def _is_crowded(self) -> bool:
        return any(caller.crowded for caller in self._callers.values())

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
"""Processes at once, whatever the concurrency: the calls beyond wait for one of them."""
CALLS_MAX = 10_000
"""Calls in one process before it is replaced: what leaks slowly is given back."""
GROWTH_BYTES_MAX = 256 * 1024 * 1024
"""Memory that a process may hold beyond what it held after its first call, before the same."""
CROWD_CALLS_MAX = 256
"""Asynchronous calls that share one process: what is lost at most if one of them blocks it."""
IDLE_S = 30.0
"""How long a process beyond `idle_max` is kept: a burst must not start one for every call."""
READY_S = 60.0
"""For a new process to import the app."""
LANES_REMEMBERED_MAX = 10_000
"""Functions of which it is remembered how they run."""
_DEFAULTS = LimitsView()
PLAIN_LIMITS: Mapping[str, int] = {
    "processes": _DEFAULTS.processes,
    "open_files": _DEFAULTS.open_files,
    "file_size": _DEFAULTS.file_size,
}
"""What a process is held to of which nobody has said more."""


class AppError(Exception):
    """No Python function can be called here, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What all children are started with."""

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
    """All warm children.

    Who shares a process with whom: plain functions with nobody. Asynchronous ones with each other,
    whatever their function, up to a number; while one of them is being ended, no other joins. If it
    does not end, the process is killed with all of them, and that function runs alone from then on.
    A plain call runs in a process that is held to the call's own limits; those that share one are
    held to what everybody is, whatever memory they ask for.
    """

    def __init__(self, nursery: ChildSettings) -> None:
        self._settings = nursery
        self._idle: list[WarmChild] = []
        """The one used last is used next; the others may go."""
        self._leaving: dict[WarmChild, asyncio.TimerHandle] = {}
        self._crowds: list[WarmChild] = []
        self._folders: dict[WarmChild, Path] = {}
        """Of every child there is."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lanes: dict[str, Lane] = {}
        self._opening = asyncio.Lock()

    @property
    def size(self) -> int:
        """Children there are, also those that come or go."""
        return len(self._folders)

    async def open(self) -> list[str]:
        """Imports the app in a first child; the names of its functions. Raises AppError."""
        if self._settings.app is None:
            return []
        child = await self._start("solo", PLAIN_LIMITS)
        functions = child.hello.result().functions
        self._lanes = {FUNCTION_CAPABILITY + name: "crowd" for name, crowd in functions if crowd}
        self._keep_idle(child)
        return [name for name, _ in functions]

    async def close(self) -> None:
        """Ends them all; nothing of them is left."""
        at_once = asyncio.Event()
        at_once.set()
        await asyncio.gather(*(child.end(at_once) for child in list(self._folders)))

    def lane_of(self, function: str) -> Lane:
        """How this function runs; one that is not known yet runs alone."""
        return self._lanes.get(function, "solo")

    def knows(self, function: str) -> bool:
        """Whether it was found out how this function runs."""
        return function in self._lanes

    def forget(self, function: str) -> None:
        """It is to show anew how it runs."""
        self._lanes.pop(function, None)

    def learn(self, function: str, lane: Lane) -> None:
        """It turned out to be asynchronous, or to block others."""
        if len(self._lanes) >= LANES_REMEMBERED_MAX:
            self._lanes.clear()
        self._lanes[function] = lane

    def take_now(self, lane: Lane, limits: Mapping[str, int]) -> WarmChild | None:
        """A child for one more call, if one is waiting for it."""
        if self._waiting:
            return None  # others came first
        if lane == "solo":
            return self._idle_solo(limits)
        if self._opening.locked():
            return None
        child = self._open_crowd()
        if child is not None:
            child.calls_reserved += 1
        return child

    async def take(self, lane: Lane, limits: Mapping[str, int]) -> WarmChild:
        """A child for one more call. Raises AppError."""
        if lane == "solo":
            return await self._take_solo(limits)
        # One at a time: a burst of calls must not start a process each.
        async with self._opening:
            child = await self._take_crowd()
            child.calls_reserved += 1
            return child

    async def take_own(self, limits: Mapping[str, int], env: Mapping[str, str]) -> WarmChild:
        """A new child with variables of its own, for one call only. Raises AppError."""
        while self.size >= self._settings.children_max:
            await self._wait_for_slot()
        return await self._start("solo", limits, env)

    def give_back(self, child: WarmChild) -> None:
        """A call in it is over, one way or another."""
        if child.start.lane == "crowd":
            child.calls_reserved -= 1
            if child.calls_reserved == 0 and _is_old(child) and not child.closing:
                child.dismiss()
        elif child.single and not child.closing:
            child.dismiss()
        elif not child.closing:
            self._keep_idle(child)
        self._wake_next()

    def _idle_solo(self, limits: Mapping[str, int]) -> WarmChild | None:
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].start.limits == limits and self._idle[place].is_open:
                return self._take_idle(place)
        return None

    async def _take_solo(self, limits: Mapping[str, int]) -> WarmChild:
        while True:
            child = self._idle_solo(limits)
            if child is not None:
                return child
            if self.size < self._settings.children_max:
                return await self._start("solo", limits)
            await self._wait_for_slot()

    def _open_crowd(self) -> WarmChild | None:
        return next((child for child in self._crowds if _takes_one_more(child)), None)

    async def _take_crowd(self) -> WarmChild:
        while True:
            child = self._open_crowd()
            if child is not None:
                return child
            if self.size < self._settings.children_max:
                child = await self._start("crowd", PLAIN_LIMITS)
                self._crowds.append(child)
                return child
            await self._wait_for_slot()

    async def _start(
        self, lane: Lane, limits: Mapping[str, int], extra: Mapping[str, str] | None = None
    ) -> WarmChild:
        nursery = self._settings
        folder = Path(tempfile.mkdtemp(prefix="child-", dir=nursery.workspace))
        env = {**nursery.env, **(extra or {}), "TMPDIR": str(folder)}
        nest = ChildStart(lane, nursery.app, env, limits, nursery.grace_s)
        child = WarmChild(nest, nursery.supervisor, self._gone)
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
        """An idle child of another kind makes way; else the next that is free is waited for."""
        if self._idle:
            self._take_idle(0).dismiss()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake_next()  # this turn was ours and is not used: it is the next one's
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

    def _take_idle(self, place: int) -> WarmChild:
        child = self._idle.pop(place)
        leaving = self._leaving.pop(child, None)
        if leaving is not None:
            leaving.cancel()
        return child

    def _retire(self, child: WarmChild) -> None:
        """Nobody wanted it for a while."""
        if child in self._idle:
            self._take_idle(self._idle.index(child)).dismiss()

    def _gone(self, child: WarmChild) -> None:
        if child in self._idle:
            self._take_idle(self._idle.index(child))
        if child in self._crowds:
            self._crowds.remove(child)
        folder = self._folders.pop(child, None)
        if folder is not None:
            asyncio.get_running_loop().run_in_executor(None, _remove, folder)
        self._wake_next()


def _takes_one_more(child: WarmChild) -> bool:
    if not child.is_open or child.ending or _is_old(child):
        return False
    return child.calls_reserved < CROWD_CALLS_MAX


def _is_old(child: WarmChild) -> bool:
    return child.calls >= CALLS_MAX or child.memory - child.memory_first > GROWTH_BYTES_MAX


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
