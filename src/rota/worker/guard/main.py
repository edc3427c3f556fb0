"""The guard's process: hears the agent, hears the shims, and minds the time before either."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import Any

from rota.worker.clock import BootClock
from rota.worker.guard.channel import Channel
from rota.worker.guard.groups import Cgroups, open_cgroups
from rota.worker.guard.keeper import JobSupervisor
from rota.worker.guard.pool import Shim, ShimPool
from rota.worker.guard.words import pack_for_agent, unpack


class SupervisorLoop:
    """One agent's guard."""

    def __init__(self, agent: socket.socket, isolation: str, groups: Cgroups) -> None:
        agent.setblocking(False)  # noqa: FBT003  (it takes no names)
        self._agent = Channel(agent, takes_fds=True)
        self._clock = BootClock()
        self._poll = select.epoll()
        self._watching: dict[int, Shim] = {}
        self._leaving = False
        self._groups = groups
        self._pool = ShimPool(agent, groups, isolation)
        self._jobs = JobSupervisor(self._pool, self._send_to_agent, self._watch_shim)
        self._poll.register(agent.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Until the agent is gone and nothing of its jobs is left."""
        self._send_hello()
        while not (self._leaving and self._jobs.is_idle):
            now = self._clock.now()
            self._jobs.run_due(now)
            patience = self._jobs.poll_timeout_s(now)
            if patience is None and self._leaving:
                break
            events = self._poll.poll(patience)
            # Agent, guard and jobs may have been frozen together: whatever is over ends first.
            now = self._clock.now()
            self._jobs.run_due(now)
            for fd, event in events:
                self._handle_event(fd, event, now)
        self._groups.remove()

    def _send_hello(self) -> None:
        kinds = self._groups.kinds()
        self._send_to_agent(
            {
                "say": "hello",
                "isolation": "namespace" if self._pool.in_namespaces else "subreaper",
                "why": self._pool.why,
                "memory": kinds.get("memory", "watched"),
                "processes": kinds.get("pids", "watched"),
            }
        )

    def _handle_event(self, fd: int, event: int, now: float) -> None:
        if fd != self._agent.sock.fileno():
            shim = self._watching.get(fd)
            if shim is not None:
                self._jobs.read_shim(shim, now)
                if shim.channel.sock.fileno() != fd:
                    del self._watching[fd]  # closed, and with it gone from the poll
            return
        if event & select.EPOLLOUT and self._agent.flush():
            self._poll.modify(fd, select.EPOLLIN)
        if event & ~select.EPOLLOUT:
            self._read_agent(now)

    def _read_agent(self, now: float) -> None:
        messages = self._agent.receive()
        if messages is None:
            self._leaving = True
            self._poll.unregister(self._agent.sock.fileno())
            self._jobs.kill_everything(now)
            return
        for message in messages:
            self._carry_out(unpack(message), now)

    def _carry_out(self, said: dict[str, Any], now: float) -> None:
        keeper = self._jobs
        match said["do"]:
            case "spawn":
                fds = self._agent.take_fds(said["carried"])
                keeper.spawn(said, fds, now)
                for fd in fds:
                    os.close(fd)
            case "stop":
                keeper.stop(said["key"], now)
            case "kill":
                keeper.kill(said["key"], now)
            case "hold":
                keeper.set_deadline(said["key"], said["deadline"])
            case "ping":
                self._send_to_agent({"say": "pong", "number": said["number"]})
            case other:
                raise ValueError(f"the agent says {other!r}, which nobody understands")

    def _watch_shim(self, shim: Shim) -> None:
        fd = shim.channel.sock.fileno()
        if self._watching.get(fd) is not shim:
            self._watching[fd] = shim
            self._poll.register(fd, select.EPOLLIN)

    def _send_to_agent(self, word: dict[str, Any]) -> None:
        if not self._leaving and not self._agent.send(pack_for_agent(word)):
            self._poll.modify(self._agent.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)


def main(isolation: str, groups: str) -> None:
    """Serves the agent at the other end of standard input."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    agent = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    made = open_cgroups(os.getppid()) if groups == "groups" else Cgroups({}, 0)
    guard = SupervisorLoop(agent, isolation, made)
    # Nothing lives and dies in cycles here; and a collection in a shim would copy its memory.
    gc.disable()
    gc.freeze()
    guard.run()
    sys.exit(0)
