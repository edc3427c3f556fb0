"""Texts of durations."""

from __future__ import annotations

import pytest

from rota.core.explain.why import duration_text


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 s"),
        (500, "0.5 s"),
        (59_999, "59.999 s"),
        (60_000, "1 min"),
        (61_500, "1 min 1 s"),
        (5_400_000, "1 h 30 min"),
        (3_600_999, "1 h"),
        (86_400_000, "1 d"),
        (86_400_000 + 60_000, "1 d"),
        (72 * 365 * 86_400_000 + 7_200_000, "26280 d 2 h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(ms: int, said: str) -> None:
    assert duration_text(ms) == said
