"""The guard's duties: starts jobs, keeps their times, ends them, and says what was done."""

from __future__ import annotations

import contextlib
import heapq
import os
import signal
from collections.abc import Callable
from typing import Any

from rota.worker.guard import tree
from rota.worker.guard.charge import LOOK_S, STRAY_GRACE_S, Charge
from rota.worker.guard.pool import Pool, Shim
from rota.worker.guard.words import FIT, GONE, UNFIT, Bounds, Word

WATCH_S = 0.5
"""Between two looks at what the kernel does not hold a job to."""
STEP_S = 0.5
"""The longest the guard sleeps while it has a job: timers of a suspended machine sleep with it."""


class Keeper:
    """All jobs of one agent. Every method is told the time, on the clock that runs on."""

    def __init__(
        self,
        pool: Pool,
        tell: Callable[[dict[str, Any]], None],
        watch: Callable[[Shim], None],
    ) -> None:
        self._pool = pool
        self._tell = tell
        self._watch = watch
        self._untold: dict[int, dict[str, Any]] = {}
        """What the agent is to be told when a job's farewell is over, by the farewell's key."""
        self._charges: dict[int, Charge] = {}
        self._watched: dict[int, Charge] = {}
        self._watch_at = 0.0
        self._dues: list[tuple[float, int]] = []
        """A heap with at least one entry a job, never later than it is due."""
        self._dying: list[Shim] = []

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing is on its way out."""
        return not self._charges and not self._dying

    def patience_s(self, now: float) -> float | None:
        """How long nothing needs to be done; None: until somebody says something."""
        if self.is_idle:
            return None
        waits = [STEP_S]
        if self._dying:
            waits.append(LOOK_S)
        if self._dues:
            waits.append(self._dues[0][0] - now)
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
            self._say({"say": "ended", "key": said["key"], "cause": "exit", "problem": problem})
            return
        shim.key = said["key"]
        charge = self._charges[shim.key] = Charge(said, shim, now)
        if not shim.channel.send(said["job"], fds):  # somebody has stopped it
            tree.tell(shim.pid, signal.SIGKILL)
        if self._needs_watch(charge):
            self._watch_at = now + WATCH_S if not self._watched else self._watch_at
            self._watched[charge.key] = charge
        self._schedule(charge)
        self._watch(shim)

    def stop(self, key: int, now: float) -> None:
        """Ends a job with grace."""
        charge = self._charges.get(key)
        if charge is not None and not charge.ending:
            self._terminate(charge, "stop", now, charge.grace_s)

    def kill(self, key: int, now: float) -> None:
        """Ends a job at once."""
        charge = self._charges.get(key)
        if charge is not None:
            self._kill(charge, "kill", now)

    def hold(self, key: int, deadline: float | None) -> None:
        """A job may run until then, unless more is said before; None: for ever."""
        charge = self._charges.get(key)
        if charge is None:
            return
        before, charge.deadline = charge.due(), deadline
        due = charge.due()
        if due is not None and (before is None or due < before):
            self._schedule(charge)

    def kill_everything(self, now: float) -> None:
        """The agent is gone: jobs and shims end; farewells have their time."""
        for charge in list(self._charges.values()):
            if charge.key > 0:
                self._kill(charge, "kill", now)
        for shim in self._pool.idle():
            self.dismiss(shim)

    # What time says.

    def catch_up(self, now: float) -> None:
        """Does all that is due. The first thing after every sleep, however long that was."""
        while self._dues and self._dues[0][0] <= now:
            _, key = heapq.heappop(self._dues)
            charge = self._charges.get(key)
            if charge is not None and not self._act(charge, now):
                self._schedule(charge)  # put off since
        if self._watched and now >= self._watch_at:
            self._watch_at = now + WATCH_S
            for charge in list(self._watched.values()):
                self._look(charge, now)
        if self._dying:
            self._bury(now)

    def _act(self, charge: Charge, now: float) -> bool:
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

    def _schedule(self, charge: Charge) -> None:
        due = charge.due()
        if due is not None:
            heapq.heappush(self._dues, (due, charge.key))

    def _needs_watch(self, charge: Charge) -> bool:
        group = charge.shim.group
        counted = group is not None and group.has("pids")
        return charge.memory is not None or not counted

    def _look(self, charge: Charge, now: float) -> None:
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

    def _terminate(self, charge: Charge, cause: str, now: float, grace_s: float) -> None:
        pids = tree.descendants(charge.shim.pid)
        charge.cause = cause
        if not pids:
            # Not begun yet, or just over: there is nobody who could obey.
            self._kill(charge, cause, now)
            return
        charge.peak = max(charge.peak, tree.resident(pids))
        charge.did("SIGTERM", now, len(pids))
        for pid in pids:
            tree.tell(pid, signal.SIGTERM)
        charge.kill_at = now + grace_s
        self._schedule(charge)

    def _kill(self, charge: Charge, cause: str, now: float) -> None:
        if cause == "lease" or not charge.ending:
            charge.cause = cause
        pid = charge.shim.pid
        if self._pool.in_namespaces:
            if charge.look_at is None:
                pids = tree.descendants(pid)
                charge.peak = max(charge.peak, tree.resident(pids))
                charge.did("SIGKILL", now, len(pids))
            tree.tell(pid, signal.SIGKILL)
        else:
            killed = tree.kill_all(pid)
            charge.did("SIGKILL", now, len(killed))
            if not killed:
                tree.tell(pid, signal.SIGKILL)
        charge.look_at = now + LOOK_S
        self._schedule(charge)

    # What shims say.

    def heard(self, shim: Shim, now: float) -> None:
        """A shim said something, or is gone."""
        try:
            words = shim.words()
        except ValueError:  # only what runs in it can have said that, and it ends for it
            tree.tell(shim.pid, signal.SIGKILL)
            words = None
        if words is None:
            self.dismiss(shim)
            return
        for word in words:
            charge = self._charges.get(shim.key)
            if charge is not None and word.kind != FIT:
                self._ended(charge, word, now)

    def _ended(self, charge: Charge, word: Word, now: float) -> None:
        charge.heard(word)
        if word.kind == UNFIT:
            return  # it is leaving; its end is told then
        if word.kind == GONE or charge.problem is not None:
            charge.shim.spent(word.cpu_s, word.peak)
            self._finish(charge, now)
            if charge.look_at is not None or not self._pool.give_back(charge.shim):
                self.dismiss(charge.shim)
        elif not charge.ending:
            cause, grace_s = charge.cause, min(STRAY_GRACE_S, charge.grace_s)
            self._terminate(charge, cause, now, grace_s)

    def dismiss(self, shim: Shim) -> None:
        """It serves no longer; its end is awaited."""
        self._pool.forget(shim)
        self._dying.append(shim)

    def _bury(self, now: float) -> None:
        """Collects shims that have ended, and with them the jobs that ended by their death."""
        orphans = [] if self._pool.in_namespaces else self._pool.orphans()
        for pid in orphans:
            tree.kill_all(pid)
            tree.tell(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        left = []
        for shim in self._dying:
            if orphans or not shim.collected():
                left.append(shim)
                continue
            self._pool.living.pop(shim.pid, None)
            charge = self._charges.get(shim.key)
            if charge is not None and charge.shim is shim:
                self._died(charge, now)
        self._dying = left

    def _died(self, charge: Charge, now: float) -> None:
        """A job whose shim was killed, by us or by somebody else."""
        if charge.status is None:
            charge.status = int(signal.SIGKILL)
        charge.cpu_s, peak = charge.shim.last_spent()
        charge.peak = max(charge.peak, peak)
        if not charge.ending and charge.cause == "exit" and charge.problem is None:
            charge.cause = "shim"
        self._finish(charge, now)

    def _finish(self, charge: Charge, now: float) -> None:
        del self._charges[charge.key]
        self._watched.pop(charge.key, None)
        account = charge.account()
        if charge.after is None:
            self._say(account)
            return
        self._untold[charge.after["key"]] = account
        self.spawn(charge.after, [], now)

    def _say(self, account: dict[str, Any]) -> None:
        """Of a farewell the agent only hears how it ended, with the job it was for."""
        untold = self._untold.pop(account["key"], None)
        self._tell(account if untold is None else {**untold, "after": account.get("status")})
