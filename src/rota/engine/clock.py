"""The real clock, and the detection of clock skew: wall clocks that were set, and pauses of the
process.

`SystemClock` is the only one in the engine that reads the machine's time. `ClockMonitor`
compares the wall clock with the monotonic one and adds up the time in which nobody was answered;
the scheduler gets both as inputs of its next turn.
"""

from __future__ import annotations

import time
from collections import deque

import structlog

from rota.core.commands import AnyInput, ClockJump, LeaderPause
from rota.core.model import Instant, Millis
from rota.engine.limits import CLOCK_JUMP_MS, LEADER_PAUSE_MS, PULSE_S
from rota.engine.ports import Clock
from rota.store.protocol import Seq

# The boot-time clock goes on while the machine sleeps, the monotonic one does not on Linux.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clocks: what people mean by a time, and what never jumps."""

    def now(self) -> Instant:
        """Wall time in milliseconds; somebody may set it forward or back."""
        return time.time_ns() // 1_000_000

    def steady(self) -> Millis:
        """Milliseconds since some moment in the past; runs evenly, through suspend too."""
        return time.clock_gettime_ns(_STEADY) // 1_000_000

    def fine_s(self) -> float:
        """Seconds for measuring short times."""
        return time.perf_counter()


log = structlog.get_logger("rota.engine")


class ClockMonitor:
    """Compares the wall clock with the steady one, and adds up the time nobody was answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = 0
        self._away_ms = 0
        self._pulse_at: Millis | None = None

    def begin(self) -> None:
        """Memory is fresh: every lease in it has its whole length."""
        self._offset = self._clock.now() - self._clock.steady()
        self._away_ms = 0

    def was_busy(self, since: Millis) -> None:
        """A turn took from then until now; a short one is nothing to make up for."""
        took = self._clock.steady() - since
        if took > LEADER_PAUSE_MS:
            self._away_ms += took

    def pulse(self) -> None:
        """To be called every PULSE_S: a long silence means that the whole process stood still."""
        now = self._clock.steady()
        if self._pulse_at is not None and now - self._pulse_at > PULSE_S * 1000 + LEADER_PAUSE_MS:
            self._away_ms += now - self._pulse_at
        self._pulse_at = now

    def pending_inputs(self, now: Instant, lapsed_ms: Millis) -> list[AnyInput]:
        """What must come before anything else in this turn; `lapsed_ms` as the seat tells it."""
        if self._pulse_at is not None:
            self.pulse()
        self._away_ms = max(self._away_ms, lapsed_ms)
        events: list[AnyInput] = []
        jump = now - self._clock.steady() - self._offset
        if abs(jump) > CLOCK_JUMP_MS:
            log.warning("clock_jumped", by_ms=jump)
            self._offset += jump
            events.append(ClockJump(by=jump))
        if self._away_ms:
            log.warning("leases_extended", by_ms=self._away_ms)
            events.append(LeaderPause(by=self._away_ms))
            self._away_ms = 0
        return events


class ProjectionLag:
    """How far the tables are behind the journal, in time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: deque[tuple[Seq, Millis]] = deque()

    def appended(self, seq: Seq, folded: Seq) -> None:
        """A record is durable."""
        self._pending.append((seq, self._clock.steady()))
        self._forget(folded)

    def clear(self) -> None:
        """Another server appends now."""
        self._pending.clear()

    def seconds(self, folded: Seq) -> float:
        """How long the oldest record that is not in the tables yet has been durable."""
        self._forget(folded)
        return (self._clock.steady() - self._pending[0][1]) / 1000 if self._pending else 0.0

    def _forget(self, folded: Seq) -> None:
        while self._pending and self._pending[0][0] <= folded:
            self._pending.popleft()
