"""Supervisor process: starts jobs, enforces their time and limits, ends them, reports how.

`SupervisorLoop` waits for the agent and the shims, and has `JobSupervisor` do what is due before it
reads either. Standard library only, so that the process stays small.
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
"""Grace period of processes that a job leaves behind after its own end."""
CLEANUP_S = 30.0
"""Timeout of the cleanup command that runs after a job."""
LOOK_S = 0.02
"""Interval of checks whether killed processes have gone."""


class SupervisedJob:
    """Job under supervision, from its start until nothing of it is left."""

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

    def __init__(self, request: dict[str, Any], shim: Shim, now: float) -> None:
        self.key: int = request["key"]
        self.cleanup = _cleanup_of(request) if request["after"] is not None else None
        """Request to start when nothing of it is left; None: none."""
        self.shim = shim
        self.began = now
        self.grace_s: float = request["grace"]
        self.timeout_at: float | None = (
            None if request["timeout"] is None else now + request["timeout"]
        )
        self.deadline: float | None = request["deadline"]
        self.memory = shim.bounds.memory
        self.processes = shim.bounds.processes
        self.cause = "exit"
        self.kill_at: float | None = None
        """SIGTERM was sent; SIGKILL follows then."""
        self.look_at: float | None = None
        """SIGKILL was sent; it is checked then whether anything survived."""
        self.status: int | None = None
        """How its program ended, as wait() returns it; None: not yet, or it never began."""
        self.problem: tuple[str, int | None, str] | None = None
        """Why it never began."""
        self.cpu_s = 0.0
        self.signals: list[tuple[str, float, int]] = []
        """Signals sent: which, how long after its start, to how many processes."""
        self.used = 0
        """How much it used of what it was ended for."""
        self.peak = 0

    @property
    def ending(self) -> bool:
        """Whether it is being ended, or has ended and left processes behind."""
        return self.kill_at is not None or self.look_at is not None

    def due(self) -> float | None:
        """When it must be checked next."""
        if self.look_at is not None:
            return self.look_at
        first = self.timeout_at if self.kill_at is None else self.kill_at
        if first is None or self.deadline is None:
            return self.deadline if first is None else first
        return min(first, self.deadline)

    def record_signal(self, signal_name: str, now: float, count: int) -> None:
        if self.signals and self.signals[-1][0] == signal_name:
            _, at, before = self.signals.pop()
            self.signals.append((signal_name, at, max(before, count)))
        elif count:
            self.signals.append((signal_name, round(now - self.began, 3), count))

    def record_end(self, message: ShimMessage) -> None:
        """Notes how the shim says it ended, or why it never began."""
        self.problem = message.problem
        if self.problem is None:
            self.status, self.cpu_s = message.number, message.cpu_s
            self.peak = max(self.peak, message.peak)

    def end_report(self) -> dict[str, Any]:
        """Builds the message for the agent."""
        group = self.shim.group
        if group is not None and group.killed_for_memory():
            # Cgroup v2 kills the whole group, including the shim that would have reported it.
            self.cause = "memory" if self.cause in ("exit", "shim") else self.cause
        peak = group.peak() if group is not None else None
        reached = self.memory if self.cause == "memory" else None
        return {
            "say": "ended",
            "key": self.key,
            "cause": self.cause,
            "status": self.status,
            "problem": self.problem,
            "signals": self.signals,
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


def _cleanup_of(request: dict[str, Any]) -> dict[str, Any]:
    """Builds the request that runs a job's cleanup command; its key is the job's, negated."""
    return {
        "key": -request["key"],
        "bounds": Bounds(may_gain=Bounds(*request["bounds"]).may_gain),
        "job": request["after"],
        "after": None,
        "timeout": CLEANUP_S,
        "grace": 0.0,
        "deadline": None,
    }


WATCH_S = 0.5
"""Interval of checks of limits that the kernel does not enforce."""
STEP_S = 0.5
"""Longest sleep while there is a job: timers of a suspended machine sleep with it."""


class JobSupervisor:
    """Supervises all jobs of one agent. Every method gets the time, on the clock that runs through
    suspend."""

    def __init__(
        self,
        pool: ShimPool,
        send_to_agent: Callable[[dict[str, Any]], None],
        watch: Callable[[Shim], None],
    ) -> None:
        self._pool = pool
        self._send_to_agent = send_to_agent
        self._watch_shim = watch
        self._awaiting_cleanup: dict[int, dict[str, Any]] = {}
        """Reports of jobs whose cleanup command runs, by the key of that."""
        self._jobs: dict[int, SupervisedJob] = {}
        self._watched: dict[int, SupervisedJob] = {}
        self._watch_at = 0.0
        self._timers: list[tuple[float, int]] = []
        """Heap with at least one entry a job, never later than it is due."""
        self._dying_shims: list[Shim] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and no shim is being ended."""
        return not self._jobs and not self._dying_shims

    def poll_timeout_s(self, now: float) -> float | None:
        """How long nothing needs to be done; None: until a message comes."""
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

    # Requests of the agent.

    def spawn(self, request: dict[str, Any], fds: list[int], now: float) -> None:
        """Starts a job, whose contents only its shim decodes. `fds` stay the caller's."""
        try:
            shim = self._pool.take(Bounds(*request["bounds"]))
        except OSError as error:
            problem = ("worker", error.errno, str(error))
            self._report_end(
                {"say": "ended", "key": request["key"], "cause": "exit", "problem": problem}
            )
            return
        shim.key = request["key"]
        job = self._jobs[shim.key] = SupervisedJob(request, shim, now)
        if not shim.channel.send(request["job"], fds):  # it was stopped by a signal
            linux.send_signal(shim.pid, signal.SIGKILL)
        if self._needs_watch(job):
            self._watch_at = now + WATCH_S if not self._watched else self._watch_at
            self._watched[job.key] = job
        self._schedule(job)
        self._watch_shim(shim)

    def stop(self, key: int, now: float) -> None:
        """Ends a job with its grace period."""
        job = self._jobs.get(key)
        if job is not None and not job.ending:
            self._terminate(job, "stop", now, job.grace_s)

    def kill(self, key: int, now: float) -> None:
        """Ends a job at once."""
        job = self._jobs.get(key)
        if job is not None:
            self._kill(job, "kill", now)

    def set_deadline(self, key: int, deadline: float | None) -> None:
        """Has a job killed at `deadline` unless that is put off; None: never."""
        job = self._jobs.get(key)
        if job is None:
            return
        before, job.deadline = job.due(), deadline
        due = job.due()
        if due is not None and (before is None or due < before):
            self._schedule(job)

    def kill_everything(self, now: float) -> None:
        """Ends jobs and shims as the agent is gone; cleanup commands still get their time."""
        for job in list(self._jobs.values()):
            if job.key > 0:
                self._kill(job, "kill", now)
        for shim in self._pool.idle():
            self.dismiss(shim)

    # Timers.

    def run_due(self, now: float) -> None:
        """Does all that is due. Called first after every sleep, however long that was."""
        while self._timers and self._timers[0][0] <= now:
            _, key = heapq.heappop(self._timers)
            job = self._jobs.get(key)
            if job is not None and not self._run_timer(job, now):
                self._schedule(job)  # its time was put off meanwhile
        if self._watched and now >= self._watch_at:
            self._watch_at = now + WATCH_S
            for job in list(self._watched.values()):
                self._check_usage(job, now)
        if self._dying_shims:
            self._reap_shims(now)

    def _run_timer(self, job: SupervisedJob, now: float) -> bool:
        """Returns whether anything was due."""
        due = job.due()
        if due is None or now < due:
            return False
        if job.deadline is not None and now >= job.deadline:
            job.deadline = None
            self._kill(job, "lease", now)
        elif job.ending:
            self._kill(job, job.cause, now)
        else:
            self._terminate(job, "timeout", now, job.grace_s)
        return True

    def _schedule(self, job: SupervisedJob) -> None:
        due = job.due()
        if due is not None:
            heapq.heappush(self._timers, (due, job.key))

    def _needs_watch(self, job: SupervisedJob) -> bool:
        group = job.shim.group
        counted = group is not None and group.has("pids")
        return job.memory is not None or not counted

    def _check_usage(self, job: SupervisedJob, now: float) -> None:
        """Checks memory and processes, where the kernel does not enforce the limits."""
        group = job.shim.group
        if group is not None and group.has("memory") and group.killed_for_memory():
            self._kill(job, "memory", now)
            return
        pids = linux.descendants(job.shim.pid)
        if job.processes is not None and len(pids) > job.processes:
            job.used = len(pids)
            self._kill(job, "processes", now)
        elif job.memory is not None and (group is None or not group.has("memory")):
            used = linux.resident(pids)
            if used > job.memory:
                used = linux.proportional(pids)
            job.peak = max(job.peak, used)
            if used > job.memory:
                job.used = used
                self._kill(job, "memory", now)

    # Ending.

    def _terminate(self, job: SupervisedJob, cause: str, now: float, grace_s: float) -> None:
        pids = linux.descendants(job.shim.pid)
        job.cause = cause
        if not pids:
            # Not started yet, or just ended: no process could handle SIGTERM.
            self._kill(job, cause, now)
            return
        job.peak = max(job.peak, linux.resident(pids))
        job.record_signal("SIGTERM", now, len(pids))
        for pid in pids:
            linux.send_signal(pid, signal.SIGTERM)
        job.kill_at = now + grace_s
        self._schedule(job)

    def _kill(self, job: SupervisedJob, cause: str, now: float) -> None:
        if cause == "lease" or not job.ending:
            job.cause = cause
        pid = job.shim.pid
        if self._pool.in_namespaces:
            if job.look_at is None:
                pids = linux.descendants(pid)
                job.peak = max(job.peak, linux.resident(pids))
                job.record_signal("SIGKILL", now, len(pids))
            linux.send_signal(pid, signal.SIGKILL)
        else:
            killed = linux.kill_all(pid)
            job.record_signal("SIGKILL", now, len(killed))
            if not killed:
                linux.send_signal(pid, signal.SIGKILL)
        job.look_at = now + LOOK_S
        self._schedule(job)

    # Messages of shims.

    def read_shim(self, shim: Shim, now: float) -> None:
        """Handles a shim's messages, or its end."""
        try:
            messages = shim.read_messages()
        except ValueError:  # only its job can have sent that, and is killed for it
            linux.send_signal(shim.pid, signal.SIGKILL)
            messages = None
        if messages is None:
            self.dismiss(shim)
            return
        for message in messages:
            job = self._jobs.get(shim.key)
            if job is not None and message.kind != READY:
                self._ended(job, message, now)

    def _ended(self, job: SupervisedJob, message: ShimMessage, now: float) -> None:
        job.record_end(message)
        if message.kind == SETUP_FAILED:
            return  # the shim exits; its end is reported then
        if message.kind == TREE_ENDED or job.problem is not None:
            job.shim.add_usage(message.cpu_s, message.peak)
            self._finish(job, now)
            if job.look_at is not None or not self._pool.give_back(job.shim):
                self.dismiss(job.shim)
        elif not job.ending:
            cause, grace_s = job.cause, min(STRAY_GRACE_S, job.grace_s)
            self._terminate(job, cause, now, grace_s)

    def dismiss(self, shim: Shim) -> None:
        """Lets a shim go; it is collected when it has ended."""
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
            job = self._jobs.get(shim.key)
            if job is not None and job.shim is shim:
                self._shim_died(job, now)
        self._dying_shims = left

    def _shim_died(self, job: SupervisedJob, now: float) -> None:
        """Ends a job whose shim was killed, by this process or by another one."""
        if job.status is None:
            job.status = int(signal.SIGKILL)
        job.cpu_s, peak = job.shim.last_job_usage()
        job.peak = max(job.peak, peak)
        if not job.ending and job.cause == "exit" and job.problem is None:
            job.cause = "shim"
        self._finish(job, now)

    def _finish(self, job: SupervisedJob, now: float) -> None:
        del self._jobs[job.key]
        self._watched.pop(job.key, None)
        report = job.end_report()
        if job.cleanup is None:
            self._report_end(report)
            return
        self._awaiting_cleanup[job.cleanup["key"]] = report
        self.spawn(job.cleanup, [], now)

    def _report_end(self, report: dict[str, Any]) -> None:
        """Reports a job's end; of a cleanup command only its status, with the job it was for."""
        job_report = self._awaiting_cleanup.pop(report["key"], None)
        self._send_to_agent(
            report if job_report is None else {**job_report, "after": report.get("status")}
        )


class SupervisorLoop:
    """Main loop of the supervisor process: waits for messages and times."""

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
        """Runs until the agent is gone and nothing of its jobs is left."""
        self._send_hello()
        while not (self._leaving and self._jobs.is_idle):
            now = self._clock.now()
            self._jobs.run_due(now)
            timeout_s = self._jobs.poll_timeout_s(now)
            if timeout_s is None and self._leaving:
                break
            events = self._poll.poll(timeout_s)
            # Agent, supervisor and jobs may have been frozen together: deadlines come first.
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
                    del self._watching[fd]  # closed, which removed it from the poll
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
            self._handle_request(unpack(message), now)

    def _handle_request(self, request: dict[str, Any], now: float) -> None:
        match request["do"]:
            case "spawn":
                fds = self._agent.take_fds(request["carried"])
                self._jobs.spawn(request, fds, now)
                for fd in fds:
                    os.close(fd)
            case "stop":
                self._jobs.stop(request["key"], now)
            case "kill":
                self._jobs.kill(request["key"], now)
            case "hold":
                self._jobs.set_deadline(request["key"], request["deadline"])
            case "ping":
                self._send_to_agent({"say": "pong", "number": request["number"]})
            case other:
                raise ValueError(f"unknown request from the agent: {other!r}")

    def _watch_shim(self, shim: Shim) -> None:
        fd = shim.channel.sock.fileno()
        if self._watching.get(fd) is not shim:
            self._watching[fd] = shim
            self._poll.register(fd, select.EPOLLIN)

    def _send_to_agent(self, message: dict[str, Any]) -> None:
        if not self._leaving and not self._agent.send(pack_for_agent(message)):
            self._poll.modify(self._agent.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)


def main(isolation: str, groups: str) -> None:
    """Serves the agent at the other end of standard input."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    agent = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    cgroups = open_cgroups(os.getppid()) if groups == "groups" else Cgroups({}, 0)
    supervisor = SupervisorLoop(agent, isolation, cgroups)
    # Nothing here forms cycles, and a collection in a shim would copy its shared memory.
    gc.disable()
    gc.freeze()
    supervisor.run()
    sys.exit(0)
