"""Samples of a made-up cell, one every ten seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rota.alerts.conditions import QueueSample, Sample, SampleHistory
from rota.engine.metrics import LONG_SECONDS, SECONDS, Histogram

STEP_MS = 10_000


class Samples:
    """Writes a history of samples, as a test says."""

    def __init__(self) -> None:
        self.history = SampleHistory()
        self.appends = Histogram(SECONDS)
        self.lateness = Histogram(LONG_SECONDS)
        self.now = 0
        self._last: dict[str, Any] = {
            "queues": {"": QueueSample()}, "online": 1, "lost": (), "missed": 0, "at_risk": 0,
            "overdue": 0, "behind_s": 0.0, "quarantined": 0, "losses": (), "disk_free": 1 << 40,
        }  # fmt: skip

    def pass_by(self, seconds: float = 10, **given: Any) -> None:
        """Lets time pass; values that are not given stay as they were."""
        self._last.update(given)
        end = self.now + int(seconds * 1000)
        while self.now < end:
            self.now += STEP_MS
            self.history.add(self._sample())

    def queue(self, name: str = "", **given: Any) -> None:
        """Lets time pass with other values of a queue."""
        queues: Mapping[str, QueueSample] = self._last["queues"]
        self._last["queues"] = {
            **queues, name: replace(queues.get(name, QueueSample()), **given)
        }  # fmt: skip
        self.pass_by()

    def _sample(self) -> Sample:
        return Sample(
            at=self.now,
            wall=self.now,
            appends=self.appends.buckets(),
            lateness=self.lateness.buckets(),
            **self._last,
        )
