"""Agent's handle on its supervisor: starts that process, hands it jobs, learns how they ended.

The kernel kills all jobs of a supervisor that dies. Their callers are told, and a new supervisor
runs the next jobs. Only the agent imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from rota.worker.supervisor.messages import (
    SUPERVISOR_MESSAGE_BYTES_MAX,
    Bounds,
    Channel,
    pack,
    pack_job,
)

PING_S = 2.0
"""Time between two checks that the supervisor responds."""
SILENCE_S_MAX = 30.0
"""A supervisor that does not respond for this long is frozen; it is killed, and its jobs with
it."""
RESTART_S = 1.0
"""Pause before another attempt, where the machine cannot start a supervisor now."""
DISMISS_S = 5.0
"""For the supervisor to remove its cgroups when the agent leaves."""
ROTA = Path(__file__).parents[2]

BOOT = """
import sys, types
sys.modules["rota"] = package = types.ModuleType("rota")
package.__path__ = [sys.argv[1]]
from rota.worker.supervisor.supervisor_loop import main
main(*sys.argv[2:])
"""
"""Runs without site-packages and without rota/__init__.py, which would import the whole SDK."""

Isolation: TypeAlias = Literal["auto", "subreaper"]
EndCause: TypeAlias = Literal[
    "exit", "stop", "kill", "timeout", "lease", "memory", "processes", "shim", "supervisor"
]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Program to start: where, with what, and held to which limits."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    fds: Mapping[int, int]
    """Descriptor number in the program -> descriptor here, which stays open."""
    limits: Mapping[str, int] = {}
    """Keys: processes, open_files, file_size, memory; what is left out is not limited."""
    timeout_s: float | None = None
    grace_s: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    after: Sequence[str] = ()
    """Cleanup command, run when nothing of the job is left, however it ended and even if the agent
    is gone by then: it ends what the program has others run for it. The end is reported after
    this."""
    may_gain: bool = False
    """Whether programs with the set-user-id bit work in it."""


class SentSignal(msgspec.Struct, frozen=True, array_like=True):
    """Signal sent to a job: which, when after its start, to how many of its processes."""

    signal: str
    after_s: float
    processes: int


class Ended(msgspec.Struct, frozen=True, tag_field="say", tag="ended"):
    """Message of the supervisor: how a job ended; nothing of it is left."""

    key: int
    cause: EndCause
    status: int | None = None
    """As wait() returns it."""
    problem: tuple[str, int | None, str] | None = None
    """Why it could not be started: which of (cwd, program, worker) was wrong, errno, text."""
    signals: tuple[SentSignal, ...] = ()
    used: int = 0
    """Bytes of memory, or processes, where it was ended for exceeding a limit."""
    cpu: float = 0.0
    peak: int = 0
    forks_refused: int = 0
    after: int | None = None
    """How the cleanup command ended, as wait() returns it; None: there was none, or it broke."""

    @property
    def returncode(self) -> int | None:
        """Exit code; below 0: the signal that killed it."""
        return None if self.status is None else os.waitstatus_to_exitcode(self.status)

    @property
    def usage(self) -> dict[str, Any]:
        """CPU seconds and highest memory, as the execution's record has them."""
        return {"cpu_seconds": self.cpu, "memory_peak": self.peak}


class SupervisorHello(msgspec.Struct, frozen=True, tag_field="say", tag="hello"):
    """Message of the supervisor: what it can do here."""

    isolation: Literal["namespace", "subreaper"]
    why: str
    """Why there are no namespaces, where there are none."""
    memory: str
    processes: str


class Pong(msgspec.Struct, frozen=True, tag_field="say", tag="pong"):
    """Message of the supervisor: it responds."""

    number: int


SupervisorMessage: TypeAlias = Ended | SupervisorHello | Pong
_decoder: msgspec.json.Decoder[SupervisorMessage] = msgspec.json.Decoder(SupervisorMessage)


class ProcessTree:
    """Process tree of one job, run by the supervisor."""

    def __init__(self, supervisor: Supervisor, key: int) -> None:
        self._supervisor = supervisor
        self._key = key
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Sends SIGTERM to all of it; SIGKILL follows after the launch's grace period."""
        self._supervisor.send_command({"do": "stop", "key": self._key})

    def kill(self) -> None:
        """Sends SIGKILL to all of it."""
        self._supervisor.send_command({"do": "kill", "key": self._key})

    def hold_until(self, deadline: float | None) -> None:
        """Has the supervisor kill it at `deadline` unless that is put off, even if the agent is
        frozen."""
        self._supervisor.send_command({"do": "hold", "key": self._key, "deadline": deadline})


class Supervisor:
    """Agent's handle on the supervisor process; it replaces one that died."""

    def __init__(
        self,
        isolation: Isolation = "auto",
        *,
        groups: bool = True,
        ping_s: float = PING_S,
        silence_s_max: float = SILENCE_S_MAX,
    ) -> None:
        self._ping_s = ping_s
        self._silence_s_max = silence_s_max
        self._options = (isolation, "groups" if groups else "none")
        self._loop = asyncio.get_running_loop()
        self._trees: dict[int, ProcessTree] = {}
        self._last_key = 0
        self._pings = self._pongs = 0
        self._silent_s = 0.0
        self._leaving = False
        self.deaths = 0
        self.hello: asyncio.Future[SupervisorHello] = self._loop.create_future()
        """What the present supervisor process can do."""
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def spawn(self, launch: Launch, deadline: float | None = None) -> ProcessTree:
        """Starts a program, to be killed at `deadline` (CLOCK_BOOTTIME) unless that is put off.

        Does not wait: `ProcessTree.ended` tells whether it could be started. Raises ValueError for
        text that no program can be given.
        """
        self._last_key += 1
        carried = list(dict.fromkeys(launch.fds.values()))  # one with two numbers is sent once
        fds = [(number, carried.index(fd)) for number, fd in launch.fds.items()]
        job = {
            "do": "spawn",
            "key": self._last_key,
            "carried": len(carried),
            "bounds": tuple(Bounds(**launch.limits, may_gain=launch.may_gain)),
            "timeout": launch.timeout_s,
            "grace": launch.grace_s,
            "deadline": deadline,
            "job": pack_job(launch.argv, launch.env, launch.cwd, fds),
            "after": pack_job(launch.after, launch.env, "/", ()) if launch.after else None,
        }
        tree = self._trees[self._last_key] = ProcessTree(self, self._last_key)
        self._send(pack(job), carried)
        return tree

    def send_command(self, message: dict[str, Any]) -> None:
        """Sends a command to the supervisor process."""
        self._send(pack(message))

    async def watch(self) -> None:
        """Kills a supervisor process that does not respond; runs until it is cancelled."""
        while True:
            await asyncio.sleep(self._ping_s)
            self._silent_s = self._silent_s + self._ping_s if self._pongs < self._pings else 0.0
            if self._silent_s >= self._silence_s_max:
                self._process.kill()
            self._pings += 1
            self.send_command({"do": "ping", "number": self._pings})

    async def shut_down(self) -> None:
        """Ends the supervisor process as the agent leaves; what still runs is killed."""
        self._leaving = True
        self._close_channel()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, DISMISS_S)
        if self._process.returncode is None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._end_all("the worker leaves")

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOOT, str(ROTA), *self._options],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)  # noqa: FBT003  (it takes no names)
        self._channel = Channel(ours, bytes_max=SUPERVISOR_MESSAGE_BYTES_MAX)
        self._pings = self._pongs = 0
        self._silent_s = 0.0
        self._loop.add_reader(ours, self._readable)

    def _send(self, body: bytes, fds: Sequence[int] = ()) -> None:
        if self._channel.sock.fileno() < 0:
            self._loop.call_soon(self._end_all, "it is not running")
        elif not self._channel.send(body, fds):
            self._loop.add_writer(self._channel.sock, self._writable)

    def _writable(self) -> None:
        if self._channel.flush():
            self._loop.remove_writer(self._channel.sock)

    def _readable(self) -> None:
        messages: list[SupervisorMessage] | None = None
        # An unreadable message cannot be the supervisor's own, so it counts as dead.
        with contextlib.suppress(ValueError, msgspec.MsgspecError):
            received = self._channel.receive()
            messages = None if received is None else [_decoder.decode(one) for one in received]
        if messages is None:
            self._died()
            return
        for message in messages:
            self._take_message(message)

    def _take_message(self, message: SupervisorMessage) -> None:
        match message:
            case Ended():
                tree = self._trees.pop(message.key, None)
                if tree is not None and not tree.ended.done():
                    tree.ended.set_result(message)
            case Pong():
                self._pongs = message.number
            case SupervisorHello():
                if not self.hello.done():
                    self.hello.set_result(message)
            case _:
                assert_never(message)

    def _died(self) -> None:
        """Handles the end of the supervisor's socket: it is gone, and every shim with it."""
        self._close_channel()
        self._process.kill()
        code = self._process.wait()
        self.deaths += 1
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if self.hello.done():
            self.hello = self._loop.create_future()
            self._restart()
        elif self.deaths == 1:
            # It has never worked, so another one would not either.
            self.hello.set_exception(SupervisorError(f"the supervisor process cannot start: {how}"))
        else:
            self._loop.call_later(RESTART_S, self._restart)
        self._end_all(how)

    def _restart(self) -> None:
        """Starts a new process; jobs started meanwhile end as if it had died."""
        if self._leaving:
            return
        try:
            self._start()
        except OSError:
            self._loop.call_later(RESTART_S, self._restart)

    def _close_channel(self) -> None:
        if self._channel.sock.fileno() >= 0:
            self._loop.remove_reader(self._channel.sock)
            self._loop.remove_writer(self._channel.sock)
            self._channel.close()

    def _end_all(self, how: str) -> None:
        trees, self._trees = self._trees, {}
        for key, tree in trees.items():
            if not tree.ended.done():
                problem = ("supervisor", None, how)
                tree.ended.set_result(Ended(key=key, cause="supervisor", problem=problem))


class SupervisorError(Exception):
    """Raised when there is no supervisor, so no job can run; the text says why."""
