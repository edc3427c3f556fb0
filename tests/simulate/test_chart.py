"""Charts of characters."""

from __future__ import annotations

import pytest

from rota.simulate import chart
from tests.simulate.builders import simulated, work


def test_a_bar_is_as_high_as_its_share() -> None:
    assert chart.bars([0, 1, 50, 100], 100) == " ▁▄█"


def test_any_value_above_zero_is_visible() -> None:
    assert chart.bars([0.0, 1e-9], 1.0) == " ▁"
    assert chart.bars([0.0, 0.0], 0.0) == "  "


def test_utilisation_is_spread_over_the_time_that_a_job_ran() -> None:
    history = simulated([work(0, 10, 4), work(0, 25, 4)], 8)
    until = chart.span_ms([history])
    assert until == 25_000
    assert chart.uses(history, (5, until), 8000) == pytest.approx([1, 1, 0.5, 0.5, 0.5])


def test_a_wait_is_shown_where_its_job_arrived() -> None:
    history = simulated([work(0, 10), work(9, 10)], 1)
    assert chart.waits(history, 2, 20_000) == [pytest.approx(0.5), 0.0]
