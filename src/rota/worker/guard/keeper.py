"""The guard's duties: starts jobs, keeps their times, ends them, and says what was done."""

from __future__ import annotations

import contextlib
import heapq
import os
import signal
from collections.abc import Callable
from typing import Any

from rota.worker.guard import tree
from rota.worker.guard.charge import LOOK_S, STRAY_GRACE_S, SupervisedJob
from rota.worker.guard.pool import Shim, ShimPool
from rota.worker.guard.words import READY, SETUP_FAILED, TREE_ENDED, Bounds, ShimMessage

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
            tree.send_signal(shim.pid, signal.SIGKILL)
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
        pids = tree.descendants(charge.shim.pid)
        if charge.processes is not None and len(pids) > charge.processes:
            charge.used = len(pids)
            self._kill(charge, "processes", now)
        elif charge.memory is not None and (group is None or not group.has("memory")):
            used = tree.resident(pids)
            if used > charge.memory:
                used = tree.proportional(pids)
            charge.peak = max(charge.peak, used)
            if used > charge.memory:
                charge.used = used
                self._kill(charge, "memory", now)

    # Ending.

    def _terminate(self, charge: SupervisedJob, cause: str, now: float, grace_s: float) -> None:
        pids = tree.descendants(charge.shim.pid)
        charge.cause = cause
        if not pids:
            # Not begun yet, or just over: there is nobody who could obey.
            self._kill(charge, cause, now)
            return
        charge.peak = max(charge.peak, tree.resident(pids))
        charge.record_signal("SIGTERM", now, len(pids))
        for pid in pids:
            tree.send_signal(pid, signal.SIGTERM)
        charge.kill_at = now + grace_s
        self._schedule(charge)

    def _kill(self, charge: SupervisedJob, cause: str, now: float) -> None:
        if cause == "lease" or not charge.ending:
            charge.cause = cause
        pid = charge.shim.pid
        if self._pool.in_namespaces:
            if charge.look_at is None:
                pids = tree.descendants(pid)
                charge.peak = max(charge.peak, tree.resident(pids))
                charge.record_signal("SIGKILL", now, len(pids))
            tree.send_signal(pid, signal.SIGKILL)
        else:
            killed = tree.kill_all(pid)
            charge.record_signal("SIGKILL", now, len(killed))
            if not killed:
                tree.send_signal(pid, signal.SIGKILL)
        charge.look_at = now + LOOK_S
        self._schedule(charge)

    # What shims say.

    def read_shim(self, shim: Shim, now: float) -> None:
        """A shim said something, or is gone."""
        try:
            words = shim.read_messages()
        except ValueError:  # only what runs in it can have said that, and it ends for it
            tree.send_signal(shim.pid, signal.SIGKILL)
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
            tree.kill_all(pid)
            tree.send_signal(pid, signal.SIGKILL)
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
