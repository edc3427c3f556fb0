"""Charts in characters."""

from __future__ import annotations

import pytest

from rota.simulate import chart
from tests.simulate.builders import simulated, work


def test_a_bar_is_as_high_as_its_part() -> None:
    assert chart.bars([0, 1, 50, 100], 100) == " ▁▄█"


def test_what_is_not_nothing_shows() -> None:
    assert chart.bars([0.0, 1e-9], 1.0) == " ▁"
    assert chart.bars([0.0, 0.0], 0.0) == "  "


def test_use_is_spread_over_the_time_a_job_ran() -> None:
    diary = simulated([work(0, 10, 4), work(0, 25, 4)], 8)
    until = chart.span_ms([diary])
    assert until == 25_000
    assert chart.uses(diary, (5, until), 8000) == pytest.approx([1, 1, 0.5, 0.5, 0.5])


def test_waits_stand_where_the_jobs_came() -> None:
    diary = simulated([work(0, 10), work(9, 10)], 1)
    assert chart.waits(diary, 2, 20_000) == [pytest.approx(0.5), 0.0]
