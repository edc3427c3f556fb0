"""Usage of the machine as a worker reports it."""

from __future__ import annotations

from rota.worker.usage import EVERY_S, Usage


def test_usage_is_measured_every_few_seconds_only() -> None:
    usage = Usage()
    told = usage.news(100.0)
    assert told["memory"] > 0
    assert told["cpu"] >= 0
    assert usage.news(100.0 + EVERY_S / 2) == {}, "the last answer is still fresh"
    assert usage.news(100.0 + EVERY_S) != {}
