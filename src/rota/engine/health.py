"""Health of a server: finds out why it cannot make progress, and says so once that has lasted.

A failover of the leader or of the database takes seconds and is no reason to send clients
elsewhere. So each issue is reported after it has lasted for a while; only a server that has never
known a leader, or that was the leader itself, is not ready at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from rota.core.model import Millis
from rota.engine.limits import ENGINE_LIMITS, EngineLimits
from rota.engine.ports import Clock, LeadershipStatus
from rota.store.projection.client import KEEPS_ENDING
from rota.store.protocol import ProjectionStatus

TABLES_BEHIND = "tables_behind"
SPILLED_UNREADABLE = "spilled_unreadable"
PROCESS_ENDS = "process_ends"
NO_LEADER = "no_leader"


class HealthIssue(msgspec.Struct, frozen=True):
    """Reason why a server cannot make progress."""

    code: str
    reason: str
    """A sentence for everybody."""
    cause: str = ""
    """Further details for operators, who may see the database's own message."""

    @property
    def text(self) -> str:
        """Both as one sentence."""
        return f"{self.reason}: {self.cause}" if self.cause else self.reason


class HealthSource(Protocol):
    """The engine, as far as its health is judged."""

    @property
    def clock(self) -> Clock: ...

    @property
    def has_others(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def trouble(self) -> str: ...

    @property
    def projection(self) -> ProjectionStatus: ...

    @property
    def suspects_leader(self) -> bool:
        """Whether the leader does not answer this server any more."""
        ...

    def standing(self) -> LeadershipStatus: ...

    def refills_waiting_ms(self) -> Millis:
        """Returns for how long the oldest read of spilled jobs has been under way."""
        ...


class HealthMonitor:
    """Measures for how long each thing has been wrong; its owner calls `look` every second."""

    def __init__(
        self,
        engine: HealthSource,
        projection_lag_s: Callable[[], float],
        limits: EngineLimits = ENGINE_LIMITS,
    ) -> None:
        self._engine = engine
        self._projection_lag_s = projection_lag_s
        self._lasting_ms = limits.unhealthy_ms
        self._troubled_since: Millis | None = None
        self._leaderless_since: Millis | None = None
        self._has_followed = False
        """Whether it followed a leader when it last knew of one."""

    def look(self) -> None:
        """Notes what is wrong now."""
        now = self._engine.clock.steady()
        if not self._engine.projection.trouble:
            self._troubled_since = None
        elif self._troubled_since is None:
            self._troubled_since = now
        if self._engine.ready:
            self._has_followed, self._leaderless_since = False, None
        elif self.follows:
            self._has_followed, self._leaderless_since = True, None
        elif self._leaderless_since is None:
            self._leaderless_since = now

    @property
    def follows(self) -> bool:
        """Whether it follows a leader that answers it, and could take over."""
        status = self._engine.standing()
        # A follower that has read nothing yet could forward but not take over.
        is_known = self._engine.has_others and status.leader is not None and status.seq > 0
        return is_known and not self._engine.suspects_leader

    def issues(self) -> list[HealthIssue]:
        """Returns why this server cannot make progress; none: it can, or a failover is on its
        way."""
        self.look()
        found = (self._leader(), self._tables(), self._spilled())
        return [issue for issue in found if issue is not None]

    def _leader(self) -> HealthIssue | None:
        if self._leaderless_since is None:
            return None
        if not self._has_followed:
            return HealthIssue(NO_LEADER, self._engine.trouble or "it is about to lead")
        if not self._has_lasted(self._leaderless_since):
            return None
        leader = self._engine.standing().leader
        if leader is not None:
            return HealthIssue(NO_LEADER, f"the leader {leader} does not answer this server")
        return HealthIssue(NO_LEADER, f"no server leads: {self._engine.trouble}")

    def _tables(self) -> HealthIssue | None:
        trouble, lag_s = self._engine.projection.trouble, self._projection_lag_s()
        if trouble and self._has_lasted(self._troubled_since):
            if trouble == KEEPS_ENDING:
                return HealthIssue(PROCESS_ENDS, trouble)
            return HealthIssue(TABLES_BEHIND, "the tables cannot follow the journal", trouble)
        if lag_s * 1000 > self._lasting_ms:
            return HealthIssue(TABLES_BEHIND, f"the tables are {lag_s:.0f} s behind the journal")
        return None

    def _spilled(self) -> HealthIssue | None:
        waiting_ms = self._engine.refills_waiting_ms()
        if waiting_ms < self._lasting_ms:
            return None
        text = f"spilled jobs could not be read from the tables for {waiting_ms // 1000} s"
        return HealthIssue(SPILLED_UNREADABLE, text)

    def _has_lasted(self, since: Millis | None) -> bool:
        return since is not None and self._engine.clock.steady() - since >= self._lasting_ms
