"""Regression check of speed in CI."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from benchmarks.smoke import NAME, RATIOS, fallen, kept_ratios, scheduler_ratio
from benchmarks.table import Row
from rota.core.commands import AnyInput
from rota.core.model import Instant
from rota.core.outcome import Outcome
from rota.core.scheduler import Scheduler


def row(percent: float) -> Row:
    return Row(NAME, "scheduler alone", [percent / 2, percent], "% of raw")


def test_a_ratio_that_fell_by_more_than_a_third_is_reported() -> None:
    (message,) = fallen([row(19.9)], {"scheduler alone": 0.3})
    assert message.startswith("scheduler alone: 19.9 % of the raw limit, 30.0% was kept")


def test_a_ratio_that_fell_by_less_or_rose_passes() -> None:
    assert fallen([row(20.1), row(45)], {"scheduler alone": 0.3}) == []


def test_every_measured_ratio_has_a_stored_one() -> None:
    assert list(kept_ratios()) == list(RATIOS)


class SlowScheduler(Scheduler):
    def turn(self, events: Sequence[AnyInput], now: Instant) -> Outcome:
        began = time.process_time()
        outcome = super().turn(events, now)
        spent = time.process_time() - began
        while time.process_time() < began + 3 * spent:
            pass
        return outcome


@pytest.mark.slow
def test_a_scheduler_that_takes_twice_the_time_is_reported() -> None:
    lives, kept = 2_000, max(scheduler_ratio(2_000) for _ in range(2))
    taken = [100 * scheduler_ratio(lives, SlowScheduler) for _ in range(2)]
    assert fallen([Row(NAME, "it", taken, "% of raw")], {"it": kept})
