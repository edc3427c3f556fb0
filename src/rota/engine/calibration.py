"""How good estimated starts have been, and how wide an interval must be to hold four of five.

An estimate is compared with the start when that comes. The interval of the next estimate spans what
the errors of like ones before it were; no shape of error is assumed. If too many starts fall
outside, intervals grow until the share is right again, and shrink when it is too good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import exp, log

import msgspec

from rota.core.model import Instant, JobId, Millis
from rota.engine.estimates import Accuracy
from rota.engine.limits import ERRORS_KEPT, ESTIMATES_KEPT
from rota.engine.observe import Histogram

AIMED_AT = 0.8
"""The share of starts that an interval is to hold."""
_FLAT_MS = 10_000
"""Shorter waits are alike: whether it is one second or two does not matter to a ratio."""
_STEP = log(4)
"""Waits that differ by less than this factor have errors alike."""
_FEW = 20
_PRIOR = (log(0.25), log(2.5))
"""Before anything is known: jobs end earlier than they say, and others come and pass."""
_PATIENCE = 0.02
_MISSES = (0.02, 0.3)
ERROR_SECONDS = (-86_400, -14_400, -3_600, -900, -300, -60, -10, -1, 0, 1, 10, 60)
ERROR_SECONDS_LATE = (300, 900, 3_600, 14_400, 86_400)


class GivenEstimate(msgspec.Struct, frozen=True):
    """An estimate that was given."""

    made_at: Instant
    at: Instant
    low: Instant
    high: Instant
    method: str


class Calibration:
    """Errors of the past, and what follows from them."""

    def __init__(self) -> None:
        self._open: dict[JobId, GivenEstimate] = {}
        self._errors: dict[tuple[str, int], deque[float]] = {}
        self._all: deque[float] = deque(maxlen=ERRORS_KEPT)
        self._miss = 1 - AIMED_AT
        self._recent: deque[bool] = deque(maxlen=ERRORS_KEPT)
        self.errors_s = Histogram((*ERROR_SECONDS, *ERROR_SECONDS_LATE))
        """Real minus estimated start, in seconds."""
        self.starts = 0
        self.inside = 0

    @property
    def is_waiting(self) -> bool:
        """Whether any estimate is yet to come true."""
        return bool(self._open)

    def interval(self, method: str, wait: Millis) -> tuple[Millis, Millis]:
        """The shortest and the longest wait that are likely where `wait` is expected."""
        errors = self._errors.get((method, _size(wait)), ())
        if len(errors) < _FEW:
            errors = self._all
        low, high = _PRIOR if len(errors) < _FEW else _quantiles(errors, self._miss)
        flat = wait + _FLAT_MS
        # What is expected is always among what is likely.
        shortest = min(wait, max(0, int(flat * exp(low)) - _FLAT_MS))
        return shortest, max(wait, int(flat * exp(high)) - _FLAT_MS)

    def note_estimate(self, job_id: JobId, estimate: GivenEstimate) -> None:
        """Somebody was told; the first word counts, or else waiting would make it better."""
        if job_id not in self._open:
            if len(self._open) >= ESTIMATES_KEPT:
                del self._open[next(iter(self._open))]
            self._open[job_id] = estimate

    def started(self, job_ids: Iterable[JobId], now: Instant) -> None:
        """These jobs start now."""
        for job_id in job_ids:
            estimate = self._open.pop(job_id, None)
            if estimate is not None:
                self._judge(estimate, now)

    def _judge(self, estimate: GivenEstimate, now: Instant) -> None:
        is_inside = estimate.low <= now <= estimate.high
        self.starts += 1
        self.inside += is_inside
        self._recent.append(is_inside)
        expected = estimate.at - estimate.made_at
        real = max(0, now - estimate.made_at)
        error = log((real + _FLAT_MS) / (expected + _FLAT_MS))
        kept = self._errors.setdefault(
            (estimate.method, _size(expected)), deque(maxlen=ERRORS_KEPT)
        )
        kept.append(error)
        self._all.append(error)
        wrong = (AIMED_AT - 1) + (0.0 if is_inside else 1.0)
        self._miss = min(_MISSES[1], max(_MISSES[0], self._miss - _PATIENCE * wrong))
        self.errors_s.note((now - estimate.at) / 1000)

    def accuracy(self) -> Accuracy | None:
        """Of late; None: no estimate has come true yet."""
        if not self._recent:
            return None
        return Accuracy(sum(self._recent) / len(self._recent), self.starts)

    def outcomes(self) -> Mapping[str, int]:
        """Starts inside and outside the interval, since the beginning."""
        return {"inside": self.inside, "outside": self.starts - self.inside}


def with_interval(
    calibration: Calibration, method: str, at: Instant, now: Instant
) -> GivenEstimate:
    """An estimate with the interval that its kind deserves."""
    low, high = calibration.interval(method, max(0, at - now))
    return GivenEstimate(now, at, now + low, now + high, method)


def _size(wait: Millis) -> int:
    return int(log((wait + _FLAT_MS) / _FLAT_MS) / _STEP)


def _quantiles(errors: Iterable[float], miss: float) -> tuple[float, float]:
    """What cuts off half of the misses on either side; the more careful neighbour where between."""
    ordered = sorted(errors)
    last = len(ordered) - 1
    low = int((len(ordered) + 1) * miss / 2) - 1
    return ordered[max(0, low)], ordered[min(last, last - low)]
