"""One job in the guard's care: its times, what was done to it, and what it came to."""

from __future__ import annotations

from typing import Any

from rota.worker.guard.pool import Shim
from rota.worker.guard.words import Bounds, ShimMessage

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
