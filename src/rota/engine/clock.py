"""The real clock, and the detection of clock skew and of pauses of the process.

Only `SystemClock` reads the machine's time in the engine. `ClockMonitor` compares the wall clock
with the monotonic one and adds up the time in which no caller was answered; the scheduler gets both
as inputs of its next turn.

Why: docs/decisions/0011-clock-changes-shift-leases.md.
"""

from __future__ import annotations

import time

import structlog

from rota.core.commands import AnyInput, ClockJump, LeaderPause
from rota.core.model import Instant, Millis
from rota.engine.limits import CLOCK_JUMP_MS, LEADER_PAUSE_MS, PULSE_S
from rota.engine.ports import Clock

log = structlog.get_logger("rota.engine")

# The boot-time clock goes on while the machine sleeps; on Linux the monotonic one does not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's wall clock, and a steady one that never jumps."""

    def now(self) -> Instant:
        """Returns wall time in milliseconds; it may be set forward or back."""
        return time.time_ns() // 1_000_000

    def steady(self) -> Millis:
        """Returns milliseconds since some moment in the past; runs evenly, also through suspend."""
        return time.clock_gettime_ns(_STEADY) // 1_000_000

    def fine_s(self) -> float:
        """Returns seconds for measuring short times."""
        return time.perf_counter()


class ClockMonitor:
    """Detects a wall clock that was set, and adds up the time in which no caller was answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = 0
        self._away_ms = 0
        self._pulse_at: Millis | None = None

    def begin(self) -> None:
        """Starts anew with fresh memory, in which every lease has its whole length."""
        self._offset = self._clock.now() - self._clock.steady()
        self._away_ms = 0

    def was_busy(self, since: Millis) -> None:
        """Notes a turn that began at `since` and ends now; a short one costs no lease anything."""
        took = self._clock.steady() - since
        if took > LEADER_PAUSE_MS:
            self._away_ms += took

    def pulse(self) -> None:
        """Notes that the process runs; a long gap between calls, due every PULSE_S, is a pause."""
        now = self._clock.steady()
        if self._pulse_at is not None and now - self._pulse_at > PULSE_S * 1000 + LEADER_PAUSE_MS:
            self._away_ms += now - self._pulse_at
        self._pulse_at = now

    def pending_inputs(self, now: Instant, lapsed_ms: Millis) -> list[AnyInput]:
        """Returns inputs that must come before all others in this turn.

        `lapsed_ms`: how long leadership could not be renewed.
        """
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
