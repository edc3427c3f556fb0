"""The warm children of an agent: started on demand, kept for the next call, replaced with age."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rota.wire.queues import LimitsView
from rota.wire.tasks import FUNCTION_CAPABILITY
from rota.worker.guard.client import Supervisor
from rota.worker.runners.python_child import ChildStart, Lane, WarmChild

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
