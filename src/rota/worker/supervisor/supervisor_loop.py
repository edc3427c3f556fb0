"""The supervisor process: starts jobs, enforces their time and limits, ends them, says how.

`SupervisorLoop` waits for the agent and the shims, and lets `JobSupervisor` do what is due before
it reads either. Standard library only, so that the process stays small.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from rota.worker.clock import BootClock
from rota.worker.supervisor import linux
from rota.worker.supervisor.cgroups import Cgroups, open_cgroups
from rota.worker.supervisor.messages import (
    READY,
    SETUP_FAILED,
    TREE_ENDED,
    Bounds,
    Channel,
    ShimMessage,
    pack_for_agent,
    unpack,
)
from rota.worker.supervisor.shim import Shim, ShimPool

STRAY_GRACE_S = 1.0
"""For what a job leaves behind after its own end."""
CLEANUP_S = 30.0
"""For what is run after a job."""
LOOK_S = 0.02
"""Between two looks at whether killed processes have gone."""


class SupervisedJob:
    """A job from its start until nothing of it is left."""

    __slots__ = (
        "began",
        "cause",
        "cleanup",
        "cpu_s",
        "deadline",
        "grace_s",
        "key",
        "kill_at",
        "look_at",
        "memory",
        "peak",
        "problem",
        "processes",
        "shim",
        "signals",
        "status",
        "timeout_at",
        "used",
    )

    def __init__(self, said: dict[str, Any], shim: Shim, now: float) -> None:
        self.key: int = said["key"]
        self.cleanup = _cleanup_of(said) if said["after"] is not None else None
        """What to start when nothing of it is left; None: nothing."""
        self.shim = shim
        self.began = now
        self.grace_s: float = said["grace"]
        self.timeout_at: float | None = None if said["timeout"] is None else now + said["timeout"]
        self.deadline: float | None = said["deadline"]
        self.memory = shim.bounds.memory
        self.processes = shim.bounds.processes
        self.cause = "exit"
        self.kill_at: float | None = None
        """It was told to end, and is killed then."""
        self.look_at: float | None = None
        """It was killed; whether anything survived is looked at then."""
        self.status: int | None = None
        """How its program ended, as wait() says it; None: not yet, or it never began."""
        self.problem: tuple[str, int | None, str] | None = None
        """Why it never began."""
        self.cpu_s = 0.0
        self.signals: list[tuple[str, float, int]] = []
        """Signals sent: which, how long after its start, to how many processes."""
        self.used = 0
        """How much of what it was ended for."""
        self.peak = 0

    @property
    def ending(self) -> bool:
        """Somebody has begun to end it, or it has ended and left others behind."""
        return self.kill_at is not None or self.look_at is not None

    def due(self) -> float | None:
        """When it must be looked at next."""
        if self.look_at is not None:
            return self.look_at
        first = self.timeout_at if self.kill_at is None else self.kill_at
        if first is None or self.deadline is None:
            return self.deadline if first is None else first
        return min(first, self.deadline)

    def record_signal(self, signal_name: str, now: float, count: int) -> None:
        """For the record."""
        if self.signals and self.signals[-1][0] == signal_name:
            _, at, before = self.signals.pop()
            self.signals.append((signal_name, at, max(before, count)))
        elif count:
            self.signals.append((signal_name, round(now - self.began, 3), count))

    def record_end(self, word: ShimMessage) -> None:
        """Its shim said how it ended, or why it never began."""
        self.problem = word.problem
        if self.problem is None:
            self.status, self.cpu_s = word.number, word.cpu_s
            self.peak = max(self.peak, word.peak)

    def end_report(self) -> dict[str, Any]:
        """What the agent is told in the end."""
        group = self.shim.group
        if group is not None and group.killed_for_memory():
            # Cgroup v2 ends the whole group, and so the shim that would have told of it.
            self.cause = "memory" if self.cause in ("exit", "shim") else self.cause
        peak = group.peak() if group is not None else None
        reached = self.memory if self.cause == "memory" else None
        return {
            "say": "ended",
            "key": self.key,
            "cause": self.cause,
            "status": self.status,
            "problem": self.problem,
            "deeds": self.signals,
            "used": self.used or peak or reached or 0,
            "cpu": round(self.cpu_s, 6),
            "peak": peak or self.peak,
            "forks_refused": self._forks_refused(),
        }

    def _forks_refused(self) -> int:
        group, before = self.shim.group, self.shim.forks_refused
        if group is None:
            return 0
        self.shim.forks_refused = group.forks_refused()
        return self.shim.forks_refused - before


def _cleanup_of(said: dict[str, Any]) -> dict[str, Any]:
    """As if the agent had asked for it; the key is that of the job, below 0."""
    return {
        "key": -said["key"],
        "bounds": Bounds(may_gain=Bounds(*said["bounds"]).may_gain),
        "job": said["after"],
        "after": None,
        "timeout": CLEANUP_S,
        "grace": 0.0,
        "deadline": None,
    }


WATCH_S = 0.5
"""Between two looks at what the kernel does not hold a job to."""
STEP_S = 0.5
"""The longest the guard sleeps while it has a job: timers of a suspended machine sleep with it."""


class JobSupervisor:
    """All jobs of one agent. Every method is told the time, on the clock that runs on."""

    def __init__(
        self,
        pool: ShimPool,
        tell: Callable[[dict[str, Any]], None],
        watch: Callable[[Shim], None],
    ) -> None:
        self._pool = pool
        self._send_to_agent = tell
        self._watch_shim = watch
        self._awaiting_cleanup: dict[int, dict[str, Any]] = {}
        """What the agent is to be told when a job's farewell is over, by the farewell's key."""
        self._jobs: dict[int, SupervisedJob] = {}
        self._watched: dict[int, SupervisedJob] = {}
        self._watch_at = 0.0
        self._timers: list[tuple[float, int]] = []
        """A heap with at least one entry a job, never later than it is due."""
        self._dying_shims: list[Shim] = []

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing is on its way out."""
        return not self._jobs and not self._dying_shims

    def poll_timeout_s(self, now: float) -> float | None:
        """How long nothing needs to be done; None: until somebody says something."""
        if self.is_idle:
            return None
        waits = [STEP_S]
        if self._dying_shims:
            waits.append(LOOK_S)
        if self._timers:
            waits.append(self._timers[0][0] - now)
        if self._watched:
            waits.append(self._watch_at - now)
        return max(0.0, min(waits))

    # What the agent says.

    def spawn(self, said: dict[str, Any], fds: list[int], now: float) -> None:
        """Starts a job, which only its shim reads. `fds` stay the caller's."""
        try:
            shim = self._pool.take(Bounds(*said["bounds"]))
        except OSError as error:
            problem = ("worker", error.errno, str(error))
            self._report_end(
                {"say": "ended", "key": said["key"], "cause": "exit", "problem": problem}
            )
            return
        shim.key = said["key"]
        charge = self._jobs[shim.key] = SupervisedJob(said, shim, now)
        if not shim.channel.send(said["job"], fds):  # somebody has stopped it
            linux.send_signal(shim.pid, signal.SIGKILL)
        if self._needs_watch(charge):
            self._watch_at = now + WATCH_S if not self._watched else self._watch_at
            self._watched[charge.key] = charge
        self._schedule(charge)
        self._watch_shim(shim)

    def stop(self, key: int, now: float) -> None:
        """Ends a job with grace."""
        charge = self._jobs.get(key)
        if charge is not None and not charge.ending:
            self._terminate(charge, "stop", now, charge.grace_s)

    def kill(self, key: int, now: float) -> None:
        """Ends a job at once."""
        charge = self._jobs.get(key)
        if charge is not None:
            self._kill(charge, "kill", now)

    def set_deadline(self, key: int, deadline: float | None) -> None:
        """A job may run until then, unless more is said before; None: for ever."""
        charge = self._jobs.get(key)
        if charge is None:
            return
        before, charge.deadline = charge.due(), deadline
        due = charge.due()
        if due is not None and (before is None or due < before):
            self._schedule(charge)

    def kill_everything(self, now: float) -> None:
        """The agent is gone: jobs and shims end; farewells have their time."""
        for charge in list(self._jobs.values()):
            if charge.key > 0:
                self._kill(charge, "kill", now)
        for shim in self._pool.idle():
            self.dismiss(shim)

    # What time says.

    def run_due(self, now: float) -> None:
        """Does all that is due. The first thing after every sleep, however long that was."""
        while self._timers and self._timers[0][0] <= now:
            _, key = heapq.heappop(self._timers)
            charge = self._jobs.get(key)
            if charge is not None and not self._run_timer(charge, now):
                self._schedule(charge)  # put off since
        if self._watched and now >= self._watch_at:
            self._watch_at = now + WATCH_S
            for charge in list(self._watched.values()):
                self._check_usage(charge, now)
        if self._dying_shims:
            self._reap_shims(now)

    def _run_timer(self, charge: SupervisedJob, now: float) -> bool:
        """Whether anything was due."""
        due = charge.due()
        if due is None or now < due:
            return False
        if charge.deadline is not None and now >= charge.deadline:
            charge.deadline = None
            self._kill(charge, "lease", now)
        elif charge.ending:
            self._kill(charge, charge.cause, now)
        else:
            self._terminate(charge, "timeout", now, charge.grace_s)
        return True

    def _schedule(self, charge: SupervisedJob) -> None:
        due = charge.due()
        if due is not None:
            heapq.heappush(self._timers, (due, charge.key))

    def _needs_watch(self, charge: SupervisedJob) -> bool:
        group = charge.shim.group
        counted = group is not None and group.has("pids")
        return charge.memory is not None or not counted

    def _check_usage(self, charge: SupervisedJob, now: float) -> None:
        """Memory and processes, where the kernel does not hold the job to its bounds."""
        group = charge.shim.group
        if group is not None and group.has("memory") and group.killed_for_memory():
            self._kill(charge, "memory", now)
            return
        pids = linux.descendants(charge.shim.pid)
        if charge.processes is not None and len(pids) > charge.processes:
            charge.used = len(pids)
            self._kill(charge, "processes", now)
        elif charge.memory is not None and (group is None or not group.has("memory")):
            used = linux.resident(pids)
            if used > charge.memory:
                used = linux.proportional(pids)
            charge.peak = max(charge.peak, used)
            if used > charge.memory:
                charge.used = used
                self._kill(charge, "memory", now)

    # Ending.

    def _terminate(self, charge: SupervisedJob, cause: str, now: float, grace_s: float) -> None:
        pids = linux.descendants(charge.shim.pid)
        charge.cause = cause
        if not pids:
            # Not begun yet, or just over: there is nobody who could obey.
            self._kill(charge, cause, now)
            return
        charge.peak = max(charge.peak, linux.resident(pids))
        charge.record_signal("SIGTERM", now, len(pids))
        for pid in pids:
            linux.send_signal(pid, signal.SIGTERM)
        charge.kill_at = now + grace_s
        self._schedule(charge)

    def _kill(self, charge: SupervisedJob, cause: str, now: float) -> None:
        if cause == "lease" or not charge.ending:
            charge.cause = cause
        pid = charge.shim.pid
        if self._pool.in_namespaces:
            if charge.look_at is None:
                pids = linux.descendants(pid)
                charge.peak = max(charge.peak, linux.resident(pids))
                charge.record_signal("SIGKILL", now, len(pids))
            linux.send_signal(pid, signal.SIGKILL)
        else:
            killed = linux.kill_all(pid)
            charge.record_signal("SIGKILL", now, len(killed))
            if not killed:
                linux.send_signal(pid, signal.SIGKILL)
        charge.look_at = now + LOOK_S
        self._schedule(charge)

    # What shims say.

    def read_shim(self, shim: Shim, now: float) -> None:
        """A shim said something, or is gone."""
        try:
            words = shim.read_messages()
        except ValueError:  # only what runs in it can have said that, and it ends for it
            linux.send_signal(shim.pid, signal.SIGKILL)
            words = None
        if words is None:
            self.dismiss(shim)
            return
        for word in words:
            charge = self._jobs.get(shim.key)
            if charge is not None and word.kind != READY:
                self._ended(charge, word, now)

    def _ended(self, charge: SupervisedJob, word: ShimMessage, now: float) -> None:
        charge.record_end(word)
        if word.kind == SETUP_FAILED:
            return  # it is leaving; its end is told then
        if word.kind == TREE_ENDED or charge.problem is not None:
            charge.shim.add_usage(word.cpu_s, word.peak)
            self._finish(charge, now)
            if charge.look_at is not None or not self._pool.give_back(charge.shim):
                self.dismiss(charge.shim)
        elif not charge.ending:
            cause, grace_s = charge.cause, min(STRAY_GRACE_S, charge.grace_s)
            self._terminate(charge, cause, now, grace_s)

    def dismiss(self, shim: Shim) -> None:
        """It serves no longer; its end is awaited."""
        self._pool.forget(shim)
        self._dying_shims.append(shim)

    def _reap_shims(self, now: float) -> None:
        """Collects shims that have ended, and with them the jobs that ended by their death."""
        orphans = [] if self._pool.in_namespaces else self._pool.orphans()
        for pid in orphans:
            linux.kill_all(pid)
            linux.send_signal(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        left = []
        for shim in self._dying_shims:
            if orphans or not shim.is_reaped():
                left.append(shim)
                continue
            self._pool.living.pop(shim.pid, None)
            charge = self._jobs.get(shim.key)
            if charge is not None and charge.shim is shim:
                self._shim_died(charge, now)
        self._dying_shims = left

    def _shim_died(self, charge: SupervisedJob, now: float) -> None:
        """A job whose shim was killed, by us or by somebody else."""
        if charge.status is None:
            charge.status = int(signal.SIGKILL)
        charge.cpu_s, peak = charge.shim.last_job_usage()
        charge.peak = max(charge.peak, peak)
        if not charge.ending and charge.cause == "exit" and charge.problem is None:
            charge.cause = "shim"
        self._finish(charge, now)

    def _finish(self, charge: SupervisedJob, now: float) -> None:
        del self._jobs[charge.key]
        self._watched.pop(charge.key, None)
        account = charge.end_report()
        if charge.cleanup is None:
            self._report_end(account)
            return
        self._awaiting_cleanup[charge.cleanup["key"]] = account
        self.spawn(charge.cleanup, [], now)

    def _report_end(self, account: dict[str, Any]) -> None:
        """Of a farewell the agent only hears how it ended, with the job it was for."""
        untold = self._awaiting_cleanup.pop(account["key"], None)
        self._send_to_agent(
            account if untold is None else {**untold, "after": account.get("status")}
        )


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
