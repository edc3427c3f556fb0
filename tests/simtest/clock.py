"""Virtual time: an event loop that jumps instead of waiting, and machines with their clocks.

Every callback belongs to a machine, by its context. A machine's clock has its own rate, so its ten
seconds are a little more or less of true time; a frozen machine runs nothing until it thaws. There
are no threads: a call for one runs in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

from rota.core.model import Instant, Millis

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_MS = 1_800_000_000_000
"""Wall time at the beginning of a run, in the year 2027."""
_MIX = 0x9E3779B97F4A7C15
"""Odd multiplier that mixes consecutive numbers."""
_MASK = (1 << 64) - 1
_EPSILON_S = 1e-9
_SPINS_MAX = 200_000
"""Rounds without time passing that only a busy loop makes."""
_PRUNE = 512
"""Tasks of a machine after which finished ones are forgotten."""


class StalledError(Exception):
    """Time does not pass any more: all tasks wait for each other, or one is a busy loop."""


class Machine:
    """Simulated machine: has its own clock, can freeze, and can die."""

    def __init__(self, name: str, rate: float = 1.0) -> None:
        self.name = name
        self.rate = rate
        self.set_by_ms = 0
        """By how much its wall clock has been set."""
        self.frozen = False
        self.alive = True
        self.boots = 0
        self.steps = 0
        """Number of its interactions with the outside."""
        self.crash_at: tuple[int, Callable[[], None]] | None = None
        """Step at which it dies, and the function that kills it."""
        self.backlog: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(MACHINE.set, self)
        self.context.run(BOOT.set, 0)
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine on this machine."""
        return asyncio.get_running_loop().create_task(work, context=self.context.copy())

    def boot(self) -> None:
        """Starts it once more; tasks of earlier boots are dead."""
        self.alive = True
        self.boots += 1
        self.context.run(BOOT.set, self.boots)

    def own(self, task: asyncio.Task[Any]) -> None:
        """Registers a task that ends when the machine does."""
        if len(self._tasks) > _PRUNE:
            self._tasks = {task: None for task in self._tasks if not task.done()}
        self._tasks[task] = None

    def broken(self) -> Iterator[Exception]:
        """Yields errors of its tasks that were never retrieved.

        asyncio reports those only when the task is collected, and here tasks are kept.
        """
        for task in self._tasks:
            never_retrieved = task.done() and task._log_traceback
            error = task.exception() if never_retrieved else None
            if isinstance(error, Exception):
                yield error

    def step(self) -> None:
        """Counts an interaction with the outside, at which it can die."""
        self.steps += 1
        if self.crash_at is not None and self.steps >= self.crash_at[0]:
            _, die = self.crash_at
            self.crash_at = None
            die()
        if not self.alive or BOOT.get(self.boots) != self.boots:
            raise asyncio.CancelledError(f"{self.name} is dead")

    def end_tasks(self) -> None:
        """Cancels its tasks; they must not interact with the outside while they unwind."""
        for task in list(self._tasks):
            task.cancel()


MACHINE: ContextVar[Machine] = ContextVar("machine")
BOOT: ContextVar[int] = ContextVar("boot")
"""The boot of the machine to which a task belongs."""
SIMULATION = Machine("nowhere")
"""Machine of the simulation itself: it never freezes, and its clock shows true time."""


class MachineClock:
    """Clocks of a machine, with the methods that engine, worker and SDK expect."""

    def __init__(self, machine: Machine, loop: VirtualLoop) -> None:
        self._machine = machine
        self._loop = loop

    def now(self) -> Instant:
        """Wall time in milliseconds; a fault may set it."""
        return EPOCH_MS + self.steady() + self._machine.set_by_ms

    def now_ms(self) -> int:
        return self.now()

    def steady(self) -> Millis:
        """Milliseconds of a monotonic clock."""
        return int(self.fine_s() * 1000)

    def fine_s(self) -> float:
        """Seconds of a monotonic clock, for measuring short times."""
        return self._loop.true_s * self._machine.rate

    def elapsed_s(self) -> float:
        return self.fine_s()

    def sleep(self, seconds: float) -> None:
        """Refuses: nothing may block here."""
        raise NotImplementedError("a simulated machine never blocks")


class SecondsClock:
    """Worker's clock of a machine, in seconds."""

    def __init__(self, clock: MachineClock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.fine_s()


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop in which time passes only when no task can run, and then at once."""

    def __init__(self, salt: int = 0) -> None:
        super().__init__()
        self.true_s = 0.0
        self._salt = salt
        self._timers: list[tuple[float, int, int, asyncio.Handle]] = []
        self._numbers = count()
        self._frozen = 0
        self._spins = 0
        self._queue: list[asyncio.Handle] = []
        self.set_task_factory(_make_task)  # type: ignore[arg-type]  # its stub knows no context

    def time(self) -> float:
        """Time by the calling machine's clock."""
        return self.true_s * MACHINE.get(SIMULATION).rate

    # Timers

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Queues a callback."""
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedules a callback by the clock of the machine in its context."""
        machine = MACHINE.get(SIMULATION) if context is None else context.get(MACHINE, SIMULATION)
        # A nanosecond later, so that the machine's own clock has reached the time.
        return self.call_true(when / machine.rate + _EPSILON_S, callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedules a callback after a delay, by that clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_true(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedules a callback at a moment of the true time."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        number = next(self._numbers)
        # The seed decides the order of callbacks at one moment.
        heappush(self._timers, (when, (number ^ self._salt) * _MIX & _MASK, number, timer))
        return timer

    def after(self, delay: float, machine: Machine, callback: Callable[[], object]) -> None:
        """Schedules a callback on a machine after a delay in true time."""
        self.call_true(self.true_s + delay, callback, context=machine.context)

    # Freezing

    def freeze(self, machine: Machine) -> None:
        """Freezes a machine: its callbacks wait."""
        if not machine.frozen:
            machine.frozen = True
            self._frozen += 1

    def thaw(self, machine: Machine) -> None:
        """Thaws a machine: its waiting callbacks run."""
        if machine.frozen:
            machine.frozen = False
            self._frozen -= 1
            self._queue.extend(machine.backlog)
            machine.backlog.clear()

    # Running

    def _run_once(self) -> None:
        if not self._queue:
            self._jump()
        elif self._spins > _SPINS_MAX:
            self._spins = 0
            raise StalledError(f"busy at {self.true_s:.3f} s: {self._queue[0]!r}"[:500])
        self._spins += 1
        queue, self._queue = self._queue, []
        for handle in queue:
            if handle.cancelled():
                continue
            if self._frozen:
                machine = _owner(handle)
                if machine.frozen:
                    machine.backlog.append(handle)
                    continue
            handle._run()

    def _jump(self) -> None:
        timers = self._timers
        while timers:
            when, _, _, timer = heappop(timers)
            if not timer.cancelled():
                if when > self.true_s:
                    self.true_s, self._spins = when, 0
                self._queue.append(timer)
                return
        raise StalledError("no timer is left, and all tasks wait")

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs the function at once: threads would make the order differ each time."""
        future: asyncio.Future[T] = self.create_future()
        future.set_result(func(*args))
        return future

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leaves the timer in the heap until its time."""

    def _process_events(self, event_list: object) -> None:
        """Does nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Does nothing: the loop never sleeps."""


def _owner(handle: asyncio.Handle) -> Machine:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(MACHINE, SIMULATION)


def _make_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    *,
    context: Context | None = None,
    **given: Any,  # a name and more, from Python 3.13.3 on
) -> asyncio.Task[T]:
    task = asyncio.Task(work, loop=loop, context=context, **given)
    machine = MACHINE.get(SIMULATION) if context is None else context.get(MACHINE, SIMULATION)
    machine.own(task)
    return task
