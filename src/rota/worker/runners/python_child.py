"""One warm child from the outside: a process that stays, and the calls that run in it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from rota.worker.child.frames import (
    Begin,
    Cancel,
    ChildHello,
    Done,
    FrameError,
    FromChild,
    Output,
    Progress,
)
from rota.worker.clock import BootClock
from rota.worker.guard.client import Ended, Launch, ProcessTree, Supervisor
from rota.worker.runners.python_pipes import ChildMessageReader, MessagePipe, ThrottledPipe

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
            argv=[sys.executable, "-P", "-m", "rota.worker.child", *words],
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
